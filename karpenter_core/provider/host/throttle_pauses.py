"""Pauses a provider's hooks while its cloud throttles their operations.

Clouds throttle per account and class of operations. A provider names the hooks that share the class
with the throttled call (`ThrottledError.pauses`): until the time to wait has passed, they are not
called, and their callers get the rest of the time as theirs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import ALL_HOOKS, ThrottledError
from karpenter_core.provider.host import hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.clock import Clock

__all__ = ["PAUSABLE_HOOKS", "ThrottlePauses"]

PAUSABLE_HOOKS: Final = frozenset(
    hook.name
    for hook in (
        hooks.RESOLVE_NODE_CLASS,
        hooks.FINALIZE_NODE_CLASS,
        hooks.LIST_INSTANCE_TYPES,
        hooks.LAUNCH_INSTANCES,
        hooks.FETCH_INSTANCES,
        hooks.LIST_INSTANCES,
        hooks.GATE_REGISTRATION,
        hooks.SYNC_INSTANCE,
        hooks.DETECT_DRIFT,
        hooks.POLL_INTERRUPTIONS,
        hooks.ACKNOWLEDGE_INTERRUPTIONS,
        hooks.TERMINATE_INSTANCES,
    )
)
"""Hooks that call the cloud in the normal course of events."""
_DEFAULT_PAUSE: Final = timedelta(seconds=1)
_LONGEST_PAUSE: Final = timedelta(minutes=5)


@final
class ThrottlePauses:
    """The paused hooks of all providers; used on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._until: Final[dict[tuple[str, str], float]] = {}
        """The end of the pause by provider and hook, by the monotonic clock."""

    def check(self, provider: str, hook: str) -> None:
        """Return if a hook of a provider may be called.

        Raises:
            ThrottledError: it is paused; has the rest of the pause.
        """
        until = self._until.get((provider, hook))
        if until is None:
            return
        left = until - self._clock.monotonic()
        if left > 0:
            raise ThrottledError(
                f"{hook} is not called, the cloud has throttled calls of its class",
                retry_after=timedelta(seconds=left),
            )
        del self._until[provider, hook]

    def note_outcomes(self, provider: str, answer: object) -> None:
        """Pause the hooks that the outcomes of a call name."""
        if isinstance(answer, list | tuple):
            for outcome in cast("Sequence[object]", answer):
                self.note_error(provider, outcome)

    def note_error(self, provider: str, error: object) -> None:
        """Pause the hooks that an error names; any other object names none."""
        if not isinstance(error, ThrottledError) or not error.pauses:
            return
        wait = min(error.retry_after or _DEFAULT_PAUSE, _LONGEST_PAUSE)
        until = self._clock.monotonic() + wait.total_seconds()
        named = PAUSABLE_HOOKS if ALL_HOOKS in error.pauses else error.pauses & PAUSABLE_HOOKS
        for hook in named:
            self._until[provider, hook] = max(self._until.get((provider, hook), until), until)
