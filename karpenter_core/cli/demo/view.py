"""Shows the demo: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from karpenter_core.cli.demo.cluster_statistics import ClusterStatistics
    from karpenter_core.clock import Clock

__all__ = ["DemoView", "StepReport", "choose_view", "summarise"]

_LINE_SECONDS: Final = 1.0
"""Minimum time between plain lines."""


@dataclass(slots=True, kw_only=True)
class StepReport:
    """One step of the demo, and its result."""

    title: str
    replicas: int
    started: float
    seconds: float | None = None
    first_node_seconds: float | None = None
    nodes: int = 0
    price_per_hour: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Return whether it succeeded."""
        return self.seconds is not None


class DemoView(Protocol):
    """Output of the demo."""

    def say(self, text: str) -> None:
        """Print one line."""
        ...

    def show(self, step_report: StepReport, cluster_statistics: ClusterStatistics) -> None:
        """Show the current numbers of a step; called at every change."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


def choose_view(console: Console, clock: Clock, currency: str) -> DemoView:
    """Return the view for the kind of output."""
    kind = _LiveView if console.is_terminal else _PlainView
    return kind(console, clock, currency)


class _PlainView:
    """Prints plain lines for logs and pipes."""

    def __init__(self, console: Console, clock: Clock, currency: str) -> None:
        self._console: Final = console
        self._clock: Final = clock
        self._currency: Final = currency
        self._last = ("", float("-inf"))

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def show(self, step_report: StepReport, cluster_statistics: ClusterStatistics) -> None:
        line = (
            f"  {cluster_statistics.running:>4}/{step_report.replicas} pods running   "
            f"{cluster_statistics.ready_nodes:>3}/{cluster_statistics.nodes} nodes ready   "
            f"{cluster_statistics.price_per_hour:8.2f} {self._currency}/h"
        )
        last_line, when = self._last
        now = self._clock.monotonic()
        if line == last_line or (now - when < _LINE_SECONDS and not step_report.succeeded):
            return
        self._last = (line, now)
        self._console.print(f"{now - step_report.started:5.1f} s{line}", highlight=False)

    def close(self) -> None:
        pass


class _LiveView:
    """Draws a live panel."""

    def __init__(self, console: Console, clock: Clock, currency: str) -> None:
        from rich.live import Live

        self._console: Final = console
        self._clock: Final = clock
        self._currency: Final = currency
        self._live: Final = Live(console=console, refresh_per_second=8, transient=True)
        self._last_shown: tuple[StepReport, ClusterStatistics] | None = None
        self._live.start()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def show(self, step_report: StepReport, cluster_statistics: ClusterStatistics) -> None:
        self._live.update(self._panel(step_report, cluster_statistics))

    def close(self) -> None:
        self._live.stop()

    def _panel(self, step_report: StepReport, cluster_statistics: ClusterStatistics) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        most = max(step_report.replicas, cluster_statistics.pods, 1)
        panel = Table.grid(padding=(0, 2))
        panel.add_row(
            "",
            f"[bold]{step_report.title}[/]  {self._clock.monotonic() - step_report.started:.0f} s",
        )
        panel.add_row(
            "pods",
            ProgressBar(most, cluster_statistics.running, 40),
            f"{cluster_statistics.running}/{step_report.replicas} running",
        )
        panel.add_row(
            "nodes",
            ProgressBar(max(cluster_statistics.nodes, 1), cluster_statistics.ready_nodes, 40),
            f"{cluster_statistics.ready_nodes}/{cluster_statistics.nodes} ready",
        )
        panel.add_row(
            "price",
            f"[bold]{cluster_statistics.price_per_hour:.2f}[/] {self._currency} per hour",
            f"{cluster_statistics.spent:.4f} {self._currency} spent",
        )
        return panel


def summarise(
    console: Console,
    step_reports: Sequence[StepReport],
    cluster_statistics: ClusterStatistics,
    currency: str,
) -> None:
    """Print the steps, their durations and the cost."""
    from rich.table import Table

    table = Table(title="Summary", title_justify="left")
    for heading in ("step", "duration", "first node", "nodes", f"{currency}/h"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for step_report in step_reports:
        table.add_row(
            step_report.title,
            _seconds(step_report.seconds, "not done"),
            _seconds(step_report.first_node_seconds, ""),
            str(step_report.nodes),
            f"{step_report.price_per_hour:.2f}",
        )
    console.print(table)
    instances = ", ".join(
        f"{count} x {name}" for name, count in sorted(cluster_statistics.node_types.items())
    )
    console.print(f"instances: {instances or 'none'}", highlight=False)
    console.print(
        f"cost of the whole demo: {cluster_statistics.spent:.4f} {currency}", highlight=False
    )


def _seconds(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.1f} s"
