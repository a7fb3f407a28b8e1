"""Tokenizers from the metadata of GGUF files: the two kinds that the supported models use."""

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.shape import ModelFileError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_SPACE = "▁"


def gguf_tokenizer(header: GGUFHeader) -> tokenizers.Tokenizer:
    """The tokenizer of a GGUF file; ModelFileError if it is of another kind, or its parts do not fit."""
    kind = header.get("tokenizer.ggml.model", str)
    split = header.get("tokenizer.ggml.pre", str, "default")
    if kind != "llama" and (kind != "gpt2" or split not in _SPLITS):
        allowed = ", ".join(["llama", *(f"gpt2/{name}" for name in _SPLITS)])
        raise ModelFileError(f"{header.path}: tokenizer {kind}/{split} is not supported; supported: {allowed}")
    try:
        tokenizer = _sentencepiece(header) if kind == "llama" else _byte_level_bpe(header, split)
        _add_whole_tokens(tokenizer, header)
    except ModelFileError:
        raise
    except Exception as error:  # tokenizers raises no narrower class
        raise ModelFileError(f"{header.path}: the vocabulary and its merges do not fit ({error})") from None
    return tokenizer


def gguf_bos(header: GGUFHeader) -> int | None:
    """The token that begins every prompt; None if the model wants none. Where the file does not tell, Llama wants one."""
    llama = header.get("tokenizer.ggml.model", str) == "llama" or header.fields.get("tokenizer.ggml.pre") in _LLAMA_3
    if not header.get("tokenizer.ggml.add_bos_token", bool, llama):
        return None
    return int(header.get("tokenizer.ggml.bos_token_id", int))


def gguf_last(header: GGUFHeader) -> int | None:
    """The token that ends every prompt; None if the model wants none."""
    return header.get("tokenizer.ggml.eos_token_id", int) if header.get("tokenizer.ggml.add_eos_token", bool, False) else None


def _byte_level_bpe(header: GGUFHeader, split: str) -> tokenizers.Tokenizer:
    """Byte-level BPE (Radford et al., 2019), the model that GGUF calls gpt2."""
    vocab = {token: i for i, token in enumerate(header.get("tokenizer.ggml.tokens", list))}
    merges = [tuple(pair.split(" ", 1)) for pair in header.get("tokenizer.ggml.merges", list)]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=split in _LLAMA_3))
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _SPLITS[split]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(header: GGUFHeader) -> tokenizers.Tokenizer:
    """SentencePiece's BPE (Kudo & Richardson, 2018), the model that GGUF calls llama: of two neighbours that are a token
    together, those with the best score are merged first. Bytes stand in for characters that are no token."""
    tokens, kinds = header.get("tokenizer.ggml.tokens", list), header.get("tokenizer.ggml.token_type", list)
    scores = header.get("tokenizer.ggml.scores", list)
    vocab, merges = {token: i for i, token in enumerate(tokens)}, []
    for token, kind, score in zip(tokens, kinds, scores, strict=True):
        if kind == _NORMAL:
            halves = [(token[:at], token[at:]) for at in range(1, len(token))]
            merges += [(-score, -len(a), vocab[a], a, b) for a, b in halves if a in vocab and b in vocab]
    unknown = next((token for token, kind in zip(tokens, kinds, strict=True) if kind == _UNKNOWN), None)
    pairs = [(a, b) for *_, a, b in sorted(merges)]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = header.get("tokenizer.ggml.add_space_prefix", bool, True)
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    first = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *first])
    return tokenizer


def _add_whole_tokens(tokenizer: tokenizers.Tokenizer, header: GGUFHeader) -> None:
    """Those that are matched as a whole, before the text is split."""
    tokens, kinds = header.get("tokenizer.ggml.tokens", list), header.get("tokenizer.ggml.token_type", list)
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        add([AddedToken(token, normalized=False) for token, own in zip(tokens, kinds, strict=True) if own == kind])


def _words(digits: str) -> pre_tokenizers.PreTokenizer:
    """The split of GPT-4's tokenizer, with so many digits together."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), whole])


_LLAMA_3 = ("llama-bpe", "llama3", "llama-v3")
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_SPLITS = {
    "gpt-2": _BYTES,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _BYTES]),
    "qwen2": _words(r"\p{N}"),
    **dict.fromkeys(_LLAMA_3, _words(r"\p{N}{1,3}")),
}
