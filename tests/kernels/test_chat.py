"""Chat templates of folders: where they are found, and how they are rendered."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from slotlab_kernels import chat
from slotlab_kernels.chat import folder_template
from slotlab_kernels.shape import ModelFileError

NOW = datetime(2026, 3, 14, 15, 9, 26)
SOURCE = (
    "{{ bos_token }}{% for m in messages %}\n"
    "  {% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\n"
    "[{{ m['role'] }}] {{ m['content'] }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def settings(folder, **others):
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, **others}))


def test_a_conversation_is_written_as_the_template_says(tmp_path):
    settings(tmp_path, chat_template=SOURCE)
    said = folder_template(tmp_path).render([("user", "hi"), ("assistant", "yes?"), ("user", "bye")], NOW)
    assert said == "<s>[user] hi\n[assistant] yes?\n[user] bye\n[assistant] "


def test_a_template_of_its_own_or_the_default_of_several_is_taken(tmp_path):
    settings(tmp_path, chat_template=[{"name": "tools", "template": "x"}, {"name": "default", "template": "one of several"}])
    assert folder_template(tmp_path).render([("user", "hi")], NOW) == "one of several"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert folder_template(tmp_path).render([("user", "hi")], NOW) == "own file"


def test_a_folder_without_a_template_has_none(tmp_path):
    assert folder_template(tmp_path) is None
    settings(tmp_path)
    assert folder_template(tmp_path) is None


@pytest.mark.parametrize(
    ("source", "messages", "reason"),
    [
        (SOURCE, [("tool", "1")], "its chat template refuses the messages (no tools)"),
        ("{% for %}", [("user", "hi")], "its chat template refuses the messages"),
        ("{{ messages.__class__.__mro__ }}", [("user", "hi")], "its chat template refuses the messages"),
    ],
)
def test_what_a_template_refuses_is_named(tmp_path, source, messages, reason):
    settings(tmp_path, chat_template=source)
    with pytest.raises(ModelFileError) as error:
        folder_template(tmp_path).render(messages, NOW)
    assert f"{tmp_path / 'tokenizer_config.json'}: {reason}" in str(error.value)


def test_a_template_that_is_no_text_is_refused(tmp_path):
    settings(tmp_path, chat_template=3)
    with pytest.raises(ModelFileError, match="chat_template is no text, nor a list of names and templates"):
        folder_template(tmp_path)


MESSAGES = [("user", "hi <b>é</b>"), ("assistant", "yes")]


def rendered(folder, source):
    settings(folder, chat_template=source, eos_token="</s>")
    return folder_template(folder).render(MESSAGES, NOW)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "assistant"),
        ("{% for m in messages %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endfor %}", "[hi <b>é</b>][yes]"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "hi <b>é</b>"}'),
        ("{{ {'b': 1, 'a': 'é<'} | tojson(indent=2, sort_keys=true) }}", '{\n  "a": "é<",\n  "b": 1\n}'),
        ("{{ tools is none }} {{ documents is none }} {{ nothing is defined }}", "True True False"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"),
        ("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|", "<s>|</s>||"),
    ],
)
def test_templates_find_what_they_find_in_transformers(tmp_path, source, expected):
    """These are the texts of render_jinja_template of transformers 5.24."""
    assert rendered(tmp_path, source) == expected


def test_the_time_that_a_template_sees_is_the_one_that_is_given(tmp_path):
    assert rendered(tmp_path, "{{ strftime_now('%d %B %Y') }}") == "14 March 2026"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('no\n  tools') }}", "(no tools)"),
        ("{{ 1 // 0 }}", "(ZeroDivisionError: "),
        ("{{ nothing() }}", "('nothing' is undefined)"),
        ("{{ messages.append(1) }}", "is unsafe.)"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "(it calls itself without end)"),
        ("{% for i in range(999999) %}{% endfor %}", "(OverflowError: Range too big."),
        ("{{ 'x' * 10000000000 }}", "(it needs too much memory)"),
        ("{{ 'x' * 20000000 }}", "(it writes more than 16777216 characters)"),
    ],
)
def test_whatever_a_template_raises_is_one_line_and_the_next_one_is_served(tmp_path, source, reason):
    with pytest.raises(ModelFileError) as error:
        rendered(tmp_path, source)
    assert reason in str(error.value) and "\n" not in str(error.value)
    assert rendered(tmp_path, "{{ messages | length }}") == "2"


@pytest.mark.parametrize(
    "loops", ["{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3, "{{ (messages | length + 5) ** (9 ** 9) }}"]
)
def test_a_template_without_end_ends(tmp_path, monkeypatch, loops):
    """By processor time, so a slow machine refuses none that a fast one serves; also within one long operation."""
    monkeypatch.setitem(chat.LIMITS, "seconds", 0.2)
    settings(tmp_path, chat_template="{% if messages | length == 2 %}" + loops + "{% endif %}done")
    template = folder_template(tmp_path)
    with pytest.raises(ModelFileError, match=r"it needs more than 0\.2 s of processor time"):
        template.render(MESSAGES, NOW)
    assert template.render(MESSAGES[:1], NOW) == "done"


def test_templates_in_files_of_their_own_come_first_and_one_must_be_the_default(tmp_path):
    settings(tmp_path, chat_template="old")
    others = tmp_path / "additional_chat_templates"
    others.mkdir()
    (others / "rag.jinja").write_text("rag")
    with pytest.raises(ModelFileError, match="of its chat templates, rag, none is called default"):
        folder_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("own")
    assert folder_template(tmp_path).render(MESSAGES, NOW) == "own"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja: cannot be read"):
        folder_template(tmp_path)
