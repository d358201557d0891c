"""A cluster's virtual machines in the simulated Azure, and the parts of one process that looks after them,
through the real SDK; its clock is the cloud's."""

from __future__ import annotations

import os
from types import SimpleNamespace

from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.instance_tags import instance_tags
from karpenter_provider_azure.instances.vm_reader import VmReader
from karpenter_provider_azure.interruption.sources import InterruptionSources
from karpenter_provider_azure.launch.node_network import NetworkInterface, network_profile
from karpenter_provider_azure.launch.vm_calls import VmCalls
from karpenter_provider_azure.settings import SETTINGS, AzureSettings
from karpenter_provider_azure.vm_parts import InstanceParts

from .fake_azure import Fence


def read_settings():
    """Return the settings of the environment, as the process reads them."""
    settings = load_settings((), dict(os.environ), plugin_options=SETTINGS)
    cluster = ClusterFacts(name=os.environ["CLUSTER_NAME"])
    return AzureSettings.from_context(SimpleNamespace(settings=settings.plugins, cluster=cluster))


class CloudClock:
    def __init__(self, cloud):
        self.cloud = cloud

    def now(self):
        return self.cloud.time()

    def monotonic(self):
        return self.now().timestamp()

    def forward(self, seconds):
        self.cloud.time.advance(seconds)


class SimulatedWorld:
    def __init__(self, cloud, settings):
        self.cloud, self.settings = cloud, settings
        self.clock, self.fence = CloudClock(cloud), Fence()
        self.claims = {}
        self.client = ArmClient(
            settings, sleep=lambda _seconds: None, observe_remaining=None, observe=None
        )
        self.reader = VmReader(self.client, settings)
        self.recent = RecentLaunches(self.clock)
        self.node_classes, self.nodes = {}, {}
        context = SimpleNamespace(
            clock=self.clock,
            fence=self.fence,
            read_claims=lambda: self.claims,
            read_nodes=lambda: self.nodes,
        )
        services = SimpleNamespace(
            context=context,
            settings=settings,
            arm=self.client,
            node_classes=SimpleNamespace(node_class=self.node_classes.get),
        )
        launch = SimpleNamespace(
            reader=self.reader,
            recent=self.recent,
            calls=VmCalls(
                self.client, settings, self.fence, image_headers=dict, note_deleted=lambda: None
            ),
        )
        interruptions = InterruptionSources(self.clock, UnavailableOfferings())
        self.parts = InstanceParts(services, launch, interruptions)
        self.instances, self.orphans = self.parts.instances, self.parts.orphans

    def tags(self, claim):
        return instance_tags(
            {},
            additional_tags={},
            cluster=self.settings.cluster_name,
            claim_uid=f"uid-of-{claim}",
            node_pool="web",
        )

    def create(self, claim, **fields):
        """Create the virtual machine of a claim and let it boot; return its provider ID."""
        name, tags = f"aks-{claim}", self.tags(claim)
        interface = NetworkInterface(name=name, subnet_id=self.settings.vnet_subnet_id)
        properties = {"networkProfile": network_profile(interface, tags)}
        provider_id = self.cloud.create_vm(name, tags=tags, properties=properties, **fields)
        self.clock.forward(120)
        return provider_id
