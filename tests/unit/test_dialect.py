"""What templates say of tools and thinking."""

from __future__ import annotations

import pytest

from edgespec.chat import ChatTemplate
from edgespec.dialect import Dialect, dialect_of
from edgespec.engine.scripted import ScriptedVocab

TURNS = "{% for m in messages %}{{ m.content }}{% endfor %}"
TOOLS = "{% if not tools is defined %}{% set tools = none %}{% endif %}{% if tools %}{{ tools | tojson }}{% endif %}"


class Vocab(ScriptedVocab):
    """One whose mark for calls is a control token."""

    def special_texts(self) -> dict[str, int]:
        return {**super().special_texts(), "[TOOL_CALLS]": self.size - 1, "<think>": ord("t")}


def dialect(source: str) -> Dialect:
    return dialect_of(ChatTemplate(source, bos_token="", eos_token=""), Vocab())


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (TURNS + "<tool_call>", None),
        (TOOLS + "{{ '<tool_call>' }}", "hermes"),
        (TOOLS + "<tool_call><function=", None),
        (TOOLS + "[TOOL_CALLS]", "mistral"),
        (TOOLS + "[TOOL_CALLS][ARGS]", None),
        (TOOLS + "<|python_tag|>", "llama"),
        (TOOLS + '{"name": .., "parameters": ..}{{ "ipython" }}', "llama"),
        (TOOLS, None),
    ],
)
def test_forms_of_calls(source: str, form: str | None) -> None:
    found = dialect(source)
    assert found.form == form
    assert found.takes_tools == ("tools" in source)


@pytest.mark.parametrize(
    ("source", "switch", "opens"),
    [
        ("", None, None),
        ("{# </think> #}", None, ()),
        ("{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}", None, (None,)),
        ("<think>\n\n</think>", None, ()),
        (
            "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
            "enable_thinking",
            (),
        ),
        ("{% if thinking %}<think>{% endif %}{# </think> #}", "thinking", (True,)),
        ("{% if enable_thinking != false %}<think>{% endif %}{# </think> #}", "enable_thinking", (None, True)),
    ],
)
def test_who_begins_a_thought(source: str, switch: str | None, opens: tuple[bool | None, ...] | None) -> None:
    found = dialect(TURNS + source)
    assert found.switch == switch
    assert found.opens == (opens or ())
    assert found.thought == (None if opens is None else ("<think>", "</think>"))


def test_only_marks_that_are_not_shown_are_restored() -> None:
    assert dialect(TOOLS + "[TOOL_CALLS]</think>").markers == {ScriptedVocab.size - 1: "[TOOL_CALLS]"}
    assert dialect(TOOLS + "<tool_call>").markers == {}


def test_a_template_that_refuses_the_question_says_nothing_of_thoughts() -> None:
    assert dialect(TURNS + "{{ raise_exception('no') }}<think></think>").opens == ()
