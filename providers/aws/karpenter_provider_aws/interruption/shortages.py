"""Marks what interruption warnings show to be unavailable."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.contract import InterruptionKind
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_aws.discovery.reservations import ReservationCounts
    from karpenter_provider_aws.interruption.directory import OwnedInstance

__all__ = ["InterruptionShortages"]

_MAX_NOTED: Final = 10_000


@final
class InterruptionShortages:
    """Marks what warnings show to be short, once for each message; callable from any thread."""

    def __init__(
        self, clock: Clock, *, offerings: UnavailableOfferings, reservations: ReservationCounts
    ) -> None:
        self._clock: Final = clock
        self._offerings: Final = offerings
        self._reservations: Final = reservations
        self._lock: Final = Lock()
        self._recorded: Final[OrderedDict[str, None]] = OrderedDict()

    def note(
        self, kind: InterruptionKind, instances: Iterable[OwnedInstance], *, message_id: str
    ) -> None:
        """Take note of what a message of a kind says about instances of ours."""
        if kind not in {InterruptionKind.SPOT_RECLAIM, InterruptionKind.RESERVATION_RECLAIM}:
            return
        concerned = tuple(instances)
        if not concerned or not self._is_news(message_id):
            return
        if kind is InterruptionKind.SPOT_RECLAIM:
            marks = {UnavailableOffering(each.instance_type, each.zone, SPOT) for each in concerned}
            self._offerings.mark(*sorted(marks), now=self._clock.now())
        else:
            ids = {each.reservation_id for each in concerned if each.reservation_id}
            self._reservations.note_exhausted(*sorted(ids))

    def _is_news(self, message_id: str) -> bool:
        with self._lock:
            if message_id in self._recorded:
                return False
            self._recorded[message_id] = None
            while len(self._recorded) > _MAX_NOTED:
                self._recorded.popitem(last=False)
            return True
