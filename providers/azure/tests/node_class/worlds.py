"""A NodeClass resolver over a table of Azure's answers and of the cluster's objects."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.api.base import ObjectMeta
from karpenter_core.controllers.nodeclass.controller import resolved_status
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_provider_azure.api.nodeclass import AKSNodeClass, AKSNodeClassStatus
from karpenter_provider_azure.images.discovery import (
    CommunityGalleries,
    ImageReader,
    SharedGalleries,
)
from karpenter_provider_azure.images.maintenance import (
    END_KEY,
    START_KEY,
    MaintenanceWindowReader,
)
from karpenter_provider_azure.network.cluster_network import SecurityGroupReader, VnetGuidReader
from karpenter_provider_azure.network.subnets import ClusterNetwork, SubnetReader
from karpenter_provider_azure.node_class.images import ImageResolver
from karpenter_provider_azure.node_class.local_dns import LocalDnsResolver
from karpenter_provider_azure.node_class.resolution import (
    NodeClassPartResolvers,
    node_class_resolver,
)
from karpenter_provider_azure.node_class.subnets import SubnetResolver
from karpenter_provider_azure.node_class.validation import (
    DiskEncryptionSetCheck,
    launch_refusal,
    node_class_validator,
)
from providers.azure.tests.arm.values import GROUP, SUBNET, SUBSCRIPTION, settings_for
from providers.azure.tests.fake_arm import FakeArm, FakeObjects, HandClock

COMPUTE = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/westus2"
GALLERIES = {
    "2": "AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2",
    "V": "AKSAzureLinux-f7c7cda5-1c9a-4bdc-a222-9614c968580b",
}
NODE_IMAGES = (
    f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.ContainerService/locations/westus2"
    "/nodeImageVersions"
)
SECURITY_GROUPS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network"
    "/networkSecurityGroups"
)
DES = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/keys/providers/Microsoft.Compute"
    "/diskEncryptionSets/des"
)


def definition_path(definition):
    gallery = GALLERIES[definition[0]]
    return f"{COMPUTE}/communityGalleries/{gallery}/images/{definition}/versions"


def node_class_of(*, generation=1, status=None, **spec):
    """Return an AKSNodeClass; fields of the spec have the names of the API."""
    return AKSNodeClass.model_validate(
        {
            "metadata": ObjectMeta(name="web", uid="uid-web", generation=generation).model_dump(),
            "spec": spec,
            "status": status or {},
        }
    )


class Process:
    """Resolves NodeClasses, and writes the answers into them as the core does."""

    def __init__(self, *, version="v1.33.2", arm=None, settings=None, **changes):
        """Without `arm` and `settings` Azure is a table of answers."""
        self.arm, self.clock, self.objects = arm or FakeArm(), HandClock(), FakeObjects()
        self.facts = ClusterFacts(version=version)
        self.settings = settings or settings_for(**{"vnet_guid": "guid", **changes})
        if arm is None:
            self.arm.put(SUBNET, {"name": "nodes"})
            self.arm.put(SECURITY_GROUPS, [])
            self.publish("1.0.0")
        self.refused_launches = RefusedLaunches(self.clock, launch_refusal)
        self.restart()

    def restart(self):
        """Forget what was cached."""
        settings, arm, clock = self.settings, self.arm, self.clock
        galleries = (
            SharedGalleries(arm, gallery_subscription_id=settings.sig_subscription_id)
            if settings.use_sig
            else CommunityGalleries(arm)
        )
        resolvers = NodeClassPartResolvers(
            facts=self.facts,
            images=ImageResolver(
                ImageReader(clock, galleries),
                MaintenanceWindowReader(clock, self.objects, namespace="kube-system"),
                uses_shared_galleries=settings.use_sig,
            ),
            subnets=SubnetResolver(
                SubnetReader(arm, clock),
                guid=VnetGuidReader(arm, clock, settings),
                security_groups=SecurityGroupReader(
                    arm, clock, node_resource_group=settings.node_resource_group
                ),
                cluster=ClusterNetwork(
                    vnet_subnet_id=settings.vnet_subnet_id,
                    node_resource_group=settings.node_resource_group,
                ),
            ),
            local_dns=LocalDnsResolver(
                self.objects,
                network_plugin=settings.network_plugin,
                network_policy=settings.network_policy,
                preferred_since=settings.local_dns_preferred_since,
            ),
        )
        validator = node_class_validator(
            clock,
            DiskEncryptionSetCheck(arm, settings.node_osdisk_diskencryptionset_id),
            refused_launches=self.refused_launches,
            additional_tags=settings.additional_tags,
        )
        self.resolver = node_class_resolver(resolvers, validator)

    def publish(self, version, *definitions):
        """Publish a version of some definitions, by default of all; it is the newest."""
        published = {"publishedDate": self.clock.now().isoformat()}
        for definition in definitions or (
            "2204gen2containerd",
            "2204containerd",
            "2204gen2arm64containerd",
            "2404gen2containerd",
            "V3gen2",
        ):
            self.arm.put(definition_path(definition), [{"name": version, "properties": published}])

    def set_window(self, start, end):
        """Set the maintenance window, in hours from now; without hours there is none."""
        now = self.clock.now()
        times = {START_KEY: start, END_KEY: end}
        data = {
            key: (now + timedelta(hours=hours)).isoformat()
            for key, hours in times.items()
            if hours is not None
        }
        self.objects.objects["configmaps"] = [{"data": data}]

    def upgrade(self, version):
        """Upgrade the API server."""
        self.facts.version = version

    def answer(self, node_class):
        return self.resolver.resolve(node_class)

    def resolve(self, node_class):
        """Return the NodeClass with what was found in its status."""
        fields = resolved_status(node_class, self.answer(node_class), now=self.clock.now())
        before = node_class.status.model_dump(mode="json", exclude_none=True)
        status = AKSNodeClassStatus.model_validate({**before, **fields})
        return node_class.model_copy(update={"status": status})

    def later(self, **amount):
        self.clock.forward(**amount)


def said(node_class, condition_type):
    """Return status, reason and message of a condition."""
    found = {c.type: (c.status, c.reason, c.message) for c in node_class.status.conditions}
    return found[condition_type]


def short_ids(node_class):
    """Return definition and version of the images."""
    return [
        image.id.split("/images/")[1].replace("/versions/", " ")
        for image in node_class.status.images
    ]
