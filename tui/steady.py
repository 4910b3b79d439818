"""What changes often: the screen is laid out again only where a text needs another number of lines, and then once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.visual import VisualType
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    _Base = object


class LaidOutOnce(_Base):
    """A widget, for the front of its bases, that asks for no second layout.

    Textual lays the whole screen out again after every layout in which the extent of a widget has changed, in case
    scrollbars have come or gone. In a growing answer that is every layout, and nothing in it has scrollbars but the
    transcript, which keeps their place.
    """

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class SteadyStatic(LaidOutOnce, Static):
    """A Static as wide as its container. A layout of the whole screen costs several times what one part of it does."""

    room = 1  # lines are taken so many at a time; more than one leaves some empty below the text

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        """Show `content`."""
        super().update(content, layout=False)
        if layout and not self._fits():
            self.refresh(layout=True)

    def settle(self) -> None:
        """The text is whole: no empty lines below it."""
        if self.room > 1:
            self.room = 1
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._roomy(super().get_content_height(container, viewport, width))

    def _roomy(self, lines: int) -> int:
        return -(-lines // self.room) * self.room

    def _fits(self) -> bool:
        """Whether the text takes as many lines as it has."""
        size = self.content_size
        if not (size.width and size.height):
            return False
        return self.get_content_height(self.container_size, self.app.size, size.width) == size.height
