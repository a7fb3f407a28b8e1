"""Chat templates of folders: where they are found, and how they are rendered."""

from __future__ import annotations

import json

import pytest

from slotlab_kernels.chat import folder_template
from slotlab_kernels.shape import ModelFileError

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
    said = folder_template(tmp_path).render([("user", "hi"), ("assistant", "yes?"), ("user", "bye")])
    assert said == "<s>[user] hi\n[assistant] yes?\n[user] bye\n[assistant] "


def test_a_template_of_its_own_or_the_default_of_several_is_taken(tmp_path):
    settings(tmp_path, chat_template=[{"name": "tools", "template": "x"}, {"name": "default", "template": "one of several"}])
    assert folder_template(tmp_path).render([("user", "hi")]) == "one of several"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert folder_template(tmp_path).render([("user", "hi")]) == "own file"


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
        folder_template(tmp_path).render(messages)
    assert f"{tmp_path / 'tokenizer_config.json'}: {reason}" in str(error.value)


def test_a_template_that_is_no_text_is_refused(tmp_path):
    settings(tmp_path, chat_template=3)
    with pytest.raises(ModelFileError, match="chat_template is no text"):
        folder_template(tmp_path)
