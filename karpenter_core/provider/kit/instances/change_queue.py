"""Changes instances in place, such as tags, at the cloud's permitted rate.

Nothing waits for these changes: there are few calls a second, and a request whose turn has not come gets
the time at which to come again. Instances that need the same change share a call. A refused change of
several instances is split until each refused instance stands alone; it is tried again later, and holds up
no other. A change that failed otherwise is tried again after those of all others that wait.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from karpenter_core.clock import Clock

__all__ = ["ChangeQueue", "InstanceChanges"]

_REFUSED_LIFE: Final = timedelta(minutes=1)
"""Pause after a refused change of an instance."""
_READ_LIFE: Final = timedelta(minutes=5)
"""Time for which a state that was read or written overrides the last listing, which may be older."""

_MADE_UP_TURNS: Final = 3
_LONGEST_WAIT: Final = timedelta(seconds=5)
"""Requests come back a while after the time that they were given; turns wait for the next that comes."""

State = TypeVar("State")
Desired = TypeVar("Desired")
Desired_contra = TypeVar("Desired_contra", contravariant=True)
Change = TypeVar("Change", bound="Hashable")


class InstanceChanges(Protocol[State, Desired_contra, Change]):
    """A cloud's way to read and change instances.

    A state is what can be changed of an instance: its tags, say. Equal changes share a call; a change
    that is false is none.
    """

    def read(self, instance_ids: Sequence[str]) -> Mapping[str, State]:
        """Return the states of these instances, without those that are gone or terminating."""
        ...

    def planner(self) -> Callable[[State, Desired_contra], Change]:
        """Return what plans the change from a state to a desired one; used for one round."""
        ...

    def make(self, change: Change, instance_ids: Sequence[str]) -> None:
        """Make a change of these instances; raise CloudProviderError for a failure."""
        ...

    def changed(self, state: State, change: Change) -> State:
        """Return a state after a change."""
        ...

    def is_gone(self, error: CloudProviderError) -> bool:
        """Whether a change failed because one of its instances does not exist."""
        ...

    def is_refusal(self, error: CloudProviderError) -> bool:
        """Whether a change was refused, and a smaller one may not be."""
        ...


@final
class ChangeQueue(Generic[State, Desired, Change]):
    """Instances that wait for a change; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        changes: InstanceChanges[State, Desired, Change],
        *,
        action: str,
        changes_per_second: float,
        changed_at_once: int,
        read_at_once: int,
        listed_state: Callable[[str], State | None],
        candidates: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`changed_at_once` and `read_at_once` are the most instances of one call.

        `action` names the call in messages. `listed_state` returns the state of an instance in the
        last listing, without a call: a new process is asked for every instance. `candidates` returns
        instances that will have to be changed soon; they are read together with others.
        """
        self._changes: Final = changes
        self._action: Final = action
        self._per_second: Final = changes_per_second
        self._changed_at_once: Final = changed_at_once
        self._read_at_once: Final = read_at_once
        self._listed_state: Final = listed_state
        self._candidates: Final = candidates
        self._clock: Final = clock
        self._next_turn = -inf
        """Time from which the next change may be made, by the monotonic clock."""
        self._lock: Final = Lock()
        self._waiting: Final[dict[str, Desired]] = {}
        """By instance id, in the order in which they came."""
        self._busy: Final[set[str]] = set()
        self._read: Final[TtlCache[str, State]] = TtlCache(clock, _READ_LIFE)
        self._refused: Final[TtlCache[str, CloudProviderError]] = TtlCache(clock, _REFUSED_LIFE)
        """Errors of instances that could not be changed."""
        self._parts: Final[TtlCache[str, int]] = TtlCache(clock, _REFUSED_LIFE)
        """Parts of refused changes by instance: only instances of one part share a call."""
        self._next_part = 0

    def sync(self, instance_id: str, desired: Desired) -> State | None:
        """Return the state of an instance that is as desired; None for one that is gone.

        Raises:
            ThrottledError: it is not its turn yet.
            CloudProviderError: the cloud refused or did not answer.
        """
        self._raise_refusal(instance_id)
        state = self._state_of(instance_id)
        if state is not None and not self._changes.planner()(state, desired):
            self._drop([instance_id])
            return state
        with self._lock:
            self._forget_turns()
            self._waiting[instance_id] = desired
        while self._take_turn():
            self._run_round()
        with self._lock:
            position = next(
                (n for n, name in enumerate(self._waiting) if name == instance_id), None
            )
        if position is not None:
            raise ThrottledError(
                f"{self._action}: {instance_id} waits for the rate limit",
                retry_after=min(
                    timedelta(seconds=(position + 1) / self._per_second), _LONGEST_WAIT
                ),
            )
        self._raise_refusal(instance_id)
        return self._state_of(instance_id)

    def _forget_turns(self) -> None:
        """Give no turns for a time in which no change waited."""
        if not self._waiting:
            self._next_turn = max(self._next_turn, self._clock.monotonic())

    def _take_turn(self) -> bool:
        """Tell whether a change may be made now, for a caller that waits.

        Callers that wait come late: the next one makes up a few turns that none came for.
        """
        now = self._clock.monotonic()
        with self._lock:
            if not self._waiting or now < self._next_turn:
                return False
            earliest = now - _MADE_UP_TURNS / self._per_second
            self._next_turn = max(self._next_turn, earliest) + 1 / self._per_second
        return True

    def _raise_refusal(self, instance_id: str) -> None:
        refused = self._refused.get(instance_id)
        if refused is not None:
            raise refused

    def _state_of(self, instance_id: str) -> State | None:
        """Return the known state of an instance; None if it has to be read."""
        state = self._read.get(instance_id)
        return self._listed_state(instance_id) if state is None else state

    def _run_round(self) -> None:
        """Change the instance that has waited longest, and all that need the same change."""
        self._read_waiting()
        with self._lock:
            desired_by_id = {k: v for k, v in self._waiting.items() if k not in self._busy}
        plan = self._changes.planner()
        changes = {
            name: plan(state, desired)
            for name, desired in desired_by_id.items()
            if (state := self._read.get(name)) is not None
        }
        self._done({k: desired_by_id[k] for k, change in changes.items() if not change})
        first = next((name for name, change in changes.items() if change), None)
        if first is None:
            return
        change, part = changes[first], self._parts.get(first)
        alike = (n for n, it in changes.items() if it == change and self._parts.get(n) == part)
        planned = {name: desired_by_id[name] for name in islice(alike, self._changed_at_once)}
        names = tuple(planned)
        with self._lock:
            self._busy.update(names)
        try:
            self._make(change, planned)
        finally:
            with self._lock:
                self._busy.difference_update(names)

    def _read_waiting(self) -> None:
        """Read the instances that wait, once: a listing may be older than another caller's change."""
        with self._lock:
            waiting = list(self._waiting)
        unread = [name for name in waiting if self._read.get(name) is None][: self._read_at_once]
        if not unread:
            return
        others = sorted(set(self._candidates()).difference(waiting, {""}))
        later = (name for name in others if self._read.get(name) is None)
        self._read_again([*unread, *islice(later, self._read_at_once - len(unread))])

    def _make(self, change: Change, planned: Mapping[str, Desired]) -> None:
        names = tuple(planned)
        before = {name: self._read.get(name) for name in names}
        try:
            self._changes.make(change, names)
        except CloudProviderError as error:
            is_gone = self._changes.is_gone(error)
            if not is_gone and not self._changes.is_refusal(error):
                if not isinstance(error, ThrottledError):
                    self._put_last(names)
                raise
            # A resource that the cloud lists but cannot change must not stay first in the queue.
            if not is_gone or self._read_again(names) == len(names):
                self._set_apart(names, error)
            return
        for name, state in before.items():
            if state is not None:
                self._read.put(name, self._changes.changed(state, change))
        self._done(planned)

    def _read_again(self, names: Sequence[str]) -> int:
        """Read instances, and return how many exist; the others wait no more."""
        states = self._changes.read(names)
        absent = [name for name in names if name not in states]
        self._drop(absent)
        for name in absent:  # who asks for it again must not put it among others again
            self._read.drop(name)
        for name, state in states.items():
            self._read.put(name, state)
        return len(states)

    def _set_apart(self, names: Sequence[str], error: CloudProviderError) -> None:
        """Halve a refused change; a single instance waits no more."""
        if len(names) == 1:
            self._refused.put(names[0], error)
            self._drop(names)
            return
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            with self._lock:
                self._next_part += 1
                part = self._next_part
            for name in half:
                self._parts.put(name, part)
                self._read.drop(name)  # some of the change may have been made

    def _put_last(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                if name in self._waiting:
                    self._waiting[name] = self._waiting.pop(name)

    def _done(self, planned: Mapping[str, Desired]) -> None:
        """Let instances wait no more, unless something else is desired by now."""
        with self._lock:
            for name, desired in planned.items():
                if name in self._waiting and self._waiting[name] == desired:
                    del self._waiting[name]

    def _drop(self, names: Iterable[str]) -> None:
        names = list(names)
        with self._lock:
            for name in names:
                self._waiting.pop(name, None)
