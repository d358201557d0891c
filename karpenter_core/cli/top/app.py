"""The live view of `karpenter top`, drawn by textual."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from karpenter_core.cli.tables import counted
from karpenter_core.cli.top.feed import ViewFeed
from karpenter_core.cli.top.frame import (
    decision_table,
    header_lines,
    leaving_lines,
    node_table,
    pending_table,
    pool_table,
)
from karpenter_core.cli.top.line_list import STYLES, LineList
from karpenter_core.cli.top.order import filter_nodes, filter_pending, sort_nodes
from karpenter_core.cli.top.pages import decision_lines, node_lines, note_lines, pod_lines
from karpenter_core.cli.top.text import Line, TextSpan, Tone, age_text, clipped
from karpenter_core.cli.top.view import FeedStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events

    from karpenter_core.cli.cluster_source import ClusterSource
    from karpenter_core.cli.top.order import Sorting
    from karpenter_core.cli.top.view import ClusterView, DecisionRow, NodeRow, ViewOptions
    from karpenter_core.errors import KarpenterError

__all__ = ["TopApp", "ViewSource", "run_app"]

_HELP: Final = """\
Keys of karpenter top

  up, down, k, j        move the cursor
  left, right, page     move by a page
  home, end             first line, last line
  enter                 all fields of the line; of a node, its pods too
  /                     filter; words such as pool:web or state:notready
                        name a field, other words match any field
  escape                end the filter, or go back to the nodes
  s                     sort by the next column
  S                     sort in the other direction
  p                     pods without a node, with reasons
  o                     NodePools, with limits
  d                     disruption in progress
  e                     last decisions, from the Events of the controller
  n                     notes: objects left out, and assumptions
  r                     read the cluster now
  ?                     these keys
  q                     end

