"""Logs each invalid field of plug-ins' answers once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from karpenter_core.provider.host.answer_check import AnswerProblem

__all__ = ["ReportedProblems"]

MAX_REPORTED_PROBLEMS: Final = 1000
"""Number of logged fields that are remembered, so that each is logged once."""


@final
class ReportedProblems:
    """The problems that were logged, by plug-in, kind of object and field."""

    def __init__(self) -> None:
        self._messages: Final[dict[tuple[str, str, str], str]] = {}

    def report(self, text: str, plugin: str, kind: str, problem: AnswerProblem) -> None:
        """Log a problem with this text, if none in its field was logged yet."""
        key = plugin, kind, problem.path
        if key in self._messages:
            return
        self._messages[key] = problem.message
        if len(self._messages) > MAX_REPORTED_PROBLEMS:
            del self._messages[next(iter(self._messages))]
        structlog.get_logger("provider").error(
            text, plugin=plugin, kind=kind, problem=problem.message
        )

    def messages(self, plugin: str, kind: str) -> tuple[str, ...]:
        """Return what was logged about objects of a kind, oldest first."""
        return tuple(
            message
            for (of_plugin, of_kind, _), message in self._messages.items()
            if (of_plugin, of_kind) == (plugin, kind)
        )
