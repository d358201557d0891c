"""Writes status and metrics of CapacityQuotas: the controller `capacityquota`.

Launches do not read the status: they count nodes and claims themselves (`state.launch_ceilings`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.controllers.observability.node_series import amount_of, snake_case
from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.controllers.reconciling.refusal_reports import RefusedObjects
from karpenter_core.errors import ConflictError, NotFoundError
from karpenter_core.kube.wire.codecs import CAPACITY_QUOTAS
from karpenter_core.lifecycle.capacity_quota.status import limit_notice, quota_status
from karpenter_core.state.capacity_quotas import quota_usage, read_quota
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from karpenter_core.api.capacity_quota import CapacityQuota
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.launch_limits import LaunchLimits
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["CapacityQuotaController"]

PERIOD_SECONDS: Final = 10.0
"""Usage changes all the time during a scale-up, so it is written at most this often."""


@final
class CapacityQuotaController:
    """The controller `capacityquota`."""

    def __init__(
        self, *, writer: ObjectWriter, runtime: ControllerRuntime, launch_limits: LaunchLimits
    ) -> None:
        self._writer = writer
        self._runtime = runtime
        self._cluster_state = writer.cluster_state
        self._limits = launch_limits
        self._reported: dict[str, tuple[str, ...]] = {}
        """By UID: what the last Event of a quota was about."""
        self._refused = RefusedObjects(self.name, runtime=runtime, publish=writer.publish)
        self._loop = PeriodicLoop(self.name, self.step, runtime=runtime, is_vital=False)
        writer.cluster_state.subscribe(ObjectKind.CAPACITY_QUOTA, lambda _: self._loop.wake())

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "capacityquota"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        await self._loop.run()

    async def step(self) -> float:
        """Write the status of every quota, and its metrics."""
        snapshot = self._cluster_state.snapshot()
        metrics = self._runtime.metrics
        metrics.capacity.capacityquotas_limit.clear()
        metrics.capacity.capacityquotas_usage.clear()
        for quota in snapshot.capacity_quotas.values():
            await self._reconcile(snapshot, quota)
        gone = self._reported.keys() - {quota.uid for quota in snapshot.capacity_quotas.values()}
        for uid in gone:
            del self._reported[uid]
        return PERIOD_SECONDS

    async def _reconcile(self, snapshot: Snapshot, quota: CapacityQuota) -> None:
        limits, metrics = self._limits, self._runtime.metrics
        reading = read_quota(quota, aliases=limits.aliases)
        used = quota_usage(
            snapshot,
            reading,
            limits.rates,
            well_known=limits.well_known,
            aliases=limits.aliases,
        )
        status = quota_status(quota, reading, used, now=self._runtime.clock.now())
        for gauge, amounts in (
            (metrics.capacity.capacityquotas_limit, reading.limits),
            (metrics.capacity.capacityquotas_usage, used),
        ):
            for name, amount in amounts.items():
                labels = {"capacityquota": quota.name, "resource_type": snake_case(name)}
                gauge.labels(**labels).set(amount_of(name, amount))
        subject = (*reading.problems, *status.exhausted)
        if subject != self._reported.get(quota.uid, ()):
            notice = limit_notice(quota, reading, used, status.exhausted)
            if notice is not None:
                self._writer.publish(notice)
            self._reported[quota.uid] = subject
        if status.patch is None:
            return
        write = partial(
            self._writer.kube_writer.patch,
            CAPACITY_QUOTAS,
            quota.name,
            status.patch.body,
            subresource="status",
            resource_version=status.patch.resource_version,
        )
        try:
            await self._refused.attempt(quota.ref, write)
        except (ConflictError, NotFoundError):  # the next pass sees what it is now
            self._loop.wake()
