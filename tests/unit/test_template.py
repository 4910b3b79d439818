"""Laws of chat templates: they render as plain jinja2 does, fail in one line, and cannot use up the machine."""

from __future__ import annotations

import re
import time

import pytest
from jinja2 import Environment

from edgespec.chat import ChatTemplate
from edgespec.errors import BadRequestError, ModelLoadError
from edgespec.messages import Message


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>")


def render(source: str, *contents: str, **kwargs: object) -> str:
    return template(source).render([Message("user", content) for content in contents or ("hi",)], **kwargs)


def test_rendering_agrees_with_plain_jinja2():
    source = (
        "{% set ns = namespace(n=0) %}\n"
        "{% for m in messages if m.role != 'tool' %}\n"
        "  {% if loop.first and m.role == 'system' %}\n"
        "[SYS]{{ m.content | trim }}[/SYS]\n"
        "  {% elif loop.index0 > 7 %}{% break %}\n"
        "  {% else %}\n"
        "{{ '%-4s' % m.role ~ '|' ~ m.content.split('|')[-1].replace('a', 'aa') }}{{ '{}:{:>3}'.format(1, 2) }}\n"
        "    {% set ns.n = ns.n + (m.content | length) * 2 %}\n"
        "  {% endif %}\n"
        "  {{- ', ' if not loop.last else '.' }}\n"
        "{% endfor %}\n"
        "{% macro box(x, w=3) %}<{{ x | string | center(w + 2) }}>{{ caller() if caller }}{% endmacro %}\n"
        "{{ box(ns.n) }}{% call box('y') %}inner{% endcall %}\n"
        "{{ messages[1:] | map(attribute='content') | join(';') }} {{ messages[::-1][0].content[1:3] }}\n"
        "{% for k, v in {'b': 1, 'a': [2, 3]}.items() %}{{ k }}={{ v }} {% endfor %}\n"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ 7 // 2 }} {{ 2 ** 5 }}\n"
        "{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}"
        "{% endfor %}\n"
        "{{ missing is defined }}{{ missing }}{{ 'a' in 'cat' and (1, 2) == (1, 2) }}{{ tools is none }}\n"
    )
    messages = [
        Message("system", " s \n"),
        Message("tool", "t"),
        *(Message("user", f"<a|b{i}>" * i) for i in range(10)),
    ]
    plain = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    variables = {"messages": [{"role": m.role, "content": m.content} for m in messages], "tools": None}
    assert template(source).render(messages) == plain.from_string(source).render(**variables)


def test_template_helpers_follow_hugging_face():
    assert (
        render("{{ x | tojson }}", x={"a": "<é'&>", "b": [None, True, 1.5]})
        == '{"a": "<é\'&>", "b": [null, true, 1.5]}'
    )
    assert render("{{ x | tojson(indent=2) }}", x=[1]) == "[\n  1\n]"
    assert render("{% generation %}<{{ messages[0].content }}>{% endgeneration %}", "hey") == "<hey>"
    assert re.fullmatch(r"\d\d \w+ \d{4}", render("{{ strftime_now('%d %B %Y') }}"))
    assert (
        render("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}", add_generation_prompt=False)
        == "<s></s>False"
    )


def test_a_templates_own_refusal_is_a_bad_request_with_its_message():
    with pytest.raises(BadRequestError, match="roles must alternate") as error:
        render("{{ raise_exception('roles must\\nalternate \x1b[31m!') }}")
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{ x | nosuchfilter }}", "{{ x is nosuchtest }}", "{% nosuchtag %}", "{{ 'open",
     "{% endfor %}", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "x" * 200_001],
)  # fmt: skip
def test_a_template_that_does_not_compile_is_a_load_error_in_one_line(source):
    with pytest.raises(ModelLoadError, match="chat template") as error:
        template(source)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source",
    ["{{ nothing.at.all }}", "{{ 1 + 'a' }}", "{{ messages[0].content() }}", "{% include 'other' %}",
     "{{ [].append(1) }}", "{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}", "{{ dict.update({}, a=1) }}",
     "{{ (5).to_bytes(9, 'big') }}", "{% if 1 is nosuchtest %}{% endif %}"],
)  # fmt: skip
def test_a_template_that_fails_is_a_load_error_in_one_line(source):
    with pytest.raises(ModelLoadError, match="chat template failed") as error:
        render(source)
    assert "\n" not in str(error.value)