Bars compare the requests of pods with the allocatable amounts of nodes.
A bar is green above 90 %, yellow above 60 %, otherwise red.
"""


class _Pane(StrEnum):
    """Tables of which one is shown."""

    NODES = "nodes"
    PODS = "pods without a node"
    POOLS = "NodePools"
    LEAVING = "disruption in progress"
    DECISIONS = "last decisions"
    NOTES = "notes"


class ViewSource(Protocol):
    """Source of views."""

    def start(self) -> None:
        """Begin to publish views."""
        ...

    def refresh(self) -> None:
        """Publish a new view now."""
        ...

    def stop(self) -> None:
        """Publish no more."""
        ...


@final
class _Page(ModalScreen[None]):
    """Lines over the whole screen, until a key ends it."""

    DEFAULT_CSS = "_Page { background: $background; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "Back"),
    ]

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self._lines: Final = lines

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield LineList()
        yield Static("escape back", id="status")

    def on_mount(self) -> None:
        """Show the lines."""
        lines = self.query_one(LineList)
        lines.show(self._lines, [str(number) for number in range(len(self._lines))])
        lines.focus()


@final
class TopApp(App[None]):
    """Shows views as they come; keys select, sort and filter what is shown."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #header { height: auto; }
    #heading { height: 1; }
    #status { height: 1; dock: bottom; color: $text-muted; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("question_mark", "keys", "Keys"),
        Binding("slash", "filter", "Filter"),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse"),
        Binding("r", "read", "Read"),
        Binding("p", "pane('PODS')", "Pods"),
        Binding("o", "pane('POOLS')", "NodePools"),
        Binding("d", "pane('LEAVING')", "Disruption"),
        Binding("e", "pane('DECISIONS')", "Decisions"),
        Binding("n", "pane('NOTES')", "Notes"),
        Binding("escape", "leave", "Back"),
    ]

    def __init__(
        self,
        make_feed: Callable[[TopApp], ViewSource],
        *,
        sorting: Sorting,
        filter_text: str = "",
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self._feed: Final = make_feed(self)
        self._sorting = sorting
        self._filter = filter_text
        self._ascii_only: Final = ascii_only
        self._pane = _Pane.NODES
        self._view: ClusterView | None = None
        self._rows: dict[str, NodeRow] = {}
        self._read_at = 0.0
        self._problem = ""
        self._status = FeedStatus()
        self.failure: KarpenterError | None = None
        """Error because of which there never was a view."""

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Static("reads the cluster …", id="header")
        yield Static("", id="heading")
        yield LineList()
        yield Input(self._filter, id="filter", compact=True, select_on_focus=False)
        yield Static("", id="status")

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(LineList).focus()
        self._feed.start()
        self.set_interval(1.0, self._draw_status)

    def on_unmount(self) -> None:
        """End the feed."""
        self._feed.stop()

    def on_resize(self, _: events.Resize) -> None:
        """Lay out anew for the new width."""
        self._draw()

    # -- what the feed calls, in its thread --------------------------------------------------------

    def publish(self, view: ClusterView) -> None:
        """Show a view."""
        self._call(self._take, view)

    def fail(self, error: KarpenterError) -> None:
        """Show an error; before the first view it ends the program."""
        self._call(self._take_error, error)

    def report(self, status: FeedStatus) -> None:
        """Show how current the view is."""
        self._call(self._take_status, status)

    def _call(self, function: Callable[..., None], argument: object) -> None:
        if self.is_running:
            self.call_later(function, argument)

    def _take(self, view: ClusterView) -> None:
        self._view, self._problem, self._read_at = view, "", time.monotonic()
        self._draw()

    def _take_status(self, status: FeedStatus) -> None:
        if status == self._status:
            return
        self._status = status
        if self._view is None and status.progress:
            self.screen_stack[0].query_one("#header", Static).update(
                _text(*((TextSpan(line),) for line in status.progress.splitlines()))
            )
        self._draw_status()

    def _take_error(self, error: KarpenterError) -> None:
        if self._view is None:
            self.failure = error
            self.exit()
            return
        self._problem = str(error)
        self._draw_status()

    # -- keys --------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sorting = self._sorting.next()
        self._draw()

    def action_reverse(self) -> None:
        """Sort in the other direction."""
        self._sorting = self._sorting.reversed()
        self._draw()

    def action_read(self) -> None:
        """Read the cluster now."""
        self._feed.refresh()

    def action_pane(self, name: str) -> None:
        """Show a table, or the nodes if it is shown already."""
        pane = _Pane[name]
        self._pane = _Pane.NODES if self._pane is pane else pane
        self._draw()

    def action_filter(self) -> None:
        """Ask for a filter."""
        entry = self.query_one(Input)
        entry.display = True
        entry.focus()

    def action_leave(self) -> None:
        """End the filter, or else go back to the nodes."""
        if self._filter or self.query_one(Input).display:
            self.query_one(Input).value = ""
            self._close_filter()
        else:
            self._pane = _Pane.NODES
            self._draw()

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(_Page(tuple((TextSpan(line),) for line in _HELP.splitlines())))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the text is written."""
        self._filter = event.value
        self._draw()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Keep the filter."""
        self._close_filter()

    def on_line_list_chosen(self, event: LineList.Chosen) -> None:
        """Show everything about a line."""
        lines = self._details(event.key)
        if lines:
            self.push_screen(_Page(lines))

    def _details(self, key: str) -> Sequence[Line]:
        view, width = self._view, self.size.width - 1
        if view is None:
            return ()
        if self._pane is _Pane.PODS:
            return next((pod_lines(pod, width=width) for pod in view.pending if pod.key == key), ())
        if self._pane is _Pane.DECISIONS:
            found = (each for each in view.decisions if _decision_key(each) == key)
            return next((decision_lines(each, width=width) for each in found), ())
        row = self._rows.get(key)
        return () if row is None else node_lines(row, view, width=width)

    def _close_filter(self) -> None:
        self.query_one(Input).display = False
        self.query_one(LineList).focus()
        self._draw()

    # -- drawing -----------------------------------------------------------------------------------

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        width = max(self.screen_stack[0].size.width - 1, 1)  # one column is the scroll bar's
        rows = sort_nodes(filter_nodes(view.nodes, self._filter), self._sorting)
        self._rows = {row.name: row for row in rows}
        pending = filter_pending(view.pending, self._filter)
        heading: Line = ()
        keys: list[str] = []
        match self._pane:
            case _Pane.NODES:
                table = node_table(view, rows, width=width, ascii_only=self._ascii_only)
                heading, lines, keys = table.heading, table.lines, list(self._rows)
            case _Pane.PODS:
                table = pending_table(pending, width=width)
                heading, lines, keys = table.heading, table.lines, [pod.key for pod in pending]
            case _Pane.POOLS:
                table = pool_table(view, width=width)
                heading, lines = table.heading, table.lines
                keys = [f"NodePool {pool.name}" for pool in view.pools]
            case _Pane.LEAVING:
                heading = (TextSpan("NODE AND STATE", Tone.HEADING),)
                lines = leaving_lines(rows, width=width)
                keys = [row.name for row in rows if row.state.is_leaving]
            case _Pane.DECISIONS:
                table = decision_table(view.decisions, width=width)
                heading, lines = table.heading, table.lines
                keys = [_decision_key(each) for each in view.decisions]
            case _Pane.NOTES:
                lines = note_lines(view.notes, width=width)
                keys = [str(number) for number in range(len(lines))]
        if not lines:
            lines = ((TextSpan(f"no {self._pane}", Tone.DIM),),)
        header = header_lines(view, width=width, ascii_only=self._ascii_only)
        base = self.screen_stack[0]
        base.query_one("#header", Static).update(_text(*header))
        base.query_one("#heading", Static).update(_text(heading))
        base.query_one(LineList).show(lines, keys)
        self._draw_status()

    def _draw_status(self) -> None:
        view = self._view
        if view is None:
            return
        width = self.screen_stack[0].size.width
        age = age_text(time.monotonic() - self._read_at)
        shown = f"{self._pane}" + (f", filter “{self._filter}”" if self._filter else "")
        said = f"? keys  {shown}"
        if self._pane in {_Pane.NODES, _Pane.LEAVING}:
            said += f"  by {self._sorting}"
        if view.notes and self._pane is not _Pane.NOTES:
            said += f"  {counted(len(view.notes), 'note')} (n)"
        status = self._status
        is_live = status.is_live and not status.lost
        spans = (TextSpan(f"{said}  live" if is_live else f"{said}  read {age} ago"),)
        if status.lost:
            since = age_text(time.monotonic() - status.lost_at)
            spans = (TextSpan(f"stale since {since}: {status.lost}", Tone.BAD),)
        if self._problem:
            spans = (
                TextSpan(f"not read: {self._problem}", Tone.BAD),
                TextSpan(f"  last read {age} ago"),
            )
        self.screen_stack[0].query_one("#status", Static).update(_text(clipped(spans, width)))


def _decision_key(decision: DecisionRow) -> str:
    return f"{decision.reason} {decision.title} {decision.message}"


def _text(*lines: Line) -> Text:
    """Return lines as text of rich, without markup."""
    text = Text(no_wrap=True, end="")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, STYLES[span.tone])
    return text


def run_app(
    source: ClusterSource,
    options: ViewOptions,
    *,
    sorting: Sorting,
    filter_text: str,
    refresh_seconds: float | None,
    ascii_only: bool,
) -> None:
    """Show the live view until the user ends it.

    Raises:
        KarpenterError: there never was anything to show.
    """

    def make_feed(app: TopApp) -> ViewFeed:
        return ViewFeed(
            source,
            options,
            refresh_seconds=refresh_seconds,
            publish=app.publish,
            report=app.report,
            fail=app.fail,
        )

    app = TopApp(make_feed, sorting=sorting, filter_text=filter_text, ascii_only=ascii_only)
    app.run()
    if app.failure is not None:
        raise app.failure
