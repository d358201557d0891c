"""Runs scenarios against a cluster whose controller is its own process."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, final

import yaml

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.nodepool import NodePool
from karpenter_core.kube import resources
from karpenter_core.kube.resources import ResourceKind, custom_kind
from karpenter_core.testing.cluster import ClusterClient, ClusterError, ClusterMirror
from karpenter_core.testing.expectations import CloudAccount, Observation, unmet_expectations
from tests.support.controller import RUN, ControllerProcess
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from karpenter_core.testing.cluster import Object
    from karpenter_core.testing.scenarios import Expectation, ObjectPatch, Scenario, ScenarioAction
    from tests.support.local_clusters import LocalCluster
    from tests.support.release import ReleaseAccess

__all__ = [
    "KINDS",
    "NODE_CLAIMS",
    "NODE_OVERLAYS",
    "NODE_POOLS",
    "ScenarioCloud",
    "ScenarioFailedError",
    "ScenarioWorld",
]

NODE_POOLS: Final = custom_kind(NodePool.resource)
NODE_CLAIMS: Final = custom_kind(NodeClaim.resource)
NODE_OVERLAYS: Final = custom_kind(NodeOverlay.resource)
KWOK_NODE_CLASSES: Final = ResourceKind(
    "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False,
)  # fmt: skip

KINDS: Final[Mapping[str, ResourceKind]] = {
    kind.kind: kind
    for kind in (
        resources.CUSTOM_RESOURCE_DEFINITIONS,
        resources.DAEMON_SETS,
        resources.DEPLOYMENTS,
        resources.EVENTS,
        resources.NAMESPACES,
        resources.NODES,
        resources.PODS,
        resources.POD_DISRUPTION_BUDGETS,
        NODE_POOLS,
        NODE_CLAIMS,
        NODE_OVERLAYS,
        KWOK_NODE_CLASSES,
        custom_kind(CapacityBuffer.resource),
    )
}
"""The kinds that scenarios can name."""

FOLLOWED: Final = (
    resources.PODS,
    resources.NODES,
    resources.EVENTS,
    resources.DEPLOYMENTS,
    NODE_POOLS,
    NODE_CLAIMS,
    KWOK_NODE_CLASSES,
)
WITH_CONDITIONS: Final = (NODE_POOLS, NODE_CLAIMS, KWOK_NODE_CLASSES)
REMOVED_IN_ORDER: Final = (
    resources.POD_DISRUPTION_BUDGETS,
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.PODS,
    NODE_CLAIMS,
    NODE_POOLS,
    KWOK_NODE_CLASSES,
)
CRD_ESTABLISHED_SECONDS: Final = 30.0
CLEAN_SECONDS: Final = 30.0
LEASE_NAME: Final = "karpenter-leader-election"  # upstream default
LEADER_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.5
"""Time limit of the wait for the next change before the next check."""


class ScenarioFailedError(AssertionError):
    """An expectation did not come true; the message has the controllers' logs."""


class ScenarioCloud(Protocol):
    """The simulated cloud behind a provider, as a test sees it."""

    def options(self, folder: Path) -> Mapping[str, str]:
        """Return the controller's options for this cloud, which keeps its state in a folder."""
        ...

    async def account(self, folder: Path) -> CloudAccount:
        """Return the provider's own dump."""
        ...

    def suffer(self, folder: Path, faults: Sequence[Object]) -> None:
        """Let this go wrong from now on, and nothing else."""
        ...


