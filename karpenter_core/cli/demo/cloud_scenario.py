"""Steps of the demo on a simulated cloud, and checks of their results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.cli.demo.demo_manifests import NAME
from karpenter_core.cli.demo.demo_scenario import DemoStep
from karpenter_core.cli.demo.processes import DemoFailedError
from karpenter_core.provider.kit.demo_cloud import DemoFeature

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.cli.demo.cluster_statistics import ClusterStatistics
    from karpenter_core.cli.demo.demo_cluster import DemoCluster
    from karpenter_core.clock import Clock
    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.kit.demo_cloud import DemoCloud, LoggedLaunchCall

__all__ = ["BUDGET", "CloudScenario", "capacity_types_of", "controller_environment"]

BUDGET: Final = 2
"""Disruption budget: nodes that may be disrupted at the same time."""
_FEW: Final = 50
_MANY: Final = 75


def capacity_types_of(cloud: DemoCloud) -> tuple[str, ...]:
    """Return the capacity types that a cloud has."""
    return (ON_DEMAND,) if DemoFeature.SPOT in cloud.lacks else (SPOT, ON_DEMAND)


def controller_environment(cloud: DemoCloud) -> dict[str, str]:
    """Return the settings of the controller: cluster name and currency, and those of the cloud."""
    return {"CLUSTER_NAME": NAME, "CURRENCY": cloud.currency, **cloud.environment}


class CloudScenario:
    """Scenario: zone spread, stock-out, interruption, image update, scale-down."""

    def __init__(
        self,
        cloud: DemoCloud,
        demo_cluster: DemoCluster,
        cluster_statistics: ClusterStatistics,
        clock: Clock,
    ) -> None:
        self._cloud: Final = cloud
        self._demo_cluster: Final = demo_cluster
        self._cluster_statistics: Final = cluster_statistics
        self._clock: Final = clock
        self._calls_before = 0
        self._instances_before = frozenset[str]()
        self._sold_out = set["OfferingKey"]()
        self._interrupted = ""
        self._deadline: datetime | None = None
        self._old = frozenset[str]()

    def steps(self) -> Sequence[DemoStep]:
        """Return the steps; those that the cloud cannot show are marked as skipped."""
        return [
            DemoStep(
                title=f"scale nginx to {_FEW}, spread over zones",
                replicas=_FEW,
                begin=lambda: self._demo_cluster.scale(_FEW),
                is_done=lambda: self._cluster_statistics.is_settled_at(_FEW),
                report=self._report_zones,
            ),
            *self._stock_steps(),
            DemoStep(
                title="interrupt a spot instance",
                replicas=_MANY,
                begin=self._interrupt,
                is_done=self._is_interrupted_gone,
                report=self._report_interruption,
                skipped=self._skipped(DemoFeature.SPOT),
            ),
            DemoStep(
                title=f"newer image, disruption budget: {BUDGET} nodes",
                replicas=_MANY,
                begin=self._change_image,
                is_done=self._has_new_image,
                report=self._report_new_image,
                skipped=self._skipped(DemoFeature.NEWER_IMAGE),
            ),
            DemoStep(
                title="delete everything",
                replicas=0,
                begin=self._demo_cluster.retire,
                is_done=self._is_empty,
                report=lambda: ["the cloud has no resource of this cluster any more"],
            ),
        ]

    def _stock_steps(self) -> Sequence[DemoStep]:
        skipped = self._skipped(DemoFeature.STOCK)
        sell_out = DemoStep(
            title=f"sell out these offerings, scale nginx to {_MANY}",
            replicas=_MANY,
            begin=self._sell_out,
            is_done=lambda: self._cluster_statistics.is_settled_at(_MANY),
            report=self._report_launch_calls,
            skipped=skipped,
        )
        if not skipped:
            return [sell_out]
        # The later steps need the pods all the same.
        scale = DemoStep(
            title=f"scale nginx to {_MANY}",
            replicas=_MANY,
            begin=lambda: self._demo_cluster.scale(_MANY),
            is_done=lambda: self._cluster_statistics.is_settled_at(_MANY),
        )
        return [sell_out, scale]

    def _skipped(self, feature: DemoFeature) -> str:
        return f"the simulated cloud has no {feature}" if feature in self._cloud.lacks else ""

    # -- zones ---------------------------------------------------------------------------------

    def _report_zones(self) -> Sequence[str]:
        zones = self._cluster_statistics.running_by_zone
        if max(zones.values()) - min(zones.values()) > 1:
            raise DemoFailedError(f"pods are not spread evenly: {dict(zones)}")
        return [", ".join(f"{count} pods in {zone}" for zone, count in zones.items())]

    # -- stock ---------------------------------------------------------------------------------

    async def _sell_out(self) -> None:
        self._calls_before = len(self._cloud.launch_calls())
        instances = self._cloud.instances()
        self._instances_before = frozenset(instances)
        self._sold_out = {instance.offering for instance in instances.values()}
        for offering in self._sold_out:
            self._cloud.sell_out(offering)
        await self._demo_cluster.scale(_MANY)

    def _report_launch_calls(self) -> Sequence[str]:
        bought = Counter(
            instance.offering
            for provider_id, instance in self._cloud.instances().items()
            if provider_id not in self._instances_before
        )
        if not bought:
            raise DemoFailedError("no instance was launched from another offering")
        if wrong := self._sold_out & bought.keys():
            raise DemoFailedError(f"{_offering_text(wrong.pop())} is sold out and was launched")
        calls = self._cloud.launch_calls()[self._calls_before :]
        if not any(call.sold_out for call in calls):
            return [f"no launch call met a sold-out offering: bought {_count_text(bought)}"]
        return [_call_text(call) for call in calls if call.sold_out or call.bought]

    # -- interruption --------------------------------------------------------------------------

    async def _interrupt(self) -> None:
        spot = sorted(
            provider_id
            for provider_id, instance in self._cloud.instances().items()
            if instance.offering.capacity_type == SPOT
        )
        if not spot:
            raise DemoFailedError("there is no spot instance to interrupt")
        self._interrupted = spot[0]
        self._deadline = self._cloud.interrupt(self._interrupted)

    def _is_interrupted_gone(self) -> bool:
        return (
            self._interrupted not in self._cloud.instances()
            and self._interrupted not in self._cluster_statistics.provider_ids
            and self._cluster_statistics.is_settled_at(_MANY)
        )

    def _report_interruption(self) -> Sequence[str]:
        if self._deadline is None:
            raise DemoFailedError("nothing was interrupted")
        seconds_left = (self._deadline - self._clock.now()).total_seconds()
        if seconds_left <= 0:
            raise DemoFailedError(f"{self._interrupted} was not drained before it was reclaimed")
        return [
            f"{self._interrupted}: drained and replaced {seconds_left:.0f} s before its deadline"
        ]

    # -- images --------------------------------------------------------------------------------

    async def _change_image(self) -> None:
        self._old = frozenset(self._cloud.instances())
        self._cluster_statistics.most_leaving = 0
        await self._demo_cluster.change_node_class(dict(self._cloud.newer_image))

    def _has_new_image(self) -> bool:
        return (
            self._old.isdisjoint(self._cloud.instances())
            and self._old.isdisjoint(self._cluster_statistics.provider_ids)
            and self._cluster_statistics.is_settled_at(_MANY)
        )

    def _report_new_image(self) -> Sequence[str]:
        most = self._cluster_statistics.most_leaving
        if most > BUDGET:
            raise DemoFailedError(
                f"{most} nodes were disrupted at the same time, the budget allows {BUDGET}"
            )
        images = sorted({instance.image for instance in self._cloud.instances().values()})
        return [
            f"{len(self._old)} nodes replaced, at most {most} at the same time; image {images[0]}"
        ]

    # -- the end -------------------------------------------------------------------------------

    def _is_empty(self) -> bool:
        return self._cluster_statistics.is_settled_at(0) and not self._cloud.list_resources()


def _offering_text(offering: OfferingKey) -> str:
    return f"{offering.instance_type} {offering.zone} {offering.capacity_type}"


def _count_text(bought: Mapping[OfferingKey, int]) -> str:
    return ", ".join(f"{count} x {_offering_text(key)}" for key, count in bought.items())


def _call_text(call: LoggedLaunchCall) -> str:
    parts = [f"{_offering_text(offering)} sold out" for offering in call.sold_out]
    if call.bought:
        parts.append(f"bought {_count_text(call.bought)}")
    return f"{call.action}: {', '.join(parts)}"
