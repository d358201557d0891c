"""A resolver over the simulated AWS, with a catalogue of three types."""

from __future__ import annotations

from itertools import count

from prometheus_client import CollectorRegistry

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.nodepool import NodePool
from karpenter_core.controllers.nodeclass.controller import resolved_status
from karpenter_core.provider.contract import UnfencedProcess
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_aws.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.discovery.images import ImageReader
from karpenter_provider_aws.discovery.parameters import SsmParameterReader
from karpenter_provider_aws.discovery.placement_groups import PlacementGroupReader
from karpenter_provider_aws.discovery.profiles import InstanceProfiles
from karpenter_provider_aws.discovery.reservations import ReservationReader
from karpenter_provider_aws.discovery.security_groups import SecurityGroupReader
from karpenter_provider_aws.discovery.subnets import SubnetReader
from karpenter_provider_aws.kubelet.sizing import KubeletSizing
from karpenter_provider_aws.launch.template_groups import ClusterDetails
from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.node_class.dry_runs import LaunchDryRuns
from karpenter_provider_aws.node_class.resolution import NodeClassDiscovery, NodeClassResolver
from karpenter_provider_aws.node_class.static_checks import early_checks, late_checks
from karpenter_provider_aws.node_class.validation import LaunchTrial, node_class_validator
from karpenter_provider_aws.settings import AwsSettings


def sold(name, price, **options):
    return instance_type(name, offerings=[offering("us-east-1a", "on-demand", price)], **options)


TYPES = (
    sold("m5.large", 0.096),
    sold("m6g.large", 0.077, arch="arm64"),
    sold("c5.large", 0.085),
)


class ThreeTypes:
    """A catalogue of three types, and the NodePools that are known."""

    def __init__(self, types=TYPES, pools=()):
        self.types, self.pools, self.error = types, pools, None

    def instance_types(self, _node_class):
        if self.error:
            raise self.error
        return self.types

    def sizing_of(self, _node_class):
        sizing = KubeletSizing(max_pods=29, pods=29, kube_reserved={}, system_reserved={})
        return lambda _instance_type: sizing

    def node_pools(self, _node_class):
        return self.pools


def node_pool(name, *requirements, labels=None):
    return NodePool.model_validate(
        {
            "metadata": {"name": name},
            "spec": {
                "template": {
                    "metadata": {"labels": labels or {}},
                    "spec": {
                        "nodeClassRef": {
                            "group": "karpenter.k8s.aws",
                            "kind": "EC2NodeClass",
                            "name": "default",
                        },
                        "requirements": [
                            {"key": key, "operator": "In", "values": list(values)}
                            for key, *values in requirements
                        ],
                    },
                }
            },
        }
    )


class Parts:
    """The parts of one process that resolve NodeClasses."""

    def __init__(
        self,
        aws,
        clients,
        clock,
        *,
        version="1.34",
        uses_reservations=True,
        infos=(),
        cidrs=(),
        **settings,
    ):
        self.aws, self.clock = aws, clock
        cluster = aws.world.cluster
        read = AwsSettings(cluster_name=cluster, **settings)
        ids = count()
        self.catalogue = ThreeTypes()
        self.subnets = SubnetReader(clients, clock, refresh_interval=read.subnet_refresh_interval)
        self.profiles = InstanceProfiles(
            clients,
            clock,
            cluster=cluster,
            new_id=lambda: f"{id(self)}-{next(ids)}",
            fence=UnfencedProcess(),
            isolated=read.isolated_vpc,
        )
        groups = PlacementGroupReader(clients, clock)
        discovery = NodeClassDiscovery(
            subnets=self.subnets,
            security_groups=SecurityGroupReader(clients, clock),
            images=ImageReader(
                clients,
                clock,
                parameters=SsmParameterReader(clients, clock),
                kubernetes_version=lambda: version,
                refresh_interval=read.ami_refresh_interval,
            ),
            placement_groups=groups,
            profiles=self.profiles,
            reservations=ReservationReader(clients, clock) if uses_reservations else None,
        )
        network = ServiceNetwork(clients, cluster=cluster, known=lambda: cidrs)
        self.templates = ClusterLaunchTemplates(
            clients, clock, cluster=cluster, sizes=UserDataSizes(CollectorRegistry())
        )
        self.trial = LaunchTrial(
            LaunchDryRuns(clients, self.templates),
            self.catalogue,
            cluster=lambda: ClusterDetails(
                name=cluster,
                endpoint="https://cluster",
                region=aws.account.region,
                service_cidr=network.cidr,
            ),
            find_group=lambda nc: groups.find(nc.spec.placement_group_selector),
        )
        validator = node_class_validator(
            clock,
            checks=early_checks(read, network),
            late_checks=late_checks(read, lambda: infos),
            trial=None if read.disable_dry_run else self.trial,
        )
        self.resolver = NodeClassResolver(discovery, validator, clock)
        self.finalizer = NodeClassFinalizer(
            self.profiles.remove_all,
            lambda node_class: self.templates.delete_all(node_class.name),
            forget=self.resolver.forget,
        )

    def node_class(self, *, uid="uid-1", generation=1, annotations=None, **spec):
        """Return a NodeClass that can be used, but for what is given."""
        tags = dict(self.aws.world.discovery)
        fields = {
            "subnet_selector_terms": [{"tags": tags}],
            "security_group_selector_terms": [{"tags": tags}],
            "ami_selector_terms": [{"alias": "al2023@latest"}],
            **spec,
        }
        if "instance_profile" not in fields:
            fields.setdefault("role", self.aws.world.role)
        return EC2NodeClass(
            metadata=ObjectMeta(
                name="default", uid=uid, generation=generation, annotations=annotations or {}
            ),
            spec=EC2NodeClassSpec.model_validate(fields),
        )

    def resolve(self, node_class):
        """Resolve, and return the NodeClass as the core then writes it."""
        return applied(node_class, self.resolver.resolve(node_class), self.clock)


def applied(node_class, resolution, clock):
    """Return a NodeClass with the status that the core writes after a resolution."""
    fields = resolved_status(node_class, resolution, now=clock.now())
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    status = type(node_class.status).model_validate({**before, **fields})
    return node_class.model_copy(update={"status": status})


def conditions(node_class):
    """Return conditions by type."""
    return {condition.type: condition for condition in node_class.status.conditions}


def statuses(node_class):
    """Return each condition's status by type."""
    return {condition.type: condition.status for condition in node_class.status.conditions}
