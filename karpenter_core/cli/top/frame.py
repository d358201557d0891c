"""Lays out a view as text: header, tables, and the frame of `--once`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, Final, final, overload

from karpenter_core.api.labels import PODS
from karpenter_core.cli.tables import counted
from karpenter_core.cli.top.text import (
    Line,
    TextSpan,
    Tone,
    age_text,
    amount_text,
    bar,
    clipped,
    month_text,
    percent,
    plain,
    price_text,
    share_tone,
    spaced,
    state_tone,
)
from karpenter_core.cli.top.view import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from karpenter_core.cli.top.view import (
        ClusterView,
        DecisionRow,
        NodeRow,
        PendingPod,
        ResourceUse,
    )

__all__ = [
    "LineTable", "decision_table", "frame_lines", "header_lines", "leaving_lines", "node_table",
    "pending_table", "pool_table",
]  # fmt: skip

_SHORT_CAPACITY: Final = {"on-demand": "od", "reserved": "resv"}
_LEAST_NAME: Final = 12
_FRAME_DECISIONS: Final = 10
_SHORT_NAME: Final = 24
_WIDE_BAR: Final = 10
_HEADER_BAR: Final = 24
_SHORT_TITLES: Final = {"memory": "MEM", "ephemeral-storage": "DISK"}


@dataclass(frozen=True, slots=True)
class LineTable:
    """A table as lines, one for each row."""

    heading: Line
    lines: Sequence[Line]


@final
class _LazyLines(Sequence["Line"]):
    """Lines that are laid out when they are read: of thousands a screen shows a few."""

    def __init__(self, length: int, make: Callable[[int], Line]) -> None:
        self._length: Final = length
        self._make: Final = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Line: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...

    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        numbers = range(self._length)[index]
        if isinstance(numbers, int):
            return self._make(numbers)
        return tuple(self._make(number) for number in numbers)


@dataclass(frozen=True, slots=True)
class _Style:
    """One way to fit a table of nodes into a width."""

    bar: int
    longest_name: int
    left_out: frozenset[str] = frozenset()
    is_short: bool = False


def _styles(longest_name: int) -> Iterator[_Style]:
    """Yield the styles, from the most to the least that is shown."""
    short = min(longest_name, _SHORT_NAME)
    least = min(longest_name, _LEAST_NAME)
    yield _Style(_WIDE_BAR, longest_name)
    yield _Style(_WIDE_BAR, short, is_short=True)
    yield _Style(6, short, is_short=True)
    left_out: list[str] = []
    for column in ("ZONE", "POOL", "AGE", "CAPACITY", "PODS"):
        left_out.append(column)
        yield _Style(6, short, frozenset(left_out), is_short=True)
        yield _Style(4, short, frozenset(left_out), is_short=True)
        yield _Style(4, least, frozenset(left_out), is_short=True)


def node_table(
    view: ClusterView, rows: Sequence[NodeRow], *, width: int | None, ascii_only: bool = False
) -> LineTable:
    """Return the table of nodes in the first style that fits; None is no limit of the width."""
    names = [row.name for row in rows]
    texts = _texts(rows, with_prices=view.has_prices)
    columns: list[_Column] = []
    for style in _styles(max(map(len, ("NODE", *names)))):
        shown_names = _without_domains(names) if style.is_short else names
        columns = _columns(view, style, names=shown_names, texts=texts)
        if width is None or sum(column.width + 1 for column in columns) - 1 <= width:
            return _filled(columns, rows, ascii_only=ascii_only)
    table = _filled(columns, rows, ascii_only=ascii_only)
    return LineTable(
        clipped(table.heading, width),
        _LazyLines(len(rows), lambda number: clipped(table.lines[number], width)),
    )


def _without_domains(names: Sequence[str]) -> Sequence[str]:
    """Return the names up to their first dot, if these differ, too."""
    heads = [name.partition(".")[0] for name in names]
    return heads if len(set(heads)) == len(set(names)) else names


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table of nodes: texts, or bars of a resource."""

    title: str
    width: int
    texts: Sequence[str] = ()
    resource: str = ""
    bar: int = 0


