"""Records of objects that were set aside because judging them failed.

One object that decision code cannot handle (a bug, or an unforeseen value) must not stop the
decisions about all others. The object is set aside and the error is returned as data, since
decision code neither logs nor publishes: the controllers report it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from traceback import extract_tb
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.errors import KarpenterError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "JUDGEMENT_FAILED",
    "FailedJudgement",
    "FailedJudgements",
    "describe_failure",
    "failure_message",
]

JUDGEMENT_FAILED: Final = "JudgementFailed"
"""Reason of the Events about objects that were set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJudgement:
    """An object that was set aside, with the step that failed and the error."""

    regarding: ObjectRef
    step: str
    error: str

    @property
    def message(self) -> str:
        """The message for users."""
        return failure_message(self.step, self.error)

    @property
    def notice(self) -> Notice:
        """The Event about the object."""
        return Notice(
            regarding=self.regarding,
            type="Warning",
            reason="JudgementFailed",
            message=self.message,
            dedupe=(self.regarding.uid or self.regarding.name, self.step),
        )


def failure_message(step: str, error: str) -> str:
    """Return the message for users: the failed step, the error, and a request to report it."""
    return f"skipped in {step}, because the decision about it failed: {error}; please report this as a bug"


def describe_failure(error: BaseException) -> str:
    """Return an error in one line, with its place in the code unless it was raised on purpose."""
    text = str(error)
    if isinstance(error, KarpenterError):
        return text
    frames = extract_tb(error.__traceback__)
    where = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


@final
class FailedJudgements:
    """Collects the objects that were set aside, each once for each step."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[tuple[ObjectRef, str], FailedJudgement] = {}

    @property
    def found(self) -> tuple[FailedJudgement, ...]:
        """All failed judgements, in the order in which they were added."""
        return tuple(self._failures.values())

    def add(self, failed: FailedJudgement) -> None:
        """Add a failed judgement that was recorded elsewhere."""
        self._failures.setdefault((failed.regarding, failed.step), failed)

    def note(self, regarding: ObjectRef, step: str, error: BaseException) -> FailedJudgement:
        """Record that judging an object failed, and return the record."""
        failed = FailedJudgement(regarding=regarding, step=step, error=describe_failure(error))
        self.add(failed)
        return failed

    def judging(self, regarding: ObjectRef, step: str) -> _JudgementContext:
        """Return a context that judges one object: an error is recorded and ends only the block."""
        return _JudgementContext(self, regarding, step)


@final
class _JudgementContext:
    """Context manager around the judgement of one object."""

    __slots__ = ("_collected", "_regarding", "_step")

    def __init__(self, collected: FailedJudgements, regarding: ObjectRef, step: str) -> None:
        self._collected: Final = collected
        self._regarding: Final = regarding
        self._step: Final = step

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Record an error and continue after the block."""
        del kind, trace
        if not isinstance(error, Exception):
            return False
        self._collected.note(self._regarding, self._step, error)
        return True
