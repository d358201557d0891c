"""Remembers recent launches of this process, and its unanswered launch calls.

Clouds list a new instance with a delay of seconds, so the launches of this process have precedence
for a while. A call whose answer was lost may have been executed: it is repeated with identical
parameters and the same idempotency token. All of this bridges minutes; lasting data is in the tags
of the instances.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.provider.contract import Instance
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchedInstance

__all__ = ["ClaimRef", "RecentLaunch", "RecentLaunches", "UnansweredCalls"]

C = TypeVar("C")

VISIBLE_WITHIN: Final = timedelta(minutes=5)
"""After this time a cloud lists what it has launched, and the memory is not needed any more."""
ATTEMPTS_KEPT: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """A NodeClaim as named in tags; a name or UID that is in no tag is empty."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentLaunch:
    """An instance that a launch call returned."""

    instance_id: str
    owner: ClaimRef
    instance: Instance
    outcome: LaunchedInstance

    @classmethod
    def of(
        cls, instance_id: str, owner: ClaimRef, outcome: LaunchedInstance, *, created: datetime
    ) -> RecentLaunch:
        """Return the launch of an instance that was described as `outcome`."""
        instance = Instance(
            provider_id=outcome.provider_id,
            node_claim=owner.name,
            token=owner.uid,
            instance_type=outcome.instance_type,
            zone=outcome.zone,
            capacity_type=outcome.capacity_type,
            image_id=outcome.image_id,
            created=created,
        )
        return cls(instance_id=instance_id, owner=owner, instance=instance, outcome=outcome)


@final
class RecentLaunches:
    """Launches of the last minutes, by instance and by claim; callable from any thread."""

    def __init__(self, clock: Clock, *, kept: timedelta = VISIBLE_WITHIN) -> None:
        self._by_id: Final[TtlCache[str, RecentLaunch]] = TtlCache(clock, kept)
        self._by_uid: Final[TtlCache[str, RecentLaunch]] = TtlCache(clock, kept)
        self._ended: Final[TtlCache[str, str]] = TtlCache(clock, max(kept, ATTEMPTS_KEPT))

    def add(self, launch: RecentLaunch) -> None:
        """Remember a launch."""
        self._by_id.put(launch.instance_id, launch)
        self._by_uid.put(launch.owner.uid, launch)

    def of_claim(self, uid: str) -> RecentLaunch | None:
        """Return the instance that was launched for a claim."""
        return self._by_uid.get(uid)

    def get(self, instance_id: str) -> RecentLaunch | None:
        """Return the launch of an instance."""
        return self._by_id.get(instance_id)

    def forget(self, instance_id: str) -> None:
        """Remove an instance that is terminating."""
        launch = self._by_id.get(instance_id)
        if launch is not None:
            self._by_id.drop(instance_id)
            self._by_uid.drop(launch.owner.uid)
            self._ended.put(launch.owner.uid, instance_id)

    def ended_instance(self, uid: str) -> str:
        """Return the instance of a claim that was removed recently; empty for none."""
        return self._ended.get(uid) or ""

    def owners(self) -> Mapping[str, ClaimRef]:
        """Return the claims of the instances, by instance id."""
        return {key: launch.owner for key, launch in self._by_id.items().items()}

    def all(self) -> Mapping[str, RecentLaunch]:
        """Return the launches by instance id."""
        return self._by_id.items()


@final
class UnansweredCalls(Generic[C]):
    """Calls without an answer, by claim, and the number of failed calls of each claim.

    Callable from any thread.
    """

    def __init__(self, clock: Clock, *, kept: timedelta = VISIBLE_WITHIN) -> None:
        self._calls: Final[TtlCache[str, C]] = TtlCache(clock, kept)
        self._failures: Final[TtlCache[str, int]] = TtlCache(clock, ATTEMPTS_KEPT)
        self._lock: Final = Lock()

    def call_for(self, uid: str) -> C | None:
        """Return the unanswered call for a claim, if there is one."""
        return self._calls.get(uid)

    def is_unanswered(self, uids: Iterable[str], call: C) -> bool:
        """Return whether this very call is unanswered for one of these claims."""
        return any(self._calls.get(uid) is call for uid in uids)

    def has_attempted(self, uid: str) -> bool:
        """Return whether a call for a claim is unanswered, or has failed."""
        return self.call_for(uid) is not None or bool(self.attempts([uid]))

    def note_unanswered(self, uids: Iterable[str], call: C) -> None:
        """Remember a call that may have been executed."""
        for uid in uids:
            self._calls.put(uid, call)

    def note_answered(self, uids: Iterable[str], *, failed: Iterable[str]) -> None:
        """Remove calls for these claims; those in `failed` got no instance."""
        for uid in uids:
            self._calls.drop(uid)
        with self._lock:
            for uid, count in Counter(failed).items():
                self._failures.put(uid, (self._failures.get(uid) or 0) + count)

    def attempts(self, uids: Iterable[str]) -> Mapping[str, int]:
        """Return the number of failed calls by claim."""
        counted = {uid: self._failures.get(uid) or 0 for uid in uids}
        return {uid: count for uid, count in counted.items() if count}
