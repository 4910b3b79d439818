"""`edgespec chat --serve` in a real browser: type, stream, stop, reload.

Needs a Chromium (EDGESPEC_TEST_BROWSER names one that is in no usual place); it is far too large for a dependency.
EDGESPEC_TEST_PICTURES: a folder for pictures of the page.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from chat_site import Served, serving
from chromium import Tab, browsing, found
from edgespec_command import Cli

BROWSER = found()
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium is installed; EDGESPEC_TEST_BROWSER can name one that lies elsewhere"
)


def test_type_stream_stop_reload_in_a_browser(cli: Cli, tmp_path: Path) -> None:
    env: Mapping[str, str] = {**cli.env, "EDGESPEC_HOME": str(tmp_path / "home")}
    with serving(env, "-m", "scripted:count?decodes_per_s=40") as served:
        asyncio.run(walk(served, tmp_path))


async def walk(served: Served, folder: Path) -> None:
    assert BROWSER is not None
    async with browsing(BROWSER, folder / "profile") as tab:
        await tab.go(served.address)
        await tab.shows(lambda text: "Write a message" in text)
        await picture(tab, "begin")

        await tab.type("Please count.")  # without a click before: the page has the focus
        await tab.shows(lambda text: "Please count." in text)
        await tab.press("Enter")

        first = await tab.shows(lambda text: "Esc stops" in text and numbers(text) >= 5)
        await picture(tab, "stream")
        await tab.shows(lambda text: "Esc stops" in text and numbers(text) > numbers(first))  # grows as it is written

        await tab.press("Escape")
        await tab.shows(lambda text: "stopped" in text and "Esc stops" not in text)
        await picture(tab, "stop")
        (conversation,) = served.saved()
        assert conversation[0].text == "Please count."
        assert conversation[1].finish_reason == "cancelled"

        await tab.reload()
        await tab.shows(lambda text: "Please count." in text and numbers(text) >= 5 and "stopped" in text)
        await picture(tab, "reload")
        assert served.saved() == [conversation]
        assert len(served.processes()["engine"]) == 1

        await tab.type("/quit")
        await tab.press("Enter")
        await ended(tab)
        await picture(tab, "end")

        # All that it shows comes from this server, and nothing was refused or failed on the way.
        assert len(tab.fetched) > 10
        assert not [address for address in tab.fetched if not ours(address, served)]
        assert not tab.complaints


def numbers(text: str) -> int:
    """How far the answer has counted."""
    found = 0
    while re.search(rf"(?<!\d){found + 1}(?!\d)", text):
        found += 1
    return found


def ours(address: str, served: Served) -> bool:
    return address.startswith((f"{served.base}/", served.base.replace("http:", "ws:") + "/", "data:"))


async def ended(tab: Tab) -> None:
    while not await tab.evaluate("getComputedStyle(document.querySelector('#ended')).display === 'block'"):
        await asyncio.sleep(0.05)


async def picture(tab: Tab, name: str) -> None:
    if folder := os.environ.get("EDGESPEC_TEST_PICTURES"):
        await tab.picture(Path(folder) / f"{name}.png")
