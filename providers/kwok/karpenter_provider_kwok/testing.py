"""The kwok provider as the subject of the conformance kit: its faults are the cloud's troubles."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing.subject import Subject, Trouble
from karpenter_provider_kwok.api import KWOKNodeClass
from karpenter_provider_kwok.faults import Fault, FaultKind
from karpenter_provider_kwok.labels import PROVIDER_ID_PREFIX
from karpenter_provider_kwok.plugin import KwokProvider

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["subject"]

_FAULTS: Final = {
    Trouble.STOCK_OUT: (Fault(kind=FaultKind.STOCK_OUT),),
    Trouble.QUOTA: (Fault(kind=FaultKind.QUOTA),),
    Trouble.THROTTLING: (Fault(kind=FaultKind.THROTTLE),),
    Trouble.AUTH_FAILURE: (Fault(kind=FaultKind.AUTH_FAILURE),),
    Trouble.LOST_REPLY: (Fault(kind=FaultKind.LOST_REPLY, count=1),),
    Trouble.TOKEN_IN_PROGRESS: (
        Fault(kind=FaultKind.LOST_REPLY, count=1),
        Fault(kind=FaultKind.TOKEN_IN_PROGRESS),
    ),
    Trouble.NO_BOOT: (Fault(kind=FaultKind.FAILED_NODE),),
    Trouble.PARTIAL_LISTING: (Fault(kind=FaultKind.PARTIAL_LISTING),),
}


def subject() -> Subject:
    """Return the provider with its shipped catalogue."""
    return Subject(
        name="kwok",
        make=KwokProvider,
        node_class=KWOKNodeClass(metadata=ObjectMeta(name="default", uid="uid-of-class")),
        troubles=frozenset(_FAULTS),
        trouble=_trouble,
        interrupt=_reclaim,
        protect=_protect,
    )


@contextmanager
def _trouble(plugin: object, wanted: Trouble) -> Generator[None, None, None]:
    disturbances = cast("KwokProvider", plugin).cloud.disturbances
    for fault in _FAULTS[wanted]:
        disturbances.inject(fault)
    try:
        yield
    finally:
        disturbances.clear()


@contextmanager
def _protect(plugin: object, provider_id: str) -> Generator[None, None, None]:
    disturbances = cast("KwokProvider", plugin).cloud.disturbances
    name = provider_id.removeprefix(PROVIDER_ID_PREFIX)
    disturbances.inject(Fault(kind=FaultKind.PROTECTED, node_claims=(name,)))
    try:
        yield
    finally:
        disturbances.clear()


def _reclaim(plugin: object, provider_id: str) -> None:
    name = provider_id.removeprefix(PROVIDER_ID_PREFIX)
    fault = Fault(kind=FaultKind.RECLAIM, node_claims=(name,))
    cast("KwokProvider", plugin).cloud.disturbances.inject(fault)