def _texts(rows: Sequence[NodeRow], *, with_prices: bool) -> dict[str, list[str]]:
    """Return the cells of the columns that every style shows alike, by title."""
    texts = {
        "POOL": [row.pool or "-" for row in rows],
        "TYPE": [row.instance_type or "-" for row in rows],
        "ZONE": [row.zone or "-" for row in rows],
        "CAPACITY": [row.capacity_type or "-" for row in rows],
        "AGE": [age_text(row.age_seconds) for row in rows],
        "STATE": [row.state.value for row in rows],
        "PODS": [_pods(row) for row in rows],
    }
    if with_prices:
        texts["PRICE"] = [price_text(row.price_per_hour) for row in rows]
    return texts


def _columns(
    view: ClusterView, style: _Style, *, names: Sequence[str], texts: Mapping[str, list[str]]
) -> list[_Column]:
    """Return the columns of a style; bars are drawn only when it has been chosen."""
    columns = [_column("NODE", [_shortened(name, style.longest_name) for name in names])]
    for title, cells in texts.items():
        if title == "PODS":
            columns += (
                _Column(_title(name), max(style.bar + 4, len(_title(name))), (), name, style.bar)
                for name in view.resources
                if name != PODS
            )
        if title in style.left_out or (title == "PODS" and view.awaited):
            continue
        if title == "CAPACITY" and style.is_short:
            columns.append(_column("CAP", [_SHORT_CAPACITY.get(cell, cell) for cell in cells]))
        else:
            columns.append(_column(title, cells))
    return columns


def _column(title: str, texts: Sequence[str]) -> _Column:
    return _Column(title, max(map(len, (title, *texts))), texts)


def _filled(columns: Sequence[_Column], rows: Sequence[NodeRow], *, ascii_only: bool) -> LineTable:
    """Return the table with these columns."""
    widths = [column.width for column in columns]
    right = [column.title in _NUMBERS for column in columns]
    heading = _joined([TextSpan(column.title, Tone.HEADING) for column in columns], widths, right)

    def line(number: int) -> Line:
        row = rows[number]
        cells = [_cell(column, row, number, ascii_only) for column in columns]
        return _joined(cells, widths, right)

    return LineTable(heading, _LazyLines(len(rows), line))


def _cell(column: _Column, row: NodeRow, number: int, ascii_only: bool) -> TextSpan:
    if column.resource:
        return _use_span(row.use_of(column.resource), column.bar, ascii_only)
    if column.title == "STATE":
        return TextSpan(row.state.value, state_tone(row.state))
    return TextSpan(column.texts[number])


_NUMBERS: Final = frozenset({"AGE", "PODS", "PRICE", "NODES"})
"""Columns aligned to the right."""


def _joined(cells: Sequence[TextSpan], widths: Sequence[int], right: Sequence[bool]) -> Line:
    """Return cells as one line, with one space between columns."""
    spans: list[TextSpan] = []
    for (text, tone), width, is_number in zip(cells, widths, right, strict=True):
        spans.append(TextSpan(text.rjust(width) if is_number else text.ljust(width), tone))
        spans.append(TextSpan(" "))
    return tuple(spans[:-1])


def _title(resource: str) -> str:
    return _SHORT_TITLES.get(resource, resource.rpartition("/")[2].upper())


def _pods(row: NodeRow) -> str:
    use = row.use_of(PODS)
    return f"{use.requested}/{use.allocatable}"


def _use_span(use: ResourceUse, width: int, ascii_only: bool) -> TextSpan:
    return TextSpan(
        f"{bar(use.share, width, ascii_only=ascii_only)}{percent(use.share)}", share_tone(use)
    )