def test_template_variables_are_plain_data():
    with pytest.raises(BadRequestError, match="now is a "):
        render("{{ now }}", now=object())
    with pytest.raises(BadRequestError, match=r"tools\[0\]\.f is a "):
        render("", tools=[{"f": print}])
    with pytest.raises(BadRequestError, match="bos_token"):
        render("", bos_token="x")
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(BadRequestError, match="nested"):
        render("", tools=nested)


HOSTILE = {
    "range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "repeat text": "{{ 'a' * 10**9 }}",
    "repeat list": "{{ (10**9 * [0]) | length }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent precision": "{{ '%.1000000000f' % 1 }}",
    "percent nested key": "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format computed": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format repeats": "{{ ('{0}' * 10000).format('a' * 10000) }}",
    "date width": "{{ strftime_now('%1000000000d') }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "center": "{{ 'a' | center(width=1000000000) }}",
    "filter block": "{% filter center(1000000000) %}x{% endfilter %}",
    "map": "{{ ['a'] | map('center', 1000000000) | list }}",
    "indent": "{{ 'a\nb' | indent(1000000000) }}",
    "json indent": "{{ [1] | tojson(indent=1000000000) }}",
    "join method": "{{ ('a' * 1000000).join([''] * 100000) }}",
    "join filter": "{{ ([''] * 100000) | join('a' * 1000000) }}",
    "join a generator": "{{ ('a' * 1000000).join(range(10000) | map('string')) }}",
    "replace": "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
    "replace nothing": "{{ ('a' * 1000000) | replace('', 'b' * 1000000) }}",
    "doubling": "{% set n = namespace(s='aa') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "doubling lists": "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "nested sharing": "{% set n = namespace(s=[]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}",
    "shared views": "{% set n = namespace(s={}) %}{% for i in range(60) %}"
    "{% set n.s = {0: n.s.items(), 1: n.s.items()} %}{% endfor %}{{ n.s == n.s }}",
    "macro recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro tree": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "block recursion": "{% block a %}{{ self.a() }}{% endblock %}",
    "captured output": "{% set t = 'a' * 1000000 %}{% set x %}{% for i in range(999) %}{{ t }}{% endfor %}{% endset %}",
    "captured text": "{% set x %}{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endset %}",
    "captured macro": "{% macro m() %}" + "x" * 9999 + "{% endmacro %}"
    "{% set x %}{% for i in range(99999) %}{{ m() }}{% endfor %}{% endset %}",
    "output": "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
    "strip": "{{ ('b' * 4000000).strip('c' * 1001) }}",
    "split": "{{ ('a ' * 3000000).split() | length }}",
    "sort text": "{{ ('ab' * 3000000) | sort | length }}",
    "copies": "{% set s = 'a' * 8000000 %}" + "".join(f"{{% set x{i} = s[1:] %}}" for i in range(500)),
    "comparisons": "{% set s = 'a' * 8000000 %}{% set t = 'a' * 8000000 %}" + "{{ s == t }}" * 40000,
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "batch": "{{ [1] | batch(1000000000, 0) | list }}",
    "big integers": "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_stopped_soon_and_in_one_line(source):
    start = time.perf_counter()
    with pytest.raises(ModelLoadError) as error:
        render(source)
    assert time.perf_counter() - start < 15  # 2 s of rendering, on a machine that may be busy
    assert "\n" not in str(error.value)


def test_a_long_conversation_renders_within_the_limits():
    turns = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim }}{% endfor %}"
    conversation = [Message("user" if i % 2 == 0 else "assistant", "word " * 200) for i in range(1000)]
    assert len(template(turns).render(conversation)) > 1_000_000
