"""Terminates instances in batches, and remembers those that a cloud refuses.

Clouds terminate all instances of a call or none. A refused instance gets calls of its own from then on,
so that later batches are not refused because of it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.errors import AuthError, CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.described import Described, Described_contra
from karpenter_core.provider.kit.termination_batches import terminate_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import timedelta

    from karpenter_core.provider.contract import TerminateOutcome

__all__ = ["BatchTerminator", "CallRefusal", "TerminationCalls"]


class CallRefusal(Protocol):
    """A cloud's refusal of a call."""

    @property
    def message(self) -> str:
        """Its message, which may name instances."""
        ...


Refusal = TypeVar("Refusal", bound=CallRefusal)


class TerminationCalls(Protocol[Described_contra, Refusal]):
    """A cloud's calls for the termination of instances."""

    def known_outcome(self, instance: Described_contra) -> TerminateOutcome | None:
        """Return the outcome that a described instance has without a call; None if it needs one."""
        ...

    def send(self, instance_ids: Sequence[str]) -> None:
        """Terminate instances; raise CloudProviderError if none of them was."""
        ...

    def read_refusal(self, error: CloudProviderError) -> Refusal | None:
        """Return the refusal of a call that may succeed without some of its instances."""
        ...

    def refused_outcome(
        self, instance_id: str, refusal: Refusal, *, is_alone: bool
    ) -> TerminateOutcome:
        """Return the outcome of the instance that a call was refused for.

        `is_alone` is True if nothing shows that other instances may be terminated: neither this batch
        nor an earlier refusal. A refusal that the next description clears up (gone already, too
        early) counts as STARTED.
        """
        ...


@final
class BatchTerminator(Generic[Described, Refusal]):
    """Terminates described instances; callable from any thread."""

    def __init__(
        self,
        calls: TerminationCalls[Described, Refusal],
        *,
        batch_size: int,
        max_refusals: int,
        pause: timedelta,
        monotonic: Callable[[], float],
        calls_at_once: int = 1,
    ) -> None:
        """`batch_size` is how many instances one call takes; `calls_at_once` are made side by side.

        After `max_refusals` refusals without a termination between them the rest of a batch waits for
        the next attempt. No call is made for an instance within `pause` after its last one: zero for
        a cloud that shows at once that an instance is terminating.
        """
        self._calls: Final = calls
        self._batch_size: Final = batch_size
        self._max_refusals: Final = max_refusals
        self._pause_seconds: Final = pause.total_seconds()
        self._monotonic: Final = monotonic
        self._calls_at_once: Final = calls_at_once
        self._lock: Final = Lock()
        self._started: Final[dict[str, float]] = {}
        """Times at which terminations of instances were last started."""
        self._refused: Final[dict[str, tuple[float, CloudProviderError]]] = {}
        """Time and error of the last refusal of each instance; the one that was sent last at the end."""
        self._sending: Final[set[str]] = set()

    def start(self, instances: Mapping[str, Described]) -> dict[str, TerminateOutcome]:
        """Terminate instances; return an outcome for each, by id.

        An instance that another thread is just terminating counts as started.
        """
        known = {name: self._calls.known_outcome(each) for name, each in instances.items()}
        outcomes = {name: outcome for name, outcome in known.items() if outcome is not None}
        with self._lock:
            unknown = known.keys() - outcomes.keys()
            claimed = unknown - self._sending
            self._sending.update(claimed)
        outcomes |= dict.fromkeys(unknown - claimed, TerminationStatus.STARTED)
        try:
            recent = {name: self._recent_outcome(name) for name in claimed}
            outcomes |= {name: outcome for name, outcome in recent.items() if outcome is not None}
            return outcomes | self._send(sorted(claimed - outcomes.keys()))
        finally:
            with self._lock:
                self._sending.difference_update(claimed)

    def _send(self, names: Sequence[str]) -> dict[str, TerminateOutcome]:
        outcomes: dict[str, TerminateOutcome] = {}
        with self._lock:
            suspects = {name: error for name, (_, error) in self._refused.items() if name in names}
        others = [name for name in names if name not in suspects]
        size = self._batch_size
        batches = [others[first : first + size] for first in range(0, len(others), size)]
        for batch_outcomes in self._send_batches(batches):
            outcomes |= batch_outcomes
        for count, (name, error) in enumerate(suspects.items()):
            if count < self._max_refusals:
                outcomes |= self._send_batch([name])
            else:
                outcomes[name] = error
        return outcomes

    def is_started(self, instance_id: str) -> bool:
        """Whether the termination of an instance was started."""
        with self._lock:
            return instance_id in self._started

    def forget(self, instance_id: str) -> None:
        """Drop what is remembered of an instance that is gone."""
        with self._lock:
            self._started.pop(instance_id, None)
            self._refused.pop(instance_id, None)

    def keep_only(self, instance_ids: Collection[str]) -> None:
        """Drop what is remembered of all instances but these."""
        with self._lock:
            for name in (self._started.keys() | self._refused.keys()) - set(instance_ids):
                self._started.pop(name, None)
                self._refused.pop(name, None)

    def _recent_outcome(self, name: str) -> TerminateOutcome | None:
        since = self._monotonic() - self._pause_seconds
        with self._lock:
            refused = self._refused.get(name)
            if refused is not None and refused[0] > since:
                return refused[1]
            started_at = self._started.get(name)
        is_recent = started_at is not None and started_at > since
        return TerminationStatus.STARTED if is_recent else None

    def _send_batches(self, batches: Sequence[Sequence[str]]) -> list[dict[str, TerminateOutcome]]:
        width = min(len(batches), self._calls_at_once)
        if width <= 1:
            return [self._send_batch(batch) for batch in batches]
        with ThreadPoolExecutor(width, thread_name_prefix="terminate") as pool:
            return list(pool.map(self._send_batch, batches))

    def _send_batch(self, names: Sequence[str]) -> dict[str, TerminateOutcome]:
        result = terminate_batch(
            names,
            self._calls.send,
            read_refusal=self._calls.read_refusal,
            message_of=lambda refusal: refusal.message,
            max_refusals=self._max_refusals,
        )
        now = self._monotonic()
        with self._lock:
            before = dict(self._refused)
        refused = {
            name: self._calls.refused_outcome(
                name,
                refusal,
                is_alone=not result.started
                and (
                    name not in before or not isinstance(before[name][1], TerminationRefusedError)
                ),
            )
            for name, refusal in result.refused.items()
        }
        with self._lock:
            self._started.update(dict.fromkeys(result.started, now))
            for name in (*result.started, *refused):
                self._refused.pop(name, None)
            self._refused.update(
                (name, (now, outcome))
                for name, outcome in refused.items()
                if isinstance(outcome, CloudProviderError)
            )
        return {
            **dict.fromkeys(result.started, TerminationStatus.STARTED),
            **refused,
            **result.failed,
            **{name: _deferred_error(name, error) for name, error in result.deferred.items()},
        }


def _deferred_error(name: str, error: CloudProviderError) -> CloudProviderError:
    """Return the error of an instance that was not sent: perhaps no call is permitted at all."""
    if isinstance(error, AuthError):
        return error
    return CloudProviderError(
        f"instance {name} waits for the next attempt: too many instances of its batch may not be "
        f"terminated: {error}"
    )
