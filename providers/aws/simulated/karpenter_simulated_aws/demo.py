"""The simulated AWS for `karpenter demo --provider aws`."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import OfferingKey
from karpenter_core.provider.kit.demo_cloud import DemoInstance, LaunchCall
from karpenter_simulated_aws.cloud import SimulatedAws
from karpenter_simulated_aws.instances import CapacityType
from karpenter_simulated_aws.world import WorldPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_aws.instances import SimulatedInstance

__all__ = ["simulated_cloud"]

_CLUSTER: Final = "karpenter-demo"
_OLDER, _NEWER = "al2023@v20260112", "al2023@v20260608"
_NO_CERTIFICATE: Final = base64.b64encode(b"simulated").decode()


@contextmanager
def simulated_cloud() -> Generator[AwsDemo]:
    """Serve an account with a network, a node role and a queue, where instances take seconds to boot."""
    with SimulatedAws(plan=WorldPlan(cluster=_CLUSTER)) as aws:
        aws.behaviour.pending_seconds = 1
        aws.behaviour.boot_seconds = 3
        aws.behaviour.shutting_down_seconds = 1
        aws.behaviour.announce_states = True
        yield AwsDemo(aws)


@final
class AwsDemo:
    """One simulated AWS and what a demo does with it."""

    def __init__(self, aws: SimulatedAws) -> None:
        self._aws: Final = aws

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of boto3, and the settings without which no node joins."""
        return {
            **self._aws.environment,
            "CLUSTER_NAME": self._aws.world.cluster,
            "CLUSTER_ENDPOINT": "https://api.simulated",
            "CLUSTER_CA_BUNDLE": _NO_CERTIFICATE,
            "INTERRUPTION_QUEUE": self._aws.world.queue,
        }

    @property
    def currency(self) -> str:
        """Currency of AWS's bills."""
        return "USD"

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Everything by the tag of the cluster, and a pinned release of Amazon Linux."""
        selector = [{"tags": dict(self._aws.world.discovery)}]
        return {
            "role": self._aws.world.role,
            "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector,
            **_images(_OLDER),
        }

    @property
    def newer_image(self) -> Mapping[str, object]:
        """The pin, moved to a newer release."""
        return _images(_NEWER)

    def instances(self) -> Mapping[str, DemoInstance]:
        """Return every instance that is not terminated."""
        return {
            each.provider_id: DemoInstance(
                offering=_offering(each), image=each.image_id, price_per_hour=self._price(each)
            )
            for each in self._aws.living()
        }

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return what kubelets have registered."""
        return self._aws.nodes()

    def launch_calls(self) -> Sequence[LaunchCall]:
        """Return the fleets that were made."""
        return [_purchase(each.answer) for each in self._aws.fleets.all]

    def sell_out(self, offering: OfferingKey) -> None:
        """Empty a pool."""
        self._aws.capacity.sell_out(
            capacity_type=offering.capacity_type,
            instance_type=offering.instance_type,
            zone=offering.zone,
        )

    def interrupt(self, provider_id: str) -> datetime:
        """Warn by the queue, and take the instance when the notice has passed."""
        self._aws.reclaim_spot(provider_id)
        return self._aws.account.clock() + timedelta(
            seconds=self._aws.behaviour.spot_notice_seconds
        )

    def list_resources(self) -> Collection[str]:
        """Return instances, launch templates and instance profiles of the cluster."""
        return self._aws.held().all

    def _price(self, instance: SimulatedInstance) -> float:
        if instance.capacity_type is CapacityType.SPOT:
            return self._aws.prices.spot(instance.instance_type, instance.zone)
        return self._aws.prices.on_demand(instance.instance_type)


def _images(alias: str) -> Mapping[str, object]:
    return {"amiSelectorTerms": [{"alias": alias}]}


def _offering(instance: SimulatedInstance) -> OfferingKey:
    return OfferingKey(
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=str(instance.capacity_type),
    )


def _purchase(answer: Mapping[str, object]) -> LaunchCall:
    """Read an answer of CreateFleet."""
    errors = cast("Sequence[Mapping[str, object]]", answer["Errors"])
    instances = cast("Sequence[Mapping[str, object]]", answer["Instances"])
    return LaunchCall(
        action="CreateFleet",
        sold_out=[
            _offering_key(each)
            for each in errors
            if each["ErrorCode"] == "InsufficientInstanceCapacity"
        ],
        bought={
            _offering_key(each): len(cast("Sequence[str]", each["InstanceIds"]))
            for each in instances
        },
    )


def _offering_key(told: Mapping[str, object]) -> OfferingKey:
    choice = cast("Mapping[str, Mapping[str, str]]", told["LaunchTemplateAndOverrides"])
    overrides = choice["Overrides"]
    return OfferingKey(
        instance_type=overrides["InstanceType"],
        zone=overrides["AvailabilityZone"],
        capacity_type=str(told["Lifecycle"]),
    )
