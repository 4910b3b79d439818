"""A made reply: words in, token and round events out, as a generation reports them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from edgespec.stats import DraftedToken, RoundEvent, TokenEvent

TEXT = """A lighthouse keeper once kept two cats, one for each staircase. 灯台守は猫を二匹飼っていた。 They \
met at noon 🐈‍⬛🐈 and talked about the tide.

```python
def tide(hour: int) -> float:
\treturn 2.5 + 1.5 * sin(hour / 12 * tau)
```
Then came the storm, שלום said the sailor, and \
antidisestablishmentarianism-of-the-seven-seas-and-all-their-shores went on.
"""
SOURCES = ("model", "lookup", "suffix")


def pieces(text: str) -> list[str]:
    """Texts of tokens: words with the blank before them, wide characters one by one."""
    found: list[str] = []
    for char in text:
        wide = ord(char) > 0x2E80
        if found and not wide and char not in " \n" and ord(found[-1][-1]) <= 0x2E80 and found[-1] != "\n":
            found[-1] += char
        else:
            found.append(char)
    return found


def made_reply(text: str = TEXT, seed: int = 1, plain_every: int = 4) -> Iterator[TokenEvent | RoundEvent]:
    """Rounds of up to four guesses, some of them refused; each `plain_every`-th round has none."""
    rng = random.Random(seed)
    words = pieces(text)
    yield TokenEvent(words[0], 0, "target", -0.5, 0)
    at, number = 1, 0
    while at < len(words):
        number += 1
        k = 0 if number % plain_every == 0 else rng.randint(1, 4)
        accepted = min(rng.randint(0, k), len(words) - at - 1)
        source = rng.choice(SOURCES) if k else "target"
        drafted, emitted = [], []
        for i in range(k):
            right = i < accepted
            p = rng.random() if i <= accepted else None
            drafted.append(DraftedToken(i, words[at + i] if right else rng.choice(words), rng.random(), p, right))
        for i, word in enumerate(words[at : at + accepted + 1]):
            last = "bonus" if k and accepted == k else "target"
            yield TokenEvent(word, at + i, source if i < accepted else last, -rng.random() * 2, number)
            emitted.append(at + i)
        at += accepted + 1
        yield RoundEvent(
            number, source, k, tuple(drafted), accepted, accepted + 1, tuple(emitted), 2.0 * k, 20.0 + k, 0.4
        )
