"""Launches in the simulated Azure, through its real SDK."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.conditions import TRUE, Condition
from karpenter_core.provider.contract import ClusterFacts, LaunchRequest, ProviderContext
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.arm.credentials import find_credential
from karpenter_provider_azure.catalogue.instance_types import (
    CatalogueSettings,
    InstanceTypeCatalogue,
)
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader
from karpenter_provider_azure.cloud_environment import named_environment, read_environment_file
from karpenter_provider_azure.instances.vm_reader import VmReader
from karpenter_provider_azure.launch.extensions import ExtensionInstaller
from karpenter_provider_azure.launch.launch_parts import LaunchMarket, LaunchParts
from karpenter_provider_azure.launch.metrics import LaunchMetrics
from karpenter_provider_azure.launch.node_boot import NodeBoot
from karpenter_provider_azure.launch.node_network import NodeNetwork
from karpenter_provider_azure.network.backend_pools import BackendPoolReader
from karpenter_provider_azure.network.security_groups import SecurityGroupReader
from karpenter_provider_azure.price_items import ListedPrices
from karpenter_provider_azure.prices import RegionPrices
from karpenter_simulated_azure.cloud import SimulatedAzure
from providers.azure.tests.arm.values import settings_for
from providers.azure.tests.launch.launch_world import claim

QUICK = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    first_backoff_seconds=0.01,
    longest_backoff_seconds=2,
)
_folders = count()


class RealClock:
    """The clock of the machine, and the time that tests add."""

    def __init__(self, cloud: SimulatedAzure) -> None:
        self._cloud = cloud

    def now(self) -> datetime:
        return self._cloud.time()

    def monotonic(self) -> float:
        return self._cloud.time().timestamp()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class RealLaunches:
    """The launch parts of a process, and all that they need, in the simulated Azure."""

    def __init__(self, cloud: SimulatedAzure, folder: Any, **changes: Any) -> None:
        self.cloud = cloud
        self.folder = folder
        self.changes = changes
        self.claims: dict[str, Any] = {}
        self.clients: list[ArmClient] = []
        self.start()

    def start(self) -> None:
        """Begin a process, which remembers nothing."""
        cloud, world = self.cloud, self.cloud.world
        self.settings = settings_for(
            **{
                "cloud": read_environment_file(cloud.environment["AZURE_ENVIRONMENT_FILEPATH"]),
                "ca_bundle": cloud.ca_bundle,
                "azure_subscription_id": world.subscription_id,
                "node_resource_group": world.node_group,
                "vnet_subnet_id": world.subnet_id,
                "location": world.location,
                "node_identities": world.identity_ids,
                "dns_service_ip": "10.0.0.10",
                "vnet_guid": world.vnet_guid,
                "ssh_public_key": cloud.environment["SSH_PUBLIC_KEY"],
                **self.changes,
            }
        )
        settings = self.settings
        credential = find_credential(settings.cloud, ca_bundle=settings.ca_bundle)
        arm = ArmClient(settings, credential=credential, retries=QUICK)
        self.clients.append(arm)
        clock, folder = RealClock(cloud), self.folder / str(next(_folders))
        folder.mkdir()
        self.registry = CollectorRegistry()
        subscription = f"/subscriptions/{world.subscription_id}/providers/Microsoft.Compute"
        self.quotas = RegionQuotas(
            clock,
            fetch=lambda: arm.list_all(
                f"{subscription}/locations/{world.location}/usages",
                api_version="2024-07-01",
                action="usages:list",
            ),
        )
        self.sizes = RegionSizeReader(
            world.location,
            clock,
            folder,
            fetch=lambda: arm.list_all(
                f"{subscription}/skus",
                api_version="2021-07-01",
                action="skus:list",
                query={"$filter": f"location eq '{world.location}'"},
            ),
        )
        self.unavailable = UnavailableOfferings()
        prices = RegionPrices(world.location)
        names = {name: size.cpus for name, size in self.sizes.current()[0].items()}
        prices.update(
            ListedPrices(
                {name: cpus * 0.05 for name, cpus in names.items()},
                {name: cpus * 0.02 for name, cpus in names.items()},
            ),
            now=clock.now(),
        )
        self.catalogue = InstanceTypeCatalogue(
            CatalogueSettings(location=world.location, cluster="mc_demo"),
            clock,
            sizes=self.sizes.current,
            prices=prices,
            quotas=self.quotas,
            unavailable_offerings=self.unavailable,
            learned=LearnedMemory(DiskCache(folder, "memory", version="1"), now=clock.now()),
        )
        security_groups = SecurityGroupReader(
            arm, clock, node_resource_group=settings.node_resource_group
        )
        context = ProviderContext(
            settings={},
            clock=clock,
            cache_folder=folder,
            metrics=self.registry,
            cluster=ClusterFacts(name="demo", ca_bundle="-----BEGIN CERTIFICATE-----\n"),
            nodes=None,
            read_nodes=dict,
            wake=lambda _name: None,
            read_claims=lambda: self.claims,
        )
        self.clock, self.vms = clock, VmReader(arm, settings)
        self.parts = LaunchParts(
            context,
            settings,
            arm,
            market=LaunchMarket(
                sizes=self.sizes,
                types=self.catalogue,
                quotas=self.quotas,
                unavailable_offerings=self.unavailable,
            ),
            network=NodeNetwork(
                settings,
                pools=BackendPoolReader(
                    arm, clock, node_resource_group=settings.node_resource_group
                ),
                security_groups=security_groups,
            ),
            boot=NodeBoot(
                settings,
                context.cluster,
                vnet_guid=lambda: settings.vnet_guid,
                security_group=security_groups.current,
            ),
            list_vms=self.vms.of_cluster,
            node_class=lambda _name: self.node_class(),
            recent=RecentLaunches(clock),
            observer=LaunchMetrics(self.registry, lambda metric: metric),
        )

    def billing_installer(self) -> ExtensionInstaller:
        """Return an installer of a new process, in a cloud that bills nodes by an extension."""
        return ExtensionInstaller(
            replace(self.settings, cloud=named_environment("")),
            self.clock,
            calls=self.parts.calls,
            list_vms=lambda: self.vms.of_cluster().instances,
            read_claims=lambda: self.claims,
            scripts=None,
        )

    def node_class(self, **spec: Any) -> AKSNodeClass:
        """Return a NodeClass that is ready."""
        galleries = self.cloud.galleries
        images = [
            _image(galleries.community_id("2204gen2containerd"), "amd64", "2"),
            _image(galleries.community_id("2204containerd"), "amd64", "1"),
            _image(galleries.community_id("2204gen2arm64containerd"), "arm64", "2"),
        ]
        status = {"images": images, "kubernetesVersion": "1.33.4"}
        made = AKSNodeClass.model_validate(
            {"metadata": {"name": "general"}, "spec": spec, "status": status}
        )
        ready = Condition(type="Ready", status=TRUE, reason="Ready")
        return made.model_copy(
            update={"status": made.status.model_copy(update={"conditions": (ready,)})}
        )

    def request(self, name: str = "web-1", *names: str, **changes: Any) -> LaunchRequest:
        """Return a request for one of these sizes; `changes` are of `claim`."""
        node_class = changes.pop("node_class", None) or self.node_class()
        types = self.catalogue.instance_types(node_class)
        wanted = names or ("Standard_D2s_v5", "Standard_D4s_v5")
        return LaunchRequest(
            node_claim=claim(name, **changes),
            node_class=node_class,
            instance_types=tuple(it for it in types if it.name in wanted),
        )

    def launch(self, name: str = "web-1", *names: str, **changes: Any) -> Any:
        """Launch a claim, and let the cluster know it."""
        request = self.request(name, *names, **changes)
        outcome = self.parts.launcher.launch(request)
        own = request.node_claim
        status = own.status.model_copy(update={"provider_id": outcome.provider_id})
        metadata = own.metadata.model_copy(update={"creation_timestamp": datetime.now(UTC)})
        self.claims[name] = own.model_copy(update={"status": status, "metadata": metadata})
        return outcome

    def sample(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels."""
        return sum(
            sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def _image(image_id: str, arch: str, generation: str) -> dict[str, Any]:
    return {
        "id": image_id,
        "requirements": [
            {"key": "kubernetes.io/arch", "operator": "In", "values": [arch]},
            {
                "key": "karpenter.azure.com/sku-hyperv-generation",
                "operator": "In",
                "values": [generation],
            },
        ],
    }


@pytest.fixture(scope="session")
def _azure():
    with SimulatedAzure() as cloud:
        yield cloud


@pytest.fixture
def cloud(_azure, monkeypatch):
    """The simulated Azure as it is in the beginning, and the environment of a pod in it."""
    _azure.reset()
    for name in ("AZURE_CLIENT_SECRET", "AZURE_USERNAME", "AZURE_TOKEN_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in _azure.environment.items():
        if name.startswith("AZURE_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return _azure


@pytest.fixture
def launches(cloud, tmp_path):
    """Return launches with some settings."""
    made = []

    def make(**changes):
        made.append(RealLaunches(cloud, tmp_path, **changes))
        return made[-1]

    yield make
    for each in made:
        for client in each.clients:
            client.close()
