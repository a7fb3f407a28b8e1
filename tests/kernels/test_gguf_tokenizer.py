from pathlib import Path

import gguf
import pytest

from slotlab_kernels.shape import ModelFileError
from slotlab_kernels.tokenizer import Tokenizer, load_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
BYTES = [*(chr(0x100 + i) if i < 33 else chr(i) for i in range(127))]
BPE = ["<|end|>", "<|tool|>", *BYTES, "ab", "abc", "Ġa", "12", "Ġ1", "123"]
MERGES = ["a b", "ab c", "Ġ a", "1 2", "Ġ 1", "12 3"]


def write(path: Path, tokens: list[str], kinds: list[int], model: str = "gpt2", **fields: object) -> Tokenizer:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return load_tokenizer(path)


def write_bpe(path: Path, pre: str) -> Tokenizer:
    kinds = [CONTROL, USER_DEFINED] + [NORMAL] * (len(BPE) - 2)
    return write(path, BPE, kinds, tokenizer_pre=pre, token_merges=MERGES)


@pytest.mark.parametrize(
    ("pre", "expected"),
    (
        ("smollm", ["abc", "Ġa", "1", "2", "3", "4", "<|tool|>", "b", "<|end|>"]),
        ("qwen2", ["abc", "Ġa", "1", "2", "3", "4", "<|tool|>", "b", "<|end|>"]),
        ("gpt-2", ["abc", "Ġa", "123", "4", "<|tool|>", "b", "<|end|>"]),
        ("llama-bpe", ["<|tool|>", "abc", "Ġa", "123", "4", "<|tool|>", "b", "<|end|>"]),
    ),
)
def test_words_and_digits_are_split_as_the_model_wants(tmp_path: Path, pre: str, expected: list[str]) -> None:
    """Special tokens whole; Llama 3 alone begins with the first one, and has up to three digits together."""
    tokenizer, text = write_bpe(tmp_path / "model.gguf", pre), "abc a1234<|tool|>b<|end|>"
    ids = tokenizer.encode(text)
    assert [BPE[i] for i in ids] == expected
    assert tokenizer.end_ids == {0} and tokenizer.decode(ids).endswith(text)


def test_llama_3_takes_whole_words_that_no_merge_builds(tmp_path: Path) -> None:
    tokens = [*BPE, "xyz"]
    kinds = [CONTROL, USER_DEFINED] + [NORMAL] * (len(tokens) - 2)
    for pre, expected in (("llama-bpe", ["xyz"]), ("qwen2", ["x", "y", "z"])):
        tokenizer = write(tmp_path / pre, tokens, kinds, tokenizer_pre=pre, token_merges=MERGES, add_bos_token=False)
        assert [tokens[i] for i in tokenizer.encode("xyz")] == expected


PIECES = {"<unk>": 0.0, "<s>": 0.0, "<0xC3>": 0.0, "<0xA9>": 0.0, "<0x0A>": 0.0, "▁a": -1.0, "bc": -2.0, "▁ab": -3.0, "bcd": -4.0}
PIECES |= {"▁": -9.0, "a": -9.0, "b": -9.0, "c": -9.0, "d": -9.0}
KINDS = [UNKNOWN, CONTROL, BYTE, BYTE, BYTE] + [NORMAL] * 9


def write_sentencepiece(path: Path, **fields: object) -> Tokenizer:
    return write(path, list(PIECES), KINDS, "llama", token_scores=list(PIECES.values()), **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    (
        ("abcd", ["▁a", "bcd"]),  # ▁ab has a score too, but bc is merged before
        ("ab abc", ["▁ab", "▁a", "bc"]),
        ("é\n", ["▁", "<0xC3>", "<0xA9>", "<0x0A>"]),
        ("d<s>d", ["▁", "d", "<s>", "▁", "d"]),
    ),
)
def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(tmp_path: Path, text: str, expected: list[str]) -> None:
    """As sentencepiece itself does; 18 texts gave the same ids with the vocabularies of two Mistral models."""
    tokenizer = write_sentencepiece(tmp_path / "model.gguf")
    ids = tokenizer.encode(text)
    assert [list(PIECES)[i] for i in ids] == ["<s>", *expected]
    assert tokenizer.decode(ids[1:]).replace("<s> ", "<s>") == text


def test_the_file_may_refuse_the_first_token_and_the_first_space(tmp_path: Path) -> None:
    tokenizer = write_sentencepiece(tmp_path / "model.gguf", add_bos_token=False, add_space_prefix=False)
    ids = tokenizer.encode("abc a")
    assert [list(PIECES)[i] for i in ids] == ["a", "bc", "▁a"]
    assert tokenizer.decode(ids) == "abc a"


@pytest.mark.parametrize(("model", "pre"), (("bert", "default"), ("gpt2", "tekken")))
def test_another_kind_of_tokenizer_is_refused(tmp_path: Path, model: str, pre: str) -> None:
    expected = f"{model}/{pre} is not supported; supported: llama, gpt2/gpt-2, gpt2/smollm, gpt2/qwen2, gpt2/llama-bpe"
    with pytest.raises(ModelFileError, match=expected):
        write(tmp_path / "model.gguf", BPE, [NORMAL] * len(BPE), model, tokenizer_pre=pre)


def test_a_vocabulary_whose_parts_do_not_fit_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for fields in ({"token_scores": [0.0]}, {}):
        with pytest.raises(ModelFileError, match=str(path)) as error:
            write(path, list(PIECES), KINDS, "llama", **fields)
        assert "\n" not in str(error.value)


def test_a_prompt_ends_as_the_file_wants_it(tmp_path: Path) -> None:
    """llama.cpp appends the end token where add_eos_token says so."""
    kinds = [CONTROL, USER_DEFINED] + [NORMAL] * (len(BPE) - 2)
    fields = {"tokenizer_pre": "gpt-2", "token_merges": MERGES}
    assert write(tmp_path / "model.gguf", BPE, kinds, **fields).encode("b") == [BPE.index("b")]
    assert write(tmp_path / "model.gguf", BPE, kinds, **fields, add_eos_token=True).encode("b") == [BPE.index("b"), 0]
