"""The simulated Alibaba Cloud for `karpenter demo --provider alibabacloud`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import OfferingKey
from karpenter_core.provider.kit.demo_cloud import DemoInstance, LaunchCall
from karpenter_provider_alibabacloud.codes import SHORTAGES, classify
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
from karpenter_simulated_alibabacloud.plans import capacity_type_of
from karpenter_simulated_alibabacloud.world import WorldPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_alibabacloud.instances import SimulatedInstance

__all__ = ["simulated_cloud"]

_OLDER, _NEWER = "ContainerOS@20250117", "ContainerOS@20250629"


@contextmanager
def simulated_cloud() -> Generator[AlibabaCloudDemo]:
    """Serve an account with an ACK cluster in three zones, where instances take seconds to boot."""
    # In all zones there is spot, so that what is sold out in one can be had in the next.
    plan = WorldPlan(zones_without_spot=())
    with SimulatedAlibabaCloud(plan=plan) as cloud:
        cloud.behaviour.pending_seconds = 1
        cloud.behaviour.starting_seconds = 1
        cloud.behaviour.boot_seconds = 2
        cloud.behaviour.releasing_seconds = 1
        yield AlibabaCloudDemo(cloud)


@final
class AlibabaCloudDemo:
    """One simulated cloud and what a demo does with it."""

    def __init__(self, cloud: SimulatedAlibabaCloud) -> None:
        self._cloud: Final = cloud

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead the provider here, and let it look for interruptions often."""
        return {**self._cloud.environment, "INTERRUPTION_POLL_INTERVAL": "2s"}

    @property
    def currency(self) -> str:
        """Currency of accounts of the Chinese site."""
        return "CNY"

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Everything by the tag of the cluster, and a pinned release of ContainerOS."""
        selector = [{"tags": dict(self._cloud.world.discovery)}]
        return {
            "securityGroupSelectorTerms": selector,
            "vSwitchSelectorTerms": selector,
            **_images(_OLDER),
        }

    @property
    def newer_image(self) -> Mapping[str, object]:
        """The pin, moved to a newer release."""
        return _images(_NEWER)

    def instances(self) -> Mapping[str, DemoInstance]:
        """Return every instance that is not gone."""
        return {
            self._cloud.instances.provider_id(each): DemoInstance(
                offering=_offering(each),
                image=each.image_id,
                price_per_hour=self._cloud.prices.of(each.pool),
            )
            for each in self._cloud.living()
        }

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return what kubelets have registered."""
        return self._cloud.nodes()

    def launch_calls(self) -> Sequence[LaunchCall]:
        """Return the provisioning groups that were made."""
        return [_purchase(each) for each in self._cloud.groups.results]

    def sell_out(self, offering: OfferingKey) -> None:
        """Empty a pool."""
        self._cloud.capacity.sell_out(
            capacity_type=offering.capacity_type,
            instance_type=offering.instance_type,
            zone=offering.zone,
        )

    def interrupt(self, provider_id: str) -> datetime:
        """Lock the instance, and take it when the notice has passed."""
        return self._cloud.reclaim_spot(provider_id)

    def list_resources(self) -> Collection[str]:
        """Return instances of the cluster, and the provisioning groups that have some."""
        return self._cloud.held().all


def _images(alias: str) -> Mapping[str, object]:
    return {"imageSelectorTerms": [{"alias": alias}]}


def _offering(instance: SimulatedInstance) -> OfferingKey:
    pool = instance.pool
    return OfferingKey(
        instance_type=pool.instance_type, zone=pool.zone, capacity_type=pool.capacity_type
    )


def _purchase(results: Sequence[Mapping[str, object]]) -> LaunchCall:
    """Read the results of a provisioning group."""
    bought = {
        _offering_key(each): cast("int", each["Amount"]) for each in results if each["Amount"]
    }
    return LaunchCall(
        action="CreateAutoProvisioningGroup", sold_out=[*_sold_out(results)], bought=bought
    )


def _sold_out(results: Sequence[Mapping[str, object]]) -> Iterator[OfferingKey]:
    for each in results:
        code = each.get("ErrorCode")
        if code and classify(str(code)) in SHORTAGES:
            yield _offering_key(each)


def _offering_key(told: Mapping[str, object]) -> OfferingKey:
    return OfferingKey(
        instance_type=str(told["InstanceType"]),
        zone=str(told["ZoneId"]),
        capacity_type=capacity_type_of(str(told["SpotStrategy"])),
    )
