"""Records of objects that were set aside because judging them failed.

One object that decision code cannot cope with (a bug, or a value that nobody thought of) must not
stop the decisions about all others. It is set aside, and what went wrong is returned as data, since
decision code neither logs nor publishes: whoever carries decisions out tells of it.
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
    """An object that was set aside: the step in which judging it failed, and the error."""

    regarding: ObjectRef
    step: str
    error: str

    @property
    def message(self) -> str:
        """What users are told."""
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
    """Say that something was set aside, and that it is no fault of its owner."""
    return f"set aside in {step}, judging it failed: {error}; please report this"


def describe_failure(error: BaseException) -> str:
    """Return an error in a line: what it is and, unless it was raised on purpose, where."""
    text = str(error)
    if isinstance(error, KarpenterError):
        return text
    frames = extract_tb(error.__traceback__)
    where = f" ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


@final
class FailedJudgements:
    """Collects what was set aside, each object once for each step."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[ObjectRef, str], FailedJudgement] = {}

    @property
    def found(self) -> tuple[FailedJudgement, ...]:
        """Everything that was set aside, in the order in which it was."""
        return tuple(self._found.values())

    def add(self, failed: FailedJudgement) -> None:
        """Note what was set aside elsewhere."""
        self._found.setdefault((failed.regarding, failed.step), failed)

    def note(self, regarding: ObjectRef, step: str, error: BaseException) -> FailedJudgement:
        """Note that judging an object failed."""
        failed = FailedJudgement(regarding=regarding, step=step, error=describe_failure(error))
        self.add(failed)
        return failed

    def judging(self, regarding: ObjectRef, step: str) -> _Judging:
        """Judge one object inside a `with`: what goes wrong is noted, and ends the block only."""
        return _Judging(self, regarding, step)


@final
class _Judging:
    """The block in which one object is judged."""

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
        """Note an error, and go on after the block."""
        del kind, trace
        if not isinstance(error, Exception):
            return False
        self._collected.note(self._regarding, self._step, error)
        return True