def _shortened(name: str, longest: int) -> str:
    """Return a name with its middle left out: both ends tell nodes apart."""
    if len(name) <= longest:
        return name
    head = (longest - 1 + 1) // 2
    tail = longest - 1 - head
    return f"{name[:head]}…{name[len(name) - tail :]}"


# -- header ----------------------------------------------------------------------------------------


def header_lines(
    view: ClusterView, *, width: int | None, ascii_only: bool = False
) -> tuple[Line, ...]:
    """Return the totals: nodes and pods, use of each resource, prices."""
    totals = view.totals
    states = ", ".join(
        f"{totals.states[state.value]} {state.value}"
        for state in NodeState
        if totals.states.get(state.value)
    )
    nodes = f"{counted(totals.nodes, 'node')}{f' ({states})' if states else ''}"
    pods = (
        f"{counted(totals.pods, 'pod')}: {totals.running_pods} running, {totals.bound_pods} bound, "
        f"{totals.pending_pods} pending"
    )
    if view.awaited:
        pods = f"reads {view.awaited} …"
    wrapped = [nodes] if width is None else wrap(nodes, width, subsequent_indent="  ")
    lines: list[Line] = [
        *((TextSpan(part, Tone.HEADING),) for part in wrapped),
        (TextSpan(pods, Tone.FAIR if totals.pending_pods else Tone.PLAIN),),
    ]
    titles = max((len(name) for name in view.resources), default=0)
    for name in view.resources:
        use = totals.uses[name]
        amounts = f"{amount_text(name, use.requested)} of {amount_text(name, use.allocatable)}"
        bar_text = bar(use.share, _HEADER_BAR, ascii_only=ascii_only)
        lines.append((
            TextSpan(f"{name:<{titles}} "),
            TextSpan(f"{bar_text} {percent(use.share)}", share_tone(use)),
            TextSpan(f"  {amounts}"),
        ))  # fmt: skip
    if view.has_prices:
        unpriced = totals.unpriced_nodes
        text = spaced((
            f"{price_text(totals.price_per_hour)} {view.currency} per hour",
            f"{month_text(totals.price_per_month)} {view.currency} per month",
            f"without {counted(unpriced, 'node')} of unknown price" if unpriced else "",
        ))  # fmt: skip
        lines.append((TextSpan(text),))
    return tuple(clipped(line, width) for line in lines)


# -- other tables ----------------------------------------------------------------------------------


