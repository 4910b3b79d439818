"""JSON as commands print it: readable in any language, and harmless on a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

# Controls that JSON allows bare in a string: DEL, C1, and those that change the direction of text.
_CONTROLS = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def json_text(value: Any) -> str:
    """`value` on one line; what drives a terminal is escaped, which changes nothing for a program that reads it."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
