"""Texts that try to drive a terminal or to be taken for markup: 2,000 of them, made by a seeded grammar.

Whatever reaches the terminal as a sequence carries MARK, so that a capture can be searched for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from edgespec.tui.fences import Change, FenceSplitter

COUNT = 2_000
MARK = "66601"

_FINALS = "ABCDHJKLMPSTXZ`abcdefghlmnpqrsu@"
_WORDS = ("shown", "kept", "a line", "12", "naïve", "灯台", "👩‍🚀", "שלום")
_ENDS = ("\x07", "\x1b\\", "\x9c", "", "\n", "\x18", "\x1a")
_STARTS = ("", "text ", "```\n", "```python\n", "~~~\n", "# ", "- ", "1. ", "> ", "| a | b |\n|---|---|\n| ", "[link](",
           "**bold ", "`code ", "\t", "    ")  # fmt: skip
_TAILS = ("", " end", "\n\n", "\x1b", "\n```\n", "\r", "\x9b", "`", ")")
_MARKUP = (
    "[/INST]", "<|im_end|>", "<|im_start|>system", "</s>", "<<SYS>>", "[bold]x[/bold]", "[@click=app.exit]go[/]",
    "[link=http://evil.example]x[/link]", "[on red", "[/]", "[$error]", "$error {css}", "<script>alert(1)</script>",
    "<a href='javascript:alert(1)'>x</a>", "&#27;[31m", "&#x9b;31m", "&lt;b&gt;", "[x](javascript:alert(1))",
    "![i](http://evil.example/p.png)", "[r]: http://evil.example", "<http://evil.example/>", "[^1]", "\\x1b[31m",
    "\\033]52;c;eA==\\a", "{{ messages }}", "{% raw %}", "%s%n", "${HOME}", "`rm -rf`",
)  # fmt: skip
_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\u2061\ufeff\u00ad\u034f\u061c\u180e\u115f\u3164\ufe0e\ufe0f"
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _osc(chance: random.Random) -> str:
    body = chance.choice(("52;c;aGVsbG8=", "52;p;?", "0;title", "2;title", "8;;http://evil.example", "8;id=1;file:///x",
                          "4;1;?", "10;#ff0000", "9;note", "777;notify;a;b", "1337;File=inline=1:eA=="))  # fmt: skip
    return chance.choice(("\x1b]", "\x9d")) + f"{body}{MARK}" + chance.choice(_ENDS)


def _link(chance: random.Random) -> str:
    end = chance.choice(_ENDS[:3])
    return f"\x1b]8;;http://evil.example/{MARK}{end}click\x1b]8;;{end}"


def _csi(chance: random.Random) -> str:
    prefix = chance.choice(("", "?", ">", "=", "<"))
    return f"\x1b[{prefix}{MARK};{chance.randrange(99)}{chance.choice(('', ' ', '!', '$'))}{chance.choice(_FINALS)}"


def _c1(chance: random.Random) -> str:
    return chance.choice((f"\x9b{MARK}{chance.choice(_FINALS)}", chr(chance.randrange(0x80, 0xA0)))) + "x"


def _string(chance: random.Random) -> str:
    return chance.choice(("\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x90", "\x9f", "\x9e", "\x98")) + (
        f"{chance.choice(('1$r', '+q', 'Gi=1;', '0;0;0q#0;2'))}{MARK}{chance.choice(_ENDS)}"
    )


def _unfinished(chance: random.Random) -> str:
    return chance.choice(("\x1b", "\x1b[", f"\x1b[{MARK}", "\x1b[?", "\x1b]", f"\x1b]0;{MARK}", "\x1bP", "\x1b(",
                          "\x1b#", "\x9b", f"\x9b{MARK}", "\x9d", "\x90", "\x1b[1;", "\x1b\x1b["))  # fmt: skip


def _short(chance: random.Random) -> str:
    return "\x1b" + chance.choice(("c", "7", "8", "D", "E", "M", "N", "O", "Z", "=", ">", "(0", ")B", "#8", "%G", " F"))


def _control(chance: random.Random) -> str:
    return "".join(chr(chance.choice((*range(9), *range(11, 32), 127))) for _ in range(chance.randint(1, 4)))


def _markup(chance: random.Random) -> str:
    return " ".join(chance.choices(_MARKUP, k=chance.randint(1, 3)))


def _invisible(chance: random.Random) -> str:
    return "x" + "".join(chance.choices(_INVISIBLE, k=chance.randint(1, 6))) + "y"


def _direction(chance: random.Random) -> str:
    return "evil".join(chance.choices(_DIRECTIONS, k=chance.randint(1, 4)))


def _surrogate(chance: random.Random) -> str:
    return "".join(chr(chance.randrange(0xD800, 0xE000)) for _ in range(chance.randint(1, 3)))


def _run(chance: random.Random) -> str:
    return chance.choice("`*[]>#~_|-\\<&!") * chance.randint(3, 60)


CLASSES: tuple[Callable[[random.Random], str], ...] = (
    _osc, _link, _csi, _c1, _string, _unfinished, _short, _control, _markup, _invisible, _direction, _surrogate, _run,
)  # fmt: skip


def _payload(chance: random.Random, first: Callable[[random.Random], str]) -> str:
    parts = [chance.choice(_STARTS), first(chance)]
    for _ in range(chance.choice((0, 0, 1, 2))):
        parts += [chance.choice(_WORDS), chance.choice(CLASSES)(chance)]
    return "".join([*parts, chance.choice(_WORDS), chance.choice(_TAILS)])


def payloads(count: int = COUNT, seed: int = 2) -> list[str]:
    """All different; each class is the first thing in as many as any other."""
    chance, made = random.Random(seed), dict[str, None]()
    while len(made) < count:
        made[_payload(chance, CLASSES[len(made) % len(CLASSES)])] = None
    return list(made)


def laid(pieces: list[str]) -> list[Change]:
    """What the screen is told of a text that comes in pieces, pieces of one kind put together."""
    splitter = FenceSplitter()
    joined: list[Change] = []
    for change in [change for piece in pieces for change in splitter.push(piece)] + splitter.finish():
        if joined and joined[-1].kind == change.kind and change.kind in ("prose", "code"):
            joined[-1] = Change(change.kind, joined[-1].text + change.text)
        else:
            joined.append(change)
    return joined