def pending_table(pods: Sequence[PendingPod], *, width: int | None) -> LineTable:
    """Return the table of pods without a node; the reason takes what the width leaves."""
    longest = max((len(pod.key) for pod in pods), default=0)
    if width is not None:
        longest = min(longest, max(width // 3, _LEAST_NAME))
    widths = [max(longest, len("POD")), max(len("unschedulable"), len("STATE")), 4]
    right = [False, False, True]
    heading = (*_joined([TextSpan(text, Tone.HEADING) for text in ("POD", "STATE", "AGE")], widths, right),
               TextSpan(" REASON", Tone.HEADING))  # fmt: skip
    lines = (
        (
            *_joined(
                [
                    TextSpan(_shortened(pod.key, widths[0])),
                    TextSpan(
                        pod.state.value, Tone.BAD if pod.state == "unschedulable" else Tone.FAIR
                    ),
                    TextSpan(age_text(pod.age_seconds)),
                ],
                widths,
                right,
            ),
            TextSpan(f" {pod.message}"),
        )
        for pod in pods
    )
    return LineTable(clipped(heading, width), tuple(clipped(line, width) for line in lines))


def pool_table(view: ClusterView, *, width: int | None) -> LineTable:
    """Return the table of NodePools: nodes, price, requested of allocatable, limits."""
    rows: list[list[str]] = []
    for pool in view.pools:
        limits = ", ".join(
            f"{name} {amount_text(name, amount)}" for name, amount in sorted(pool.limits.items())
        )
        uses = ", ".join(
            f"{name} {percent(pool.uses[name].share).strip()}" for name in view.resources
        )
        price = [price_text(pool.price_per_hour)] if view.has_prices else []
        rows.append([pool.name, str(pool.nodes), *price, uses, limits or "none"])
    titles = ["NODEPOOL", "NODES", *(["PRICE"] if view.has_prices else []), "USE", "LIMITS"]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    right = [title in _NUMBERS for title in titles]
    heading = _joined([TextSpan(title, Tone.HEADING) for title in titles], widths, right)
    lines = (_joined([TextSpan(cell) for cell in row], widths, right) for row in rows)
    return LineTable(clipped(heading, width), tuple(clipped(line, width) for line in lines))


def leaving_lines(rows: Sequence[NodeRow], *, width: int | None) -> tuple[Line, ...]:
    """Return a line for each node that is being disrupted or removed."""
    return tuple(
        clipped(
            (
                TextSpan(f"{row.name}: "),
                TextSpan(row.state.value, state_tone(row.state)),
                TextSpan(
                    f"{f', {row.reason}' if row.reason else ''}, "
                    f"{counted(_movable(row), 'pod')} to move"
                ),
            ),
            width,
        )
        for row in rows
        if row.state.is_leaving
    )


def decision_table(decisions: Sequence[DecisionRow], *, width: int | None) -> LineTable:
    """Return the table of the last decisions; the message takes what the width leaves."""
    longest = max((len(each.title) for each in decisions), default=0)
    if width is not None:
        longest = min(longest, max(width // 3, _LEAST_NAME))
    reason = max((len(each.reason) for each in decisions), default=0)
    widths = [4, max(longest, len("OBJECT")), max(reason, len("REASON"))]
    right = [True, False, False]
    headings = [TextSpan(text, Tone.HEADING) for text in ("AGE", "OBJECT", "REASON")]
    heading = (*_joined(headings, widths, right), TextSpan(" MESSAGE", Tone.HEADING))
    lines = (
        (
            *_joined(
                [
                    TextSpan(age_text(each.age_seconds)),
                    TextSpan(_shortened(each.title, widths[1])),
                    TextSpan(each.reason, Tone.BAD if each.is_warning else Tone.PLAIN),
                ],
                widths,
                right,
            ),
            TextSpan(f" {each.message}"),
        )
        for each in decisions
    )
    return LineTable(clipped(heading, width), tuple(clipped(line, width) for line in lines))


def _movable(row: NodeRow) -> int:
    return sum(pod.is_reschedulable for pod in row.pods)


# -- the whole frame -------------------------------------------------------------------------------


def frame_lines(
    view: ClusterView,
    rows: Sequence[NodeRow],
    *,
    width: int | None,
    ascii_only: bool = False,
) -> Iterator[str]:
    """Yield the frame of `--once`: totals, nodes, NodePools, disruption, pods without a node, decisions."""
    nodes = node_table(view, rows, width=width, ascii_only=ascii_only)
    parts: list[tuple[Line, ...]] = [header_lines(view, width=width, ascii_only=ascii_only)]
    if rows:
        parts.append((nodes.heading, *nodes.lines))
    if view.pools:
        pools = pool_table(view, width=width)
        parts.append((pools.heading, *pools.lines))
    leaving = leaving_lines(rows, width=width)
    if leaving:
        parts.append((clipped((TextSpan("Disruption in progress"),), width), *leaving))
    if view.pending:
        pending = pending_table(view.pending, width=width)
        parts.append((pending.heading, *pending.lines))
    if view.decisions:
        decisions = decision_table(view.decisions[:_FRAME_DECISIONS], width=width)
        parts.append((decisions.heading, *decisions.lines))
    separated = chain.from_iterable(((), *part) if part else () for part in parts)
    next(separated, None)
    yield from (plain(line) for line in separated)
