"""A growing answer has the whole screen laid out again only where it needs another line."""

from __future__ import annotations

from pathlib import Path

import pytest
from chats import Chat, chatting, run

from edgespec.tui.code_block import CodeBlock
from edgespec.tui.message_view import MessageView
from edgespec.tui.steady import SteadyStatic


async def _drawn(chat: Chat) -> None:
    for _ in range(4):
        await chat.pilot.pause()


async def _written(chat: Chat, begin: str) -> tuple[MessageView, list[object]]:
    """An answer that begins so, and what each later layout of the screen is added to."""
    view, layouts = MessageView("assistant"), []
    await chat.screen.transcript.add(view)
    await view.write(begin, ())
    await _drawn(chat)
    chat.screen.screen_layout_refresh_signal.subscribe(chat.screen, layouts.append, immediate=True)
    return view, layouts


@pytest.mark.parametrize("begin", ["```python\nx = 1\nfor", "A paragraph that"], ids=["code", "prose"])
def test_words_on_a_line_do_not_lay_out_the_screen(history: Path, begin: str) -> None:
    async def test() -> None:
        async with chatting(history) as chat:
            view, layouts = await _written(chat, begin)
            for _ in range(8):
                await view.write(" on", ())
                await _drawn(chat)
            assert f"{begin.split()[-1]} on on on on on on on on" in chat.shown
            assert not layouts
            await view.write("\n\n" * 6 + "end", ())
            await chat.until(lambda: layouts and "end" in chat.shown)

    run(test())


def test_code_takes_four_lines_at_a_time_and_none_too_many_in_the_end(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(99, 60)) as chat:
            view, _ = await _written(chat, "```python\none\n")
            code = view.query_one(CodeBlock)

            def heights() -> list[int]:
                return [part.size.height for part in code.query(SteadyStatic)]

            await chat.until(lambda: heights() == [4])
            await view.write("two\nthree\nfour\nfive\n", ())
            await chat.until(lambda: heights() == [8])
            await view.write("word " * 30 + "\n" + "more\n" * 22, ())
            await chat.until(lambda: heights() == [25, 4])  # the first part has a line that is too long for one
            await view.write("```\n", ())
            await view.finish()
            await chat.until(lambda: code.query_one(".code").size.height == 29)

    run(test())


def test_a_growing_answer_is_laid_out_once_for_the_lines_that_come(history: Path) -> None:
    async def test() -> None:
        async with chatting(history, size=(60, 20)) as chat:
            view, layouts = await _written(chat, "A paragraph that goes on")
            await view.write(" and on" * 200, ())
            await chat.until(lambda: chat.screen.transcript.max_scroll_y > 5)  # its scrollbar has come
            await _drawn(chat)
            for number in range(8):
                before = len(layouts)
                await view.write(" and on" * 20 + f" number {number}", ())
                await chat.until(lambda end=f"number {number}": end in chat.shown)
                await _drawn(chat)
                assert len(layouts) == before + 1, number
            transcript = chat.screen.transcript
            assert transcript.scroll_y == transcript.max_scroll_y > 20

    run(test())
