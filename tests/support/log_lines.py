"""Keeps the log lines of the running test, and writes them out only if it fails.

A test in virtual time logs thousands of lines that nobody reads. Writing each of them out takes about
a tenth of such a test's time.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

import structlog

if TYPE_CHECKING:
    import pytest

__all__ = ["KEPT_LINES", "LogLines"]

KEPT_LINES: Final = 20_000
"""Number of lines that are kept of one test: the last ones."""


@final
class LogLines:
    """Last processor of structlog: keeps each line as it was logged, and prints nothing."""

    def __init__(self) -> None:
        self._lines: Final[deque[tuple[str, dict[str, Any]]]] = deque(maxlen=KEPT_LINES)
        # Tracebacks as Python writes them: rich ones show every local variable, which takes seconds.
        self._renderer: Final = structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        )

    def __call__(self, logger: Any, method: str, event: dict[str, Any]) -> Any:
        """Keep a line.

        Raises:
            structlog.DropEvent: always, so that nothing is printed.
        """
        if event.get("exc_info"):  # its frames would keep alive what the test lets go of
            event = dict(structlog.processors.format_exc_info(logger, method, event))
        self._lines.append((method, {**event, "timestamp": time.time()}))
        raise structlog.DropEvent

    def clear(self) -> None:
        """Forget the lines of the test before."""
        self._lines.clear()

    def text(self) -> str:
        """Return the kept lines as the console shows them."""
        return "\n".join(self._rendered(method, dict(event)) for method, event in self._lines)

    def add_to(self, report: pytest.TestReport) -> None:
        """Show the kept lines in the report of a test that failed."""
        if report.failed and self._lines:
            report.sections.append(("Captured log lines", self.text()))

    def _rendered(self, method: str, event: dict[str, Any]) -> str:
        moment = datetime.fromtimestamp(event["timestamp"], tz=UTC)
        event["timestamp"] = moment.strftime("%H:%M:%S.%f")
        return str(self._renderer(None, method, event))
