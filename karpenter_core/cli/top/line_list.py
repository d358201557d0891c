"""Shows lines and a cursor; draws only visible lines, for speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from karpenter_core.cli.top.text import Tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.cli.top.text import Line

__all__ = ["STYLES", "LineList"]

STYLES: Final = {
    Tone.PLAIN: Style(),
    Tone.HEADING: Style(bold=True),
    Tone.DIM: Style(dim=True),
    Tone.GOOD: Style(color="green"),
    Tone.FAIR: Style(color="yellow"),
    Tone.BAD: Style(color="red"),
}
_CURSOR: Final = Style(reverse=True)


@final
class LineList(ScrollView, can_focus=True):
    """Lines with keys; the cursor stays on the line with the same key when lines change."""

    DEFAULT_CSS = "LineList { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,left", "page(-1)", "Page up", show=False),
        Binding("pagedown,right", "page(1)", "Page down", show=False),
        Binding("home", "edge(False)", "First", show=False),
        Binding("end", "edge(True)", "Last", show=False),
        Binding("enter", "choose", "Details", show=False),
    ]

    class Chosen(Message):
        """Enter was pressed on a line."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key: Final = key

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[Line] = ()
        self._keys: Sequence[str] = ()
        self._cursor = 0

    def show(self, lines: Sequence[Line], keys: Sequence[str]) -> None:
        """Show these lines; `keys` are their keys."""
        current = self._keys[self._cursor] if self._cursor < len(self._keys) else ""
        self._lines, self._keys = lines, keys
        if current in keys:
            self._cursor = keys.index(current)
        self._cursor = max(min(self._cursor, len(lines) - 1), 0)
        self.virtual_size = Size(0, len(lines))
        self._follow()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        number = y + round(self.scroll_offset.y)
        width = self.size.width
        if number >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        base = self.rich_style
        if number == self._cursor and self.has_focus:
            base += _CURSOR
        segments = [Segment(span.text, base + STYLES[span.tone]) for span in self._lines[number]]
        return Strip(segments).adjust_cell_length(width, base)

    def action_move(self, lines: int) -> None:
        """Move the cursor by lines."""
        self._go(self._cursor + lines)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self._go(self._cursor + pages * max(self.size.height - 1, 1))

    def action_edge(self, last: bool) -> None:
        """Move the cursor to the first or the last line."""
        self._go(len(self._lines) - 1 if last else 0)

    def action_choose(self) -> None:
        """Report the line of the cursor."""
        if self._cursor < len(self._keys):
            self.post_message(self.Chosen(self._keys[self._cursor]))

    def on_focus(self) -> None:
        """Draw the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.refresh()

    def _go(self, number: int) -> None:
        self._cursor = max(min(number, len(self._lines) - 1), 0)
        self._follow()
        self.refresh()

    def _follow(self) -> None:
        """Scroll as far as needed to see the cursor."""
        height = max(self.size.height, 1)
        top = round(self.scroll_offset.y)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False, force=True)
