"""Builds the simulated cloud's parts, and maps calls to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud import SharedParts
from karpenter_simulated_alibabacloud.capacity import CapacityLimits
from karpenter_simulated_alibabacloud.clusters import Clusters
from karpenter_simulated_alibabacloud.deployment_sets import DeploymentSets
from karpenter_simulated_alibabacloud.events import InstanceEvents
from karpenter_simulated_alibabacloud.group_records import GroupRecords
from karpenter_simulated_alibabacloud.images import Images
from karpenter_simulated_alibabacloud.instance_calls import InstanceCalls
from karpenter_simulated_alibabacloud.instances import Instances, SimulatedInstanceState
from karpenter_simulated_alibabacloud.kubelets import SimulatedKubelets
from karpenter_simulated_alibabacloud.metadata import MetadataService
from karpenter_simulated_alibabacloud.networks import Networks
from karpenter_simulated_alibabacloud.plan_launcher import PlanLauncher
from karpenter_simulated_alibabacloud.plans import InstancePlanChecks
from karpenter_simulated_alibabacloud.prices import Prices
from karpenter_simulated_alibabacloud.provisioning_groups import ProvisioningGroups
from karpenter_simulated_alibabacloud.reservations import Reservations
from karpenter_simulated_alibabacloud.run_instances import RunInstancesCalls
from karpenter_simulated_alibabacloud.tags import ResourceTags
from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.application import Handler, Handlers
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.images import Image
    from karpenter_simulated_alibabacloud.networks import SecurityGroup
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.types import TypeInfo
    from karpenter_simulated_alibabacloud.world import WorldPlan

__all__ = ["CloudParts"]


@final
class CloudParts:
    """Everything that the cloud keeps."""

    def __init__(
        self,
        account: Account,
        behaviour: CloudBehaviour,
        *,
        plan: WorldPlan,
        types: Iterable[TypeInfo] | None,
    ) -> None:
        self.images: Final = Images(account)
        self.instances: Final = Instances(account, behaviour)
        self.networks: Final = Networks(account, self.instances.used_addresses)
        self.clusters: Final = Clusters(account, self.images)
        self.catalogue: Final = _type_catalogue(account, plan, types)
        self.prices: Final = Prices(account, self.catalogue)
        self.capacity: Final = CapacityLimits(self.instances, self.catalogue)
        self.events: Final = InstanceEvents(account)
        self.deployment_sets: Final = DeploymentSets(account, self.instances, self.catalogue.zones)
        self.reservations: Final = Reservations(account, self.instances)
        self.metadata: Final = MetadataService(account, self.instances)
        self.kubelets: Final = SimulatedKubelets(
            account,
            behaviour,
            instances=self.instances,
            catalogue=self.catalogue,
            images=self.images,
            clusters=self.clusters,
        )
        self.behaviour: Final = behaviour
        self.catalogue.is_sold_out = self._is_told_sold_out
        self._plan_checks: Final = self._make_plan_checks()
        self._launcher: Final = self._make_launcher(account)
        self.group_records: Final = GroupRecords(account, self.instances)
        self.groups: Final = self._make_groups(account)
        self._run: Final = RunInstancesCalls(
            account,
            checks=self._plan_checks,
            launcher=self._launcher,
            images=self.images,
            prices=self.prices,
            behaviour=behaviour,
        )
        self._calls: Final = InstanceCalls(
            account,
            self.instances,
            behaviour=behaviour,
            catalogue=self.catalogue,
            reservations=self.reservations,
        )
        self._tags: Final = self._make_tags()
        self.shared: Final = SharedParts(
            behaviour=behaviour,
            instances=self.instances,
            capacity=self.capacity,
            kubelets=self.kubelets,
            prices=self.prices,
            refusals=self.groups.refusals,
        )
        self.handlers: Final[Handlers] = self._reads() | self._instance_calls()

    def _make_plan_checks(self) -> InstancePlanChecks:
        return InstancePlanChecks(
            catalogue=self.catalogue,
            networks=self.networks,
            images=self.images,
            prices=self.prices,
            deployment_sets=self.deployment_sets,
        )

    def _make_launcher(self, account: Account) -> PlanLauncher:
        return PlanLauncher(
            account,
            self.behaviour,
            instances=self.instances,
            catalogue=self.catalogue,
            capacity=self.capacity,
            networks=self.networks,
            checks=self._plan_checks,
            deployment_sets=self.deployment_sets,
            reservations=self.reservations,
        )

    def _make_groups(self, account: Account) -> ProvisioningGroups:
        return ProvisioningGroups(
            account,
            checks=self._plan_checks,
            launcher=self._launcher,
            prices=self.prices,
            capacity=self.capacity,
            records=self.group_records,
            behaviour=self.behaviour,
        )

    def _make_tags(self) -> ResourceTags:
        return ResourceTags(
            {
                "instance": self._tags_of_instance,
                "image": lambda named: _tags_of(self.images.get(named)),
                "securitygroup": lambda named: _tags_of(self.networks.security_group(named)),
            },
            instances=lambda: [(each.id, each.tags) for each in self.instances.visible],
        )

    def _reads(self) -> dict[str, Handler]:
        return {
            "cs:DescribeClusterAttachScripts": self.clusters.describe_attach_scripts,
            "cs:DescribeClusterDetail": self.clusters.describe_detail,
            "cs:DescribeClusterNodePools": self.clusters.describe_node_pools,
            "cs:DescribeKubernetesVersionMetadata": self.clusters.describe_versions,
            "ecs:DescribeAvailableResource": self.catalogue.describe_available_resource,
            "ecs:DescribeCapacityReservations": self.reservations.describe,
            "ecs:DescribeDeploymentSets": self.deployment_sets.describe,
            "ecs:DescribeImages": self.images.describe_images,
            "ecs:DescribeInstanceHistoryEvents": self.events.describe,
            "ecs:DescribeInstanceTypeFamilies": self.catalogue.describe_families,
            "ecs:DescribeInstanceTypes": self.catalogue.describe_instance_types,
            "ecs:DescribePrice": self.prices.describe_price,
            "ecs:DescribeRegions": self.catalogue.describe_regions,
            "ecs:DescribeSecurityGroups": self.networks.describe_security_groups,
            "ecs:DescribeSpotAdvice": self.prices.describe_spot_advice,
            "ecs:DescribeSpotPriceHistory": self.prices.describe_spot_price_history,
            "ecs:DescribeZones": self.catalogue.describe_zones,
            "ecs:ListTagResources": self._tags.list,
            "vpc:DescribeVSwitches": self.networks.describe_vswitches,
            "vpc:DescribeVpcs": self.networks.describe_vpcs,
        }

    def _instance_calls(self) -> dict[str, Handler]:
        return {
            "ecs:AddTags": self._tags.add,
            "ecs:CreateAutoProvisioningGroup": self.groups.create,
            "ecs:DeleteAutoProvisioningGroup": self.group_records.delete,
            "ecs:DeleteInstance": self._calls.delete_one,
            "ecs:DeleteInstances": self._calls.delete,
            "ecs:DescribeAutoProvisioningGroups": self.group_records.describe,
            "ecs:DescribeInstanceStatus": self._calls.describe_status,
            "ecs:DescribeInstances": self._calls.describe,
            "ecs:RunInstances": self._run.run,
            "ecs:StartInstance": self._calls.start_one,
            "ecs:StartInstances": self._calls.start,
            "ecs:StopInstance": self._calls.stop_one,
            "ecs:StopInstances": self._calls.stop,
            "ecs:TagResources": self._tags.tag,
            "ecs:UntagResources": self._tags.untag,
        }

    def _is_told_sold_out(self, pool: InstancePool) -> bool:
        return self.behaviour.reports_stock and self.capacity.left(pool) == 0

    def _tags_of_instance(self, named: str) -> dict[str, str] | None:
        found = self.instances.get(named)
        if found is None or self.instances.state_of(found) is SimulatedInstanceState.GONE:
            return None
        return found.tags

    def run(self, request: RequestParameters) -> Mapping[str, object]:
        """Launch instances past the endpoint: no fault and no limit is for them."""
        return self._run.run(request)

    def clear(self) -> None:
        """Forget everything but what `reset_controls` of the cloud does."""
        for part in (
            self.catalogue,
            self.clusters,
            self.deployment_sets,
            self.events,
            self.group_records,
            self.groups,
            self.images,
            self.metadata,
            self.networks,
            self.reservations,
            self._calls,
            self._run,
        ):
            part.clear()


def _tags_of(found: Image | SecurityGroup | None) -> dict[str, str] | None:
    return None if found is None else found.tags


def _type_catalogue(
    account: Account, plan: WorldPlan, types: Iterable[TypeInfo] | None
) -> TypeCatalogue:
    return TypeCatalogue(
        account,
        zones=[f"{account.region}-{each}" for each in plan.region_zones],
        zones_without_spot=[f"{account.region}-{each}" for each in plan.zones_without_spot],
        types=types,
    )
