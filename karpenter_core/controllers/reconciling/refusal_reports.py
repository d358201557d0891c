"""Reports writes that the API server refuses; goes on where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from karpenter_core.errors import ApiError
from karpenter_core.kube.refusals import is_refusal, refused_write_notice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.api.notices import Notice
    from karpenter_core.controllers.reconciling.reconciler import ReconcileResult

__all__ = ["despite_refusal", "reporting_refusals"]

K = TypeVar("K")


def reporting_refusals(
    reconcile: Callable[[K], Awaitable[ReconcileResult]],
    *,
    objects: Callable[[], Mapping[K, KubernetesObject]],
    publish: Callable[[Notice], None],
) -> Callable[[K], Awaitable[ReconcileResult]]:
    """Return the reconcile function with an Event on its object about each refused write.

    `objects` returns those that exist now, by key.
    """

    async def reporting(key: K) -> ReconcileResult:
        try:
            return await reconcile(key)
        except ApiError as error:
            found = objects().get(key) if is_refusal(error) else None
            if found is not None:
                publish(refused_write_notice(found.ref, error))
            raise

    return reporting


async def despite_refusal(
    write: Awaitable[object], rest: Callable[[], Awaitable[ReconcileResult]]
) -> ReconcileResult:
    """Do the rest of a reconcile even if a write before it is refused.

    A policy may let nobody else write NodePools or NodeClasses, and allow their status: only drift needs
    what is written there.

    Raises:
        ApiError: the write was refused, once the rest is done; or it failed otherwise.
    """
    try:
        await write
    except ApiError as error:
        if is_refusal(error):
            await rest()
        raise
    return await rest()
