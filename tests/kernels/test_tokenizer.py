import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from slotlab_kernels.shape import ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer


def write_tokenizer(folder: Path, eos: object, with_bos: bool = False) -> None:
    vocab = {token: index for index, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "<s>", "</s>"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, [("h", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if with_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": eos}))


def test_a_folder_gives_text_back_and_knows_its_end(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, eos=258)
    tokenizer = load_tokenizer(tmp_path)
    ids = tokenizer.encode("hello né</s>")
    assert ids[0] == 256 and ids[-1] == 258 and tokenizer.end_ids == {258}
    assert tokenizer.decode(ids) == "hello né</s>"


def test_a_prompt_starts_as_the_model_wants_it(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, eos=258, with_bos=True)
    assert load_tokenizer(tmp_path).encode("he") == [257, 256]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: does not exist$"):
        load_tokenizer(tmp_path)
    path.write_text("{}")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: is not a tokenizer"):
        load_tokenizer(tmp_path)
