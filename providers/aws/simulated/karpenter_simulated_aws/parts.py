"""Builds the simulated cloud's parts, and maps calls to them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud import SharedParts
from karpenter_simulated_aws.capacity import CapacityLimits
from karpenter_simulated_aws.clusters import Cluster, Clusters, ZonalShifts
from karpenter_simulated_aws.fleets import Fleets
from karpenter_simulated_aws.images import Images, SsmParameters
from karpenter_simulated_aws.instance_calls import InstanceCalls
from karpenter_simulated_aws.instances import Instances
from karpenter_simulated_aws.kubelets import SimulatedKubelets
from karpenter_simulated_aws.messages import EventBridgeMessages
from karpenter_simulated_aws.networks import Networks
from karpenter_simulated_aws.placement import PlacementGroups
from karpenter_simulated_aws.plan_launcher import PlanLauncher
from karpenter_simulated_aws.plans import InstancePlanChecks
from karpenter_simulated_aws.prices import Prices
from karpenter_simulated_aws.profiles import SimulatedProfiles
from karpenter_simulated_aws.releases import ImageReleases
from karpenter_simulated_aws.reservations import Reservations
from karpenter_simulated_aws.run_instances import RunInstancesCalls
from karpenter_simulated_aws.tags import ResourceTags
from karpenter_simulated_aws.templates import LaunchTemplates
from karpenter_simulated_aws.type_catalogue import TypeCatalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.behaviour import CloudBehaviour
    from karpenter_simulated_aws.server import Handler, Handlers
    from karpenter_simulated_aws.world import WorldPlan

__all__ = ["CloudParts"]


_OFFERINGS: Final = "ec2:DescribeInstanceTypeOfferings"
_PRODUCTS: Final = "pricing:GetProducts"


@final
class CloudParts:
    """Everything that the cloud keeps itself; the rest is moto's."""

    unchanging: Final = frozenset({"ec2:DescribeInstanceTypes", _OFFERINGS, _PRODUCTS})
    checks_dry_runs: Final = frozenset(
        {"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:RunInstances"}
    )

    def __init__(
        self,
        account: Account,
        behaviour: CloudBehaviour,
        *,
        instance_types: Collection[str] | None,
        prices: Mapping[str, float] | None,
        send: Callable[[str, int], None],
    ) -> None:
        self.instances: Final = Instances(account.clock, behaviour)
        self.catalogue: Final = TypeCatalogue(account, instance_types)
        self.capacity: Final = CapacityLimits(self.instances, self.catalogue)
        self.clusters: Final = Clusters(account)
        self.images: Final = Images(account)
        self.kubelets: Final = SimulatedKubelets(
            account,
            behaviour,
            instances=self.instances,
            catalogue=self.catalogue,
            images=self.images,
        )
        self.messages: Final = EventBridgeMessages(account, send)
        self.networks: Final = Networks(account, self.instances.used_addresses)
        self.parameters: Final = SsmParameters(account)
        self.placement_groups: Final = PlacementGroups(account, self.instances)
        self.prices: Final = Prices(account, self.catalogue, prices)
        self.profiles: Final = SimulatedProfiles(account)
        self.releases: Final = ImageReleases(account, self.images, self.parameters)
        self.reservations: Final = Reservations(account, self.instances)
        self.templates: Final = LaunchTemplates(account)
        self.zonal_shifts: Final = ZonalShifts(account)
        self._plan_checks: Final = self._make_plan_checks()
        self._launcher: Final = self._make_launcher(account)
        self.fleets: Final = self._make_fleets(account, behaviour)
        self._calls: Final = InstanceCalls(account, self.instances)
        self._run: Final = RunInstancesCalls(
            account,
            checks=self._plan_checks,
            launcher=self._launcher,
            templates=self.templates,
            networks=self.networks,
            calls=self._calls,
        )
        self.tags: Final = self._make_tags(account)
        self.shared: Final = SharedParts(
            behaviour=behaviour,
            instances=self.instances,
            capacity=self.capacity,
            kubelets=self.kubelets,
            prices=self.prices,
            refusals=self.fleets.refusals,
        )
        self.handlers: Final[Handlers] = self._reads() | self._changes()

    def _make_plan_checks(self) -> InstancePlanChecks:
        return InstancePlanChecks(
            catalogue=self.catalogue,
            networks=self.networks,
            images=self.images,
            profiles=self.profiles,
            reservations=self.reservations,
            groups=self.placement_groups,
        )

    def _make_launcher(self, account: Account) -> PlanLauncher:
        return PlanLauncher(
            account,
            instances=self.instances,
            capacity=self.capacity,
            networks=self.networks,
            images=self.images,
            profiles=self.profiles,
            reservations=self.reservations,
            groups=self.placement_groups,
        )

    def _make_fleets(self, account: Account, behaviour: CloudBehaviour) -> Fleets:
        return Fleets(
            account,
            behaviour,
            checks=self._plan_checks,
            launcher=self._launcher,
            templates=self.templates,
            networks=self.networks,
            prices=self.prices,
            instances=self.instances,
        )

    def _make_tags(self, account: Account) -> ResourceTags:
        return ResourceTags(
            account,
            instances=self.instances,
            images=self.images,
            kept={
                "cr": self.reservations.tagged,
                "lt": self.templates.tagged,
                "pg": self.placement_groups.tagged,
            },
        )

    def _reads(self) -> dict[str, Handler]:
        return {
            "arc-zonal-shift:GetManagedResource": self.zonal_shifts.get_managed_resource,
            "ec2:DescribeCapacityReservations": self.reservations.describe,
            "ec2:DescribeFleets": self.fleets.describe,
            "ec2:DescribeImages": self.images.describe_images,
            "ec2:DescribeInstanceStatus": self._calls.describe_status,
            "ec2:DescribeInstanceTypeOfferings": self.catalogue.describe_instance_type_offerings,
            "ec2:DescribeInstanceTypes": self.catalogue.describe_instance_types,
            "ec2:DescribeInstances": self._calls.describe,
            "ec2:DescribeLaunchTemplateVersions": self.templates.describe_versions,
            "ec2:DescribeLaunchTemplates": self.templates.describe,
            "ec2:DescribePlacementGroups": self.placement_groups.describe,
            "ec2:DescribeSecurityGroups": self.networks.describe_security_groups,
            "ec2:DescribeSpotPriceHistory": self.prices.describe_spot_price_history,
            "ec2:DescribeSubnets": self.networks.describe_subnets,
            "eks:DescribeCluster": self.clusters.describe,
            "iam:ListInstanceProfiles": self.profiles.list_instance_profiles,
            "pricing:GetProducts": self.prices.get_products,
            "ssm:GetParameter": self.parameters.get_parameter,
            "ssm:GetParameters": self.parameters.get_parameters,
        }

    def _changes(self) -> dict[str, Handler]:
        return {
            "ec2:CancelCapacityReservation": self.reservations.cancel,
            "ec2:CreateCapacityReservation": self.reservations.create,
            "ec2:CreateFleet": self.fleets.create,
            "ec2:CreateLaunchTemplate": self.templates.create,
            "ec2:CreateLaunchTemplateVersion": self.templates.create_version,
            "ec2:CreatePlacementGroup": self.placement_groups.create,
            "ec2:CreateTags": self.tags.create,
            "ec2:DeleteFleets": self.fleets.delete,
            "ec2:DeleteLaunchTemplate": self.templates.delete,
            "ec2:DeletePlacementGroup": self.placement_groups.delete,
            "ec2:DeleteTags": self.tags.delete,
            "ec2:DeregisterImage": self.images.deregister_image,
            "ec2:ModifyCapacityReservation": self.reservations.modify,
            "ec2:ModifyInstanceAttribute": self._calls.modify_attribute,
            "ec2:RunInstances": self._run.run,
            "ec2:TerminateInstances": self._calls.terminate,
        }

    def on_change(self, forget: Callable[..., None]) -> None:
        """Have it told which unchanging actions answer otherwise from now on."""
        self.prices.changed = partial(forget, _PRODUCTS)
        self.catalogue.changed = partial(forget, _OFFERINGS, _PRODUCTS)

    def clear(self) -> None:
        """Forget everything but what `reset_controls` of the cloud does."""
        self.catalogue.clear()
        self.clusters.clear()
        self.fleets.clear()
        self.images.clear()
        self.parameters.clear()
        self.placement_groups.clear()
        self.reservations.clear()
        self.templates.clear()
        self.zonal_shifts.clear()
        self._run.clear()

    def build(self, plan: WorldPlan) -> None:
        """Make what the ready world has of these parts: images, the cluster and its zonal shifts."""
        self.releases.publish_all()
        self.clusters.add(Cluster(name=plan.cluster, version=plan.kubernetes))
        self.zonal_shifts.register(self.clusters.arn(plan.cluster))
