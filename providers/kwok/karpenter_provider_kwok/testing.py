"""The kwok provider as a subject of the conformance kit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.base import ObjectMeta
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_provider_kwok.api import KWOKNodeClass
from karpenter_provider_kwok.faults import KwokFault, KwokFaultKind
from karpenter_provider_kwok.labels import PROVIDER_ID_PREFIX
from karpenter_provider_kwok.plugin import KwokProvider

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["subject"]

_FAULTS: Final = {
    CloudTrouble.STOCK_OUT: (KwokFault(kind=KwokFaultKind.STOCK_OUT),),
    CloudTrouble.QUOTA: (KwokFault(kind=KwokFaultKind.QUOTA),),
    CloudTrouble.THROTTLING: (KwokFault(kind=KwokFaultKind.THROTTLE),),
    CloudTrouble.AUTH_FAILURE: (KwokFault(kind=KwokFaultKind.AUTH_FAILURE),),
    CloudTrouble.LATE_FAILURE: (KwokFault(kind=KwokFaultKind.LATE_FAILURE),),
    CloudTrouble.LOST_REPLY: (KwokFault(kind=KwokFaultKind.LOST_REPLY, count=1),),
    CloudTrouble.TOKEN_IN_PROGRESS: (
        KwokFault(kind=KwokFaultKind.LOST_REPLY, count=1),
        KwokFault(kind=KwokFaultKind.TOKEN_IN_PROGRESS),
    ),
    CloudTrouble.NO_BOOT: (KwokFault(kind=KwokFaultKind.FAILED_NODE),),
    CloudTrouble.PARTIAL_LISTING: (KwokFault(kind=KwokFaultKind.PARTIAL_LISTING),),
}


def subject() -> ConformanceSubject:
    """Return the provider with its shipped catalogue."""
    return ConformanceSubject(
        name="kwok",
        make=KwokProvider,
        node_class=KWOKNodeClass(metadata=ObjectMeta(name="default", uid="uid-of-class")),
        troubles=frozenset(_FAULTS),
        trouble=_trouble,
        interrupt=_reclaim,
        protect=_protect,
    )


@contextmanager
def _trouble(plugin: object, wanted: CloudTrouble) -> Generator[None, None, None]:
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
    disturbances.inject(KwokFault(kind=KwokFaultKind.PROTECTED, node_claims=(name,)))
    try:
        yield
    finally:
        disturbances.clear()


def _reclaim(plugin: object, provider_id: str) -> None:
    name = provider_id.removeprefix(PROVIDER_ID_PREFIX)
    fault = KwokFault(kind=KwokFaultKind.RECLAIM, node_claims=(name,))
    cast("KwokProvider", plugin).cloud.disturbances.inject(fault)
