"""The NodeClass resolver of one process, over the simulated cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClassStatus
from karpenter_provider_alibabacloud.bootstrap.scripts import AttachScripts
from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
from karpenter_provider_alibabacloud.node_class.dry_runs import LaunchDryRuns
from karpenter_provider_alibabacloud.node_class.refused_launches import launch_refusal
from karpenter_provider_alibabacloud.node_class.resolution import (
    NodeClassDiscovery,
    node_class_resolver,
)
from karpenter_provider_alibabacloud.node_class.validation import node_class_validator
from providers.alibabacloud.tests.discovery.worlds import Readers

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.contract import NodeClassResolution
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


class Trial:
    """Makes the request of a launch that is tried out, as launches do."""

    def __init__(self, cloud: SimulatedAlibabaCloud) -> None:
        self._cloud = cloud
        self.error: Exception | None = None

    def request(self, node_class: ECSNodeClass, user_data: str) -> dict[str, object]:
        if self.error is not None:
            raise self.error
        status = node_class.status
        return {
            "RegionId": self._cloud.account.region,
            "InstanceType": "ecs.g7.large",
            "ImageId": status.images[-1].id,
            "VSwitchId": status.v_switches[0].id,
            "SecurityGroupIds": [group.id for group in status.security_groups],
            "SystemDisk": {"Category": "cloud_essd", "Size": "20"},
            "UserData": user_data,
            "Amount": 1,
        }


class Process:
    """Resolves NodeClasses, and writes answers into them as the core does."""

    def __init__(
        self,
        cloud: SimulatedAlibabaCloud,
        clients: CloudClients,
        *,
        cluster_type: str = "ACKManaged",
        dry_runs: bool = False,
    ) -> None:
        is_custom = cluster_type == "Custom"
        self.readers = Readers(cloud, clients, cluster_type=cluster_type)
        self.clock = self.readers.clock
        self.clock.passed = cloud.time() - self.clock.now()  # the cloud's tokens end by it
        scripts = AttachScripts(clients, self.clock, cluster_id=cloud.world.cluster)
        self.trial = Trial(cloud)
        self.refused_launches = RefusedLaunches(self.clock, launch_refusal)
        validator = node_class_validator(
            self.clock,
            bootstrapper=UserDataBuilder(
                None if is_custom else scripts, cluster_id=cloud.world.cluster
            ),
            dry_runs=LaunchDryRuns(clients) if dry_runs else None,
            launch=self.trial,
            refused_launches=self.refused_launches,
            is_custom=is_custom,
        )
        self.resolver = node_class_resolver(
            NodeClassDiscovery(
                vswitches=self.readers.vswitches,
                security_groups=self.readers.security_groups,
                images=self.readers.images,
                reservations=self.readers.reservations,
            ),
            validator,
            self.clock,
        )
        self.finalizer = NodeClassFinalizer(forget=self.resolver.forget)

    def resolve(self, node_class: ECSNodeClass) -> ECSNodeClass:
        """Return the NodeClass with what was found."""
        return written(node_class, self.resolver.resolve(node_class))

    def later(self, **amount: float) -> None:
        """Let time pass, and with it what is kept of the cloud's answers."""
        self.clock.forward(**amount)


def written(node_class: ECSNodeClass, resolution: NodeClassResolution) -> ECSNodeClass:
    """Return the NodeClass with an answer in its status, as the core writes it."""
    generation = node_class.metadata.generation
    conditions = {c.type: c for c in node_class.status.conditions}
    for condition in resolution.conditions:
        observed = condition.model_copy(update={"observed_generation": generation})
        conditions[condition.type] = observed
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    after = {**before, **resolution.status}
    after["conditions"] = [
        c.model_dump(mode="json", exclude_none=True) for c in conditions.values()
    ]
    status = ECSNodeClassStatus.model_validate(after)
    return node_class.model_copy(update={"status": status})


def said(node_class: ECSNodeClass, condition_type: str) -> tuple[str, str, str]:
    """Return status, reason and message of a condition."""
    condition = find_condition(node_class.status.conditions, condition_type)
    assert condition is not None, condition_type
    return condition.status, condition.reason, condition.message


@pytest.fixture
def make_process(cloud: SimulatedAlibabaCloud, clients: CloudClients) -> Callable[..., Process]:
    return lambda **more: Process(cloud, clients, **more)


@pytest.fixture
def process(make_process: Callable[..., Process]) -> Process:
    return make_process()
