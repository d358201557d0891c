"""A started provider that launches in the simulated Azure, through its real SDK."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from itertools import count
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.conditions import TRUE, Condition
from karpenter_core.provider.contract import ClusterFacts, LaunchRequest, ProviderContext
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.catalogue.prices import ListedPrices
from karpenter_provider_azure.cloud_environment import named_environment
from karpenter_provider_azure.launch.extensions import ExtensionInstaller
from karpenter_provider_azure.setting_specs import SETTINGS
from karpenter_provider_azure.started_provider import StartedProvider
from karpenter_simulated_azure.cloud import SimulatedAzure
from providers.azure.tests.launch.launch_world import claim

QUICK = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    first_backoff_seconds=0.01,
    longest_backoff_seconds=2,
)
_folders = count()


class CloudClock:
    """The clock of the simulated cloud, which tests move."""

    def __init__(self, cloud: SimulatedAzure) -> None:
        self._cloud = cloud

    def now(self) -> datetime:
        return self._cloud.time()

    def monotonic(self) -> float:
        return self._cloud.time().timestamp()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class RealLaunches:
    """A started provider in the simulated Azure, and the claims of its cluster."""

    def __init__(self, cloud: SimulatedAzure, folder: Any, **changes: Any) -> None:
        self.cloud = cloud
        self.folder = folder
        self.changes = {name.replace("_", "-"): value for name, value in changes.items()}
        self.claims: dict[str, Any] = {}
        self.started: list[StartedProvider] = []
        self.start()

    def start(self) -> None:
        """Begin a process, which remembers nothing."""
        folder = self.folder / str(next(_folders))
        folder.mkdir()
        self.registry, self.clock = CollectorRegistry(), CloudClock(self.cloud)
        given: dict[str, Any] = {
            spec.flag.removeprefix("--"): os.environ.get(spec.env, spec.default)
            for spec in SETTINGS
        }
        self.provider = StartedProvider(
            ProviderContext(
                settings={**given, **self.changes},
                clock=self.clock,
                cache_folder=folder,
                metrics=self.registry,
                cluster=ClusterFacts(
                    name=self.cloud.world.cluster_name, ca_bundle="-----BEGIN CERTIFICATE-----\n"
                ),
                nodes=None,
                read_nodes=dict,
                wake=lambda _name: None,
                read_claims=lambda: self.claims,
            ),
            retries=QUICK,
        )
        self.started.append(self.provider)
        self.parts = self.provider.parts
        catalogue = self.parts.catalogue
        cpus = {name: size.cpus for name, size in catalogue.region.current()[0].items()}
        catalogue.prices.update(
            ListedPrices(
                {name: count * 0.05 for name, count in cpus.items()},
                {name: count * 0.02 for name, count in cpus.items()},
            ),
            now=self.clock.now(),
        )

    @property
    def marks(self) -> Any:
        """Offerings that failed launches made unavailable."""
        return self.parts.catalogue.unavailable_offerings.view(now=self.clock.now())

    def billing_installer(self) -> ExtensionInstaller:
        """Return an installer of a new process, in a cloud that bills nodes by an extension."""
        launch = self.parts.launch
        return ExtensionInstaller(
            replace(self.provider.settings, cloud=named_environment("")),
            self.clock,
            calls=launch.calls,
            list_vms=lambda: launch.reader.of_cluster().instances,
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
        types = self.parts.catalogue.types.instance_types(node_class)
        wanted = names or ("Standard_D2s_v5", "Standard_D4s_v5")
        return LaunchRequest(
            node_claim=claim(name, **changes),
            node_class=node_class,
            instance_types=tuple(it for it in types if it.name in wanted),
        )

    def launch(self, name: str = "web-1", *names: str, **changes: Any) -> Any:
        """Launch a claim, and let the cluster know it."""
        request = self.request(name, *names, **changes)
        outcome = self.provider.launch(request)
        own = request.node_claim
        status = own.status.model_copy(update={"provider_id": outcome.provider_id})
        metadata = own.metadata.model_copy(update={"creation_timestamp": self.clock.now()})
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


@pytest.fixture
def launches(cloud, tmp_path):
    """Return launches with some settings."""
    made = []

    def make(**changes):
        made.append(RealLaunches(cloud, tmp_path, **changes))
        return made[-1]

    yield make
    for each in made:
        for started in each.started:
            started.close()
