"""Runs a provider in the whole controller, and collects what users see.

For tests of failures and launches. Time is simulated; the test supplies the clients that the provider
calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from karpenter_core.cli.catalogues import open_providers
from karpenter_core.cli.doctor.objects import check_objects
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.resources import custom_kind
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import Severity
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_core.testing.user_mistakes import UserMessages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.contract import ClusterFacts, Finding
    from karpenter_core.testing.harness import RunningProcess

__all__ = ["ProviderCluster", "ProviderClusterSpec", "errors_of", "node_pool_manifest"]


def errors_of(findings: Iterable[Finding]) -> str:
    """Return the errors among findings of `karpenter doctor`, one a line.

    Raises:
        AssertionError: one has no remedy.
    """
    wrong = [found for found in findings if found.severity is Severity.ERROR]
    helpless = [found.message for found in wrong if not found.remedy]
    if helpless:
        raise AssertionError(f"findings without a remedy: {'; '.join(helpless)}")
    return "\n".join(found.message for found in wrong)


def node_pool_manifest(
    model: type[NodeClass],
    name: str = "general",
    *,
    node_class: str = "default",
    requirements: Mapping[str, Sequence[str]] | None = None,
    template: Mapping[str, object] | None = None,
    **spec: object,
) -> JsonObject:
    """Return a NodePool of a NodeClass of this kind.

    `requirements` are the values that a label may have, by key; `template` and `spec` are further
    fields of the template's spec and of its own.
    """
    resource = model.resource
    reference = {"group": resource.group, "kind": resource.kind, "name": node_class}
    wanted = [
        {"key": key, "operator": "In", "values": list(values)}
        for key, values in (requirements or {}).items()
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {"nodeClassRef": reference, "requirements": wanted, **(template or {})}
            },
            **spec,
        },
    }


@final
@dataclass(frozen=True, kw_only=True)
class ProviderClusterSpec:
    """Settings and objects of a `ProviderCluster`."""

    plugins: Callable[[], Mapping[str, object]]
    """Makes the plug-in objects of each process anew, by name."""
    model: type[NodeClass]
    """The kind of NodeClass."""
    arguments: Sequence[str] = ()
    """Of `karpenter run`, and of `karpenter doctor`."""
    facts: ClusterFacts | None = None
    """Facts of the cluster that the process knows, besides its name; none by default."""

    def run(self, folder: Path, story: Callable[[ProviderCluster], Awaitable[None]]) -> None:
        """Play a story from beginning to end, in simulated time."""

        async def run() -> None:
            harness = ControllerHarness(
                self.plugins, folder=folder, arguments=self.arguments, facts=self.facts
            )
            async with harness:
                await story(ProviderCluster(spec=self, harness=harness))

        run_virtual(run())


@final
@dataclass(kw_only=True)
class ProviderCluster:
    """A cluster and its controller, which runs from the beginning."""

    spec: ProviderClusterSpec
    harness: ControllerHarness
    running: RunningProcess = field(init=False)

    def __post_init__(self) -> None:
        """Start the controller."""
        self.running = self.harness.start()

    def apply(self, *manifests: JsonMapping) -> None:
        """Create objects, or merge them into what is there."""
        self.harness.cluster.apply(manifests)

    def conditions(self, name: str = "default") -> dict[str, JsonObject]:
        """Return the conditions of a NodeClass, by type."""
        found = self.harness.cluster.find(custom_kind(self.spec.model.resource), name)
        return {c["type"]: c for c in (found or {}).get("status", {}).get("conditions", ())}

    def is_ready(self, status: str, name: str = "default") -> bool:
        """Return whether the condition `Ready` of a NodeClass has this status."""
        return self.conditions(name).get("Ready", {}).get("status") == status

    async def until_ready(
        self, status: str, name: str = "default", *, seconds: float = 120
    ) -> None:
        """Let time pass until the condition Ready of a NodeClass has this status.

        Raises:
            TimeoutError: it does not come to that in so many seconds.
        """
        await self.harness.settle(lambda: self.is_ready(status, name), seconds=seconds)

    async def advance_minutes(self, count: float) -> None:
        """Let so many minutes pass."""
        await self.harness.cluster.clock.sleep(60 * count)

    async def user_messages(self, name: str = "default") -> UserMessages:
        """Return the messages about a NodeClass: its conditions, doctor errors, cloud errors."""
        return UserMessages(
            kind=self.spec.model.resource.kind,
            conditions=self.conditions(name),
            object_errors=await self.doctor_object_errors(),
            cloud_errors=await self.doctor_cloud_errors(),
        )

    async def doctor_object_errors(self) -> str:
        """Return the errors that `karpenter doctor` finds about NodePools and NodeClasses."""
        model, cluster = self.spec.model, self.harness.cluster
        api = KubeApi(cluster.transport(), clock=cluster.clock)
        apis = ClusterApis(api, node_class_groups=frozenset({model.resource.group}))
        return errors_of(await check_objects(apis, [model]))

    async def doctor_cloud_errors(self) -> str:
        """Return the errors that the provider finds by itself, as `karpenter doctor` starts it."""
        loaded = load_plugins(extra=self.spec.plugins(), entry_points=())
        specs = [spec for each in loaded.settings().values() for spec in each]
        settings = load_settings(self.spec.arguments, {}, plugin_options=specs)
        opening = open_providers(loaded, settings=settings, instance_types_file=None)
        async with opening as providers:
            found = await providers.check()
        return errors_of(each for findings in found.values() for each in findings)