@final
class ScenarioWorld:
    """A cluster with our CRDs, its controllers and its simulated cloud.

    An async context manager: leaves the cluster as it found it, so that scenarios can follow
    each other on one cluster.
    """

    def __init__(
        self,
        local_cluster: LocalCluster,
        cloud: ScenarioCloud,
        folder: Path,
        *,
        crds: Iterable[Path],
        plugins: Sequence[Path] = (),
        kinds: Iterable[ResourceKind] = (),
        access: ReleaseAccess | None = None,
    ) -> None:
        """Prepare it; with `access` controllers run as pods of that release, else as administrators."""
        self._access: Final = access
        self._crds: Final = [_read_definition(path) for path in crds]
        self.local_cluster: Final = local_cluster
        self.client: Final = ClusterClient(local_cluster.kubeconfig)
        self.mirror: Final = ClusterMirror(self.client, (*FOLLOWED, *kinds))
        self.controllers: Final[dict[str, ControllerProcess]] = {}
        self.expendable: Final[set[str]] = set()
        """Names of controllers that may end by themselves."""
        self._cloud: Final = cloud
        self._folder: Final = folder
        self._plugins: Final = tuple(plugins)
        self._kinds: Final = {**KINDS, **{kind.kind: kind for kind in kinds}}

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        try:
            await self.install_crds()
            await self.clean()
            await self.mirror.__aenter__()
        except BaseException:
            await self.client.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for controller in self.controllers.values():
            await controller.process.stop()
        await self.mirror.__aexit__(kind, error, trace)
        try:
            await self.clean()
        finally:
            await self.client.__aexit__(kind, error, trace)

    async def install_crds(self) -> None:
        """Create the CRDs that are not there yet and wait until they are served."""
        kind = resources.CUSTOM_RESOURCE_DEFINITIONS
        names = {str(crd["metadata"]["name"]) for crd in self._crds}
        present = {crd["metadata"]["name"] for crd in await self.client.list(kind)}
        for crd in self._crds:
            if crd["metadata"]["name"] not in present:
                await self.client.create(kind, crd)

        async def served() -> bool:
            crds = await self.client.list(kind)
            return names <= {crd["metadata"]["name"] for crd in crds if _is_established(crd)}

        await wait_until(served, seconds=CRD_ESTABLISHED_SECONDS)

    # Steps.

    async def create(self, manifest: Object) -> Object:
        """Create one object."""
        return await self.client.create(self._kinds[manifest["kind"]], manifest)

    async def scale(self, deployment: str, replicas: int) -> None:
        """Set the replicas of a Deployment."""
        patch = {"spec": {"replicas": replicas}}
        await self.client.patch(resources.DEPLOYMENTS, deployment, patch)

    def add_controller(
        self,
        name: str = "karpenter",
        *,
        kubeconfig: Path | None = None,
        options: Mapping[str, str] | None = None,
        command: Sequence[str] = RUN,
        environment: Mapping[str, str] | None = None,
    ) -> ControllerProcess:
        """Prepare a controller; it is not started yet."""
        if self._access is not None:
            kubeconfig = kubeconfig or self._access.kubeconfig
            environment = {**self._access.environment, **(environment or {})}
        controller = ControllerProcess(
            name,
            kubeconfig=kubeconfig or self.local_cluster.kubeconfig,
            folder=self._folder,
            options={**self._cloud.options(self._folder), **(options or {})},
            path=self._plugins,
            environment=os.environ if environment is None else environment,
            command=command,
        )
        self.controllers[name] = controller
        return controller

    async def run(self, scenario: Scenario) -> None:
        """Play a scenario from beginning to end.

        Raises:
            ScenarioFailedError: an expectation was not met.
        """
        for manifest in scenario.given.objects():
            await self.create(manifest)
        options = {"providers": ",".join(scenario.providers), **scenario.settings}
        await self.add_controller(options=options).start()
        for number, step in enumerate(scenario.steps, start=1):
            for action in step.when:
                await self.act(action)
            if step.then is not None:
                await self.expect(step.then, where=f"{scenario.name}, step {number}")

    async def act(self, action: ScenarioAction) -> None:
        """Make one thing happen."""
        await self._change(action)
        if action.faults is not None:
            self._cloud.suffer(self._folder, action.faults)
        if action.wait is not None:
            await asyncio.sleep(action.wait.total_seconds())
        if action.kill is not None:
            await asyncio.gather(*(each.process.kill() for each in self.controllers.values()))
        if action.start is not None:
            await asyncio.gather(*(each.start() for each in self.controllers.values()))
        if action.restart is not None:
            await self.local_cluster.restart_api_server()

    async def _change(self, action: ScenarioAction) -> None:
        """Do what an action does to objects."""
        if action.scale is not None:
            await self.scale(action.scale.deployment, action.scale.replicas)
        for manifest in action.create or ():
            await self.create(manifest)
        if action.deploy is not None:
            await self.create(action.deploy.manifest())
        if action.delete is not None:
            await self._delete(self._kinds[action.delete.kind], action.delete.name)
        if action.patch is not None:
            await self._patch(KINDS[action.patch.kind], action.patch)
        if action.node_condition is not None:
            nodes = await self.client.list(resources.NODES)
            for name, body in action.node_condition.patches(nodes, datetime.now(UTC)):
                await self.client.patch(resources.NODES, name, body, subresource="status")

    async def _delete(self, kind: ResourceKind, name: str) -> None:
        for each in await self.client.list(kind):
            metadata = each["metadata"]
            if name in ("", metadata["name"]):
                await self.client.delete(kind, metadata["name"], _namespace(metadata))

    async def _patch(self, kind: ResourceKind, patch: ObjectPatch) -> None:
        for each in await self.client.list(kind):
            metadata = each["metadata"]
            if patch.name in ("", metadata["name"]):
                namespace = _namespace(metadata)
                await self.client.patch(kind, metadata["name"], patch.body, namespace=namespace)

    # The result.

    def observe(self) -> Observation:
        """Return an observation of the cluster now."""
        mirror = self.mirror
        return Observation(
            pods=[pod for pod in mirror.objects(resources.PODS) if _is_ours(pod)],
            nodes=mirror.objects(resources.NODES),
            node_claims=mirror.objects(NODE_CLAIMS),
            claims_ever=len(mirror.ever(NODE_CLAIMS)),
            events=mirror.objects(resources.EVENTS),
            objects={
                (kind.kind, each["metadata"]["name"]): each
                for kind in WITH_CONDITIONS
                for each in mirror.objects(kind)
            },
        )

    def uids(self, kind: ResourceKind) -> set[str]:
        """Return the UIDs of the objects of a kind now."""
        return {each["metadata"]["uid"] for each in self.mirror.objects(kind)}

    async def expect(self, expected: Expectation, *, where: str = "") -> float:
        """Wait until an expectation is met, and as long as it is to hold; return the seconds.

        Raises:
            ScenarioFailedError: it was not met in time, or ceased to be.
        """
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        deadline = started_at + expected.within.total_seconds()
        while missing := await self.missing(expected):
            if loop.time() > deadline:
                raise self._failure(f"{where}: not within {expected.within}", missing)
            self._check_controllers()
            await self.mirror.changed(POLL_SECONDS)
        held_until = loop.time() + expected.hold.total_seconds()
        while loop.time() < held_until:
            await self.mirror.changed(POLL_SECONDS)
            if missing := await self.missing(expected):
                raise self._failure(f"{where}: did not hold for {expected.hold}", missing)
        return loop.time() - started_at

    async def expect_or(self, expected: Expectation, otherwise: Callable[[], bool]) -> None:
        """Wait until an expectation is met or something else has happened.

        Raises:
            ScenarioFailedError: neither came in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + expected.within.total_seconds()
        while not otherwise() and (missing := await self.missing(expected)):
            if loop.time() > deadline:
                raise self._failure(f"not within {expected.within}", missing)
            await self.mirror.changed(POLL_SECONDS)

    async def expect_leader(self) -> str:
        """Wait until the Lease has a holder and return its identity."""

        async def held() -> bool:
            return bool(await self._holder())

        await wait_until(held, seconds=LEADER_SECONDS)
        return await self._holder()

    async def _holder(self) -> str:
        for lease in await self.client.list(resources.LEASES):
            if lease["metadata"]["name"] == LEASE_NAME:
                return str(lease["spec"].get("holderIdentity") or "")
        return ""

    async def missing(self, expected: Expectation) -> tuple[str, ...]:
        """Return unmet expectations; the cloud is asked only if all others are met."""
        seen = self.observe()
        if missing := unmet_expectations(expected, seen):
            return missing
        account = await self._cloud.account(self._folder)
        return unmet_expectations(expected, replace(seen, cloud=account))

    def _check_controllers(self) -> None:
        """Fail early when a controller ended by itself."""
        for name, controller in self.controllers.items():
            code = controller.process.exit_code
            if code not in (None, -signal.SIGKILL) and name not in self.expendable:
                raise self._failure(f"{name} ended with {code}", ())

    def _failure(self, what: str, missing: Iterable[str]) -> ScenarioFailedError:
        logs = [controller.process.log_tail() for controller in self.controllers.values()]
        return ScenarioFailedError("\n".join([what, *(f"  {each}" for each in missing), *logs]))

    async def clean(self) -> None:
        """Remove every object that a scenario may have left, with finalizers."""
        async with asyncio.timeout(CLEAN_SECONDS):
            for kind in (*REMOVED_IN_ORDER, *self._other_kinds()):
                await self._remove_all(kind)
            await self._remove_all(resources.NODES)
        await self._remove_events()

    async def _remove_events(self) -> None:
        """Remove all Events, of which an hour of churn leaves tens of thousands, in parts."""
        for namespace in await self.client.list(resources.NAMESPACES):
            path = resources.EVENTS.path(namespace=namespace["metadata"]["name"])
            while (await self.client.request("DELETE", path, query={"limit": "500"})).get("items"):
                pass

    def _other_kinds(self) -> list[ResourceKind]:
        return [kind for name, kind in self._kinds.items() if name not in KINDS]

    async def _remove_all(self, kind: ResourceKind) -> None:
        while left := [each for each in await self.client.list(kind) if _is_removable(each)]:
            for each in left:
                metadata = each["metadata"]
                namespace = _namespace(metadata)
                try:
                    if metadata.get("finalizers"):
                        patch: dict[str, Any] = {"metadata": {"finalizers": None}}
                        await self.client.patch(
                            kind, metadata["name"], patch, namespace=namespace,
                        )  # fmt: skip
                    await self.client.delete(kind, metadata["name"], namespace)
                except ClusterError as error:
                    if error.code != 404:
                        raise
            await asyncio.sleep(POLL_SECONDS / 10)


@cache
def _read_definition(path: Path) -> Object:
    """Read a CRD once for all tests of a process; nobody changes it."""
    return yaml.safe_load(path.read_text())


def _is_established(crd: Object) -> bool:
    conditions: list[Object] = crd.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _namespace(metadata: Object) -> str:
    return str(metadata.get("namespace", "default"))


def _is_ours(pod: Object) -> bool:
    return _namespace(pod["metadata"]) == "default"


def _is_removable(value: Object) -> bool:
    return _namespace(value["metadata"]) == "default"
