"""Chat templates for scripted models: as real ones speak of tools and of thinking, in as few words as possible."""

from __future__ import annotations

from pathlib import Path

_MESSAGES = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for call in m.tool_calls or [] %}"
    "CALL {{ call.function.name }} {{ call.function.arguments | tojson }}"
    "{% endfor %}"
    "<|end|>{% endfor %}"
)
_ASSISTANT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
_TOOLS = "{% if tools %}<|system|>TOOLS {{ tools | tojson }} as MARK<|end|>{% endif %}"

HERMES = _TOOLS.replace("MARK", "<tool_call>") + _MESSAGES + _ASSISTANT
MISTRAL = _TOOLS.replace("MARK", "[TOOL_CALLS]") + _MESSAGES + _ASSISTANT
LLAMA = _TOOLS.replace("MARK", "<|python_tag|>") + _MESSAGES + _ASSISTANT
UNKNOWN = _TOOLS.replace("MARK", "whatever") + _MESSAGES + _ASSISTANT
SWITCHED = (
    _TOOLS.replace("MARK", "<tool_call>")
    + _MESSAGES
    + "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}"
    "{# nothing is thought #}{% else %}<think>\n{% endif %}{% endif %}{# </think> #}"
)
THINKS_ITSELF = _MESSAGES + _ASSISTANT + "{# <think> </think> #}"


def written(folder: Path, source: str) -> str:
    """The name of a scripted model that repeats what the user says, with this template."""
    path = folder / "template.jinja"
    path.write_text(source, "utf-8")
    return f"scripted:echo?n_ctx=4096&template={path}"
