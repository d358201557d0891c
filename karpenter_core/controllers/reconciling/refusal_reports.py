"""Reports writes that the API server refuses; goes on where it can."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.api.notices import node_ref
from karpenter_core.api.records import NodeView
from karpenter_core.errors import ApiError
from karpenter_core.kube.refusals import is_refusal, refused_write_notice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.api.notices import Notice, ObjectRef
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime, ReconcileResult

__all__ = ["REFUSED_SECONDS", "RefusedObjects", "despite_refusal", "reporting_refusals"]

K = TypeVar("K")
T = TypeVar("T")

REFUSED_SECONDS: Final = 60.0
"""Time after which a refused write of a pass is repeated: a user has to change something first."""


def reporting_refusals(
    reconcile: Callable[[K], Awaitable[ReconcileResult]],
    *,
    objects: Callable[[], Mapping[K, KubernetesObject | NodeView]],
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
                ref = node_ref(found) if isinstance(found, NodeView) else found.ref
                publish(refused_write_notice(ref, error))
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


@final
class RefusedObjects:
    """Sets aside the objects of a pass whose writes are refused, so that it goes on with the others."""

    def __init__(
        self, controller: str, *, runtime: ControllerRuntime, publish: Callable[[Notice], None]
    ) -> None:
        self._controller = controller
        self._runtime = runtime
        self._publish = publish
        self._until: dict[str, float] = {}
        """By UID: until when an object is set aside (monotonic seconds)."""
        self._log: FilteringBoundLogger = structlog.get_logger(controller)

    async def attempt(self, ref: ObjectRef, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of the work on an object; None if it is set aside now.

        Raises:
            ApiError: a write failed, but was not refused: it may fail for every object.
        """
        now = self._runtime.clock.monotonic()
        if now < self._until.get(ref.uid, now):
            return None
        try:
            return await work()
        except ApiError as error:
            if not is_refusal(error):
                raise
            self._publish(refused_write_notice(ref, error))
            self._runtime.metrics.reconcile_errors.labels(controller=self._controller).inc()
            self._log.error(
                "write refused, the object is set aside",
                error=str(error),
                retry_seconds=REFUSED_SECONDS,
                **{ref.kind: {"namespace": ref.namespace, "name": ref.name}},
            )
        now = self._runtime.clock.monotonic()
        self._until = {uid: until for uid, until in self._until.items() if until > now}
        self._until[ref.uid] = now + REFUSED_SECONDS
        return None

    def seconds_left(self) -> float:
        """Return the seconds until the first object is to be tried again; infinity if none is."""
        now = self._runtime.clock.monotonic()
        return min((until - now for until in self._until.values() if until > now), default=inf)
