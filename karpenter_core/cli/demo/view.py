"""How the demo looks: a live panel in a terminal, plain lines elsewhere, a table at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from karpenter_core.cli.demo.census import Census
    from karpenter_core.clock import Clock

__all__ = ["Act", "View", "choose_view", "summarise"]

_LINE_SECONDS: Final = 1.0
"""Plain lines come at most this often."""


@dataclass(slots=True, kw_only=True)
class Act:
    """One step of the demo, and how it went."""

    title: str
    replicas: int
    started: float
    seconds: float | None = None
    first_node_seconds: float | None = None
    nodes: int = 0
    price_per_hour: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether it ended as it should."""
        return self.seconds is not None


class View(Protocol):
    """What the story is told to."""

    def say(self, text: str) -> None:
        """Tell one thing that happened."""
        ...

    def show(self, act: Act, census: Census) -> None:
        """Show how things stand in an act; called at every change."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def choose_view(console: Console, clock: Clock, currency: str) -> View:
    """Return the view that suits where the output goes."""
    kind = _LiveView if console.is_terminal else _PlainView
    return kind(console, clock, currency)


class _PlainView:
    """Lines for logs and pipes."""

    def __init__(self, console: Console, clock: Clock, currency: str) -> None:
        self._console: Final = console
        self._clock: Final = clock
        self._currency: Final = currency
        self._last = ("", float("-inf"))

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def show(self, act: Act, census: Census) -> None:
        line = (
            f"  {census.running:>4}/{act.replicas} pods running   "
            f"{census.ready_nodes:>3}/{census.nodes} nodes ready   "
            f"{census.price_per_hour:8.2f} {self._currency}/h"
        )
        told, when = self._last
        now = self._clock.monotonic()
        if line == told or (now - when < _LINE_SECONDS and not act.succeeded):
            return
        self._last = (line, now)
        self._console.print(f"{now - act.started:5.1f} s{line}", highlight=False)

    def close(self) -> None:
        pass


class _LiveView:
    """A panel that is drawn anew while things happen."""

    def __init__(self, console: Console, clock: Clock, currency: str) -> None:
        from rich.live import Live

        self._console: Final = console
        self._clock: Final = clock
        self._currency: Final = currency
        self._live: Final = Live(console=console, refresh_per_second=8, transient=True)
        self._shown: tuple[Act, Census] | None = None
        self._live.start()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def show(self, act: Act, census: Census) -> None:
        self._live.update(self._panel(act, census))

    def close(self) -> None:
        self._live.stop()

    def _panel(self, act: Act, census: Census) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        most = max(act.replicas, census.pods, 1)
        panel = Table.grid(padding=(0, 2))
        panel.add_row("", f"[bold]{act.title}[/]  {self._clock.monotonic() - act.started:.0f} s")
        panel.add_row(
            "pods",
            ProgressBar(most, census.running, 40),
            f"{census.running}/{act.replicas} running",
        )
        panel.add_row(
            "nodes",
            ProgressBar(max(census.nodes, 1), census.ready_nodes, 40),
            f"{census.ready_nodes}/{census.nodes} ready",
        )
        panel.add_row(
            "price",
            f"[bold]{census.price_per_hour:.2f}[/] {self._currency} per hour",
            f"{census.spent:.4f} {self._currency} spent",
        )
        return panel


def summarise(console: Console, acts: Sequence[Act], census: Census, currency: str) -> None:
    """Print what happened, how long it took and what it would have cost."""
    from rich.table import Table

    table = Table(title="What happened", title_justify="left")
    for heading in ("step", "took", "first node", "nodes", f"{currency}/h"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for act in acts:
        table.add_row(
            act.title,
            _seconds(act.seconds, "not done"),
            _seconds(act.first_node_seconds, ""),
            str(act.nodes),
            f"{act.price_per_hour:.2f}",
        )
    console.print(table)
    machines = ", ".join(f"{count} x {name}" for name, count in sorted(census.node_types.items()))
    console.print(f"machines: {machines or 'none'}", highlight=False)
    console.print(f"cost of the whole demo: {census.spent:.4f} {currency}", highlight=False)


def _seconds(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.1f} s"
