"""Growing Markdown is cut the same way however it comes."""

from __future__ import annotations

import random

from edgespec.tui.attachments import Attachment, with_attachments
from edgespec.tui.completion import completed
from edgespec.tui.fences import SEGMENT_LINES, Change, FenceSplitter

TEXT = """Intro `code` line
```python
def f():
    return "```"
```
middle
~~~~ text info
~~~
inside
~~~~

  ```js
  let x
  ```
   ``not a fence``
- item
    ```
    part of the item
    ```
````
never closed
```
"""


def split(pieces: list[str]) -> list[Change]:
    splitter = FenceSplitter()
    changes = [change for piece in pieces for change in splitter.push(piece)]
    changes += splitter.finish()
    joined: list[Change] = []
    for change in changes:
        if joined and change.kind == joined[-1].kind and change.kind in ("prose", "code"):
            joined[-1] = Change(change.kind, joined[-1].text + change.text)
        else:
            joined.append(change)
    return joined


def test_fences_are_found() -> None:
    assert [(c.kind, c.text) for c in split([TEXT])] == [
        ("prose", "Intro `code` line\n"),
        ("open", "python"),
        ("code", 'def f():\n    return "```"\n'),
        ("close", ""),
        ("prose", "middle\n"),
        ("open", "text"),
        ("code", "~~~\ninside\n"),
        ("close", ""),
        ("prose", "\n"),
        ("open", "js"),
        ("code", "let x\n"),
        ("close", ""),
        ("prose", "   ``not a fence``\n- item\n    ```\n    part of the item\n    ```\n"),
        ("open", ""),
        ("code", "never closed\n```\n"),
        ("close", ""),
    ]


def test_the_cut_into_pieces_does_not_matter() -> None:
    chance = random.Random(7)
    whole = split([TEXT])
    assert split(list(TEXT)) == whole
    for _ in range(200):
        cuts = sorted(chance.sample(range(len(TEXT)), 6))
        assert split([TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]) == whole


def test_long_prose_is_cut_between_paragraphs_only() -> None:
    paragraph = "a line\n" * 5 + "\n"
    listed = "- item\n\n" * SEGMENT_LINES
    kinds = [change.kind for change in split([paragraph * 20 + listed + "end\n"])]
    assert kinds.count("cut") == 3
    assert "".join(c.text for c in split([paragraph * 20 + listed]) if c.kind == "prose") == paragraph * 20 + listed


def test_a_file_with_backticks_stays_in_its_fence() -> None:
    text = with_attachments("why?", (Attachment("a.md", "```\ncode\n```"),))
    assert text == "a.md:\n````\n```\ncode\n```\n````\n\nwhy?"
    assert with_attachments(" ", (Attachment("a", "x"),)) == "a:\n```\nx\n```"


def test_commands_are_completed_as_far_as_there_is_no_choice() -> None:
    assert completed("/reg") == "/regenerate "
    assert completed("/dra") == "/draft"
    assert completed("/sys") == "/system "
    assert completed("/nonesuch") == "/nonesuch"
    assert completed("//new") == "//new"
