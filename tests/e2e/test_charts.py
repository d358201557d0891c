"""Install, upgrade and uninstall by Helm on a real control plane, with the rights of the chart."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pytest
import pytest_asyncio
import yaml

from karpenter_core.kube.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    ResourceKind,
)
from karpenter_core.testing.cluster import ClusterError
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.e2e.upstream.suite import module_folder
from tests.support.helm import CHART
from tests.support.local_clusters import RealLocalCluster
from tests.support.pod_placement import EACH_ON_ITS_OWN
from tests.support.processes import wait_until
from tests.support.release import AUDIT_SECONDS, ChartRelease, account_of, denied_requests
from tests.support.runner import NODE_CLAIMS, NODE_POOLS, ScenarioWorld
from tests.support.shared_clusters import PROCESS_CORES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(420)]

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
NAMESPACE: Final = "karpenter-e2e"
RELEASE: Final = "karpenter-e2e"
ACCOUNT: Final = account_of(NAMESPACE, RELEASE)
RBAC: Final = "rbac.authorization.k8s.io"
RESTRICTED: Final = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    },
}
"""Refuses pods that do not keep the strictest Pod Security Standard."""
CLUSTER_ROLES: Final = ResourceKind(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
OF_THE_RELEASE: Final = (
    DEPLOYMENTS,
    PODS,
    SERVICES,
    POD_DISRUPTION_BUDGETS,
    CLUSTER_ROLES,
    ResourceKind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    ResourceKind(RBAC, "v1", "roles", "Role", namespaced=True),
    ResourceKind(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True),
    ResourceKind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True),
)
SYSTEM_NODES: Final = {"system-a": "zone-a", "system-b": "zone-b"}
KEEP: Final = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
PREVIOUS: Final = {"version": "0.0.9", "appVersion": "0.0.9"}
NONE: Final = CountBounds(at_least=0, at_most=0)
LEADS: Final = re.compile(r"^leader_election_master_status\{.*\} 1\.0$", re.MULTILINE)


@final
class Installed:
    """A release and the processes that stand for the containers of its pods."""

    def __init__(self, release: ChartRelease, world: ScenarioWorld, folder: Path) -> None:
        self.release: Final = release
        self.world: Final = world
        self.values: Final[dict[str, Any]] = {
            "provider": "kwok",
            "controller": {"image": {"registry": "registry.example.com"}},
            # The processes share a folder, as pods would a volume.
            "settings": {"kwokStateFile": str(folder / "cloud.sqlite3")},
        }

    async def start(self, *names: str) -> None:
        """Start a process for each pod, as the Deployment now says."""
        access = await self.release.access()
        assert list(access.arguments) == ["run"]
        for name in names:
            controller = self.world.add_controller(
                name, kubeconfig=access.kubeconfig, environment=access.environment
            )
            await controller.start()

    async def stop(self, *names: str) -> None:
        for name in names:
            await self.world.controllers.pop(name).process.stop()

    async def need_nodes(self) -> None:
        """Create a NodePool, and a Deployment whose replicas need a node each."""
        for manifest in InitialObjects(
            node_pools=[ScenarioNodePool(name="general", disruption=KEEP)],
            deployments=[ScenarioDeployment(name="web", replicas=2, pod=EACH_ON_ITS_OWN)],
        ).objects():
            await self.world.create(manifest)

    async def expect(self, count: int, *, where: str, ever: int | None = None) -> None:
        """Wait for as many running pods, claims and instances, and no launch besides."""
        bounds = CountBounds(at_least=count, at_most=count)
        launched = CountBounds(at_least=ever or count, at_most=ever or count)
        await self.world.expect(
            Expectation(
                within=timedelta(seconds=90),
                hold=timedelta(seconds=2),
                pods=ExpectedPods(running=bounds),
                node_claims=bounds,
                instances=bounds,
                launched=launched,
            ),
            where=where,
        )

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the release."""
        return [
            pod
            for pod in self.world.mirror.objects(PODS)
            if pod["metadata"]["namespace"] == NAMESPACE
            and not pod["metadata"].get("deletionTimestamp")
        ]

    def claims(self) -> dict[str, str]:
        """Return the ids of NodeClaims by name."""
        found = (each["metadata"] for each in self.world.mirror.objects(NODE_CLAIMS))
        return {metadata["name"]: metadata["uid"] for metadata in found}

    async def leader(self) -> str:
        """Return the name of the process that leads, by its own metrics."""
        leading: list[str] = []

        async def one_leads() -> bool:
            leading[:] = [
                name
                for name, each in self.world.controllers.items()
                if each.process.is_running and LEADS.search(await each.metrics())
            ]
            return len(leading) == 1

        await wait_until(one_leads, seconds=60)
        return leading[0]

    async def image(self) -> str:
        """Return the image of the release's pods."""
        deployment = await self.world.client.get(DEPLOYMENTS, RELEASE, NAMESPACE)
        return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])

    async def kept(self) -> set[str]:
        """Return the objects of the release, but pods, which are made anew."""
        return {each for each in await self.left_over() if not each.startswith("Pod ")}

    async def left_over(self) -> list[str]:
        """Return the objects of the release that are still there."""
        selector = f"app.kubernetes.io/instance={RELEASE}"
        return [
            f"{kind.kind} {each['metadata']['name']}"
            for kind in OF_THE_RELEASE
            for each in await self.world.client.list(kind, labelSelector=selector)
        ]


@contextlib.asynccontextmanager
async def prepared(cluster: RealLocalCluster, folder: Path) -> AsyncIterator[Installed]:
    """A world with two nodes of the system's, for a release that the test installs."""
    async with ScenarioWorld(cluster, KwokCloud(), folder, crds=CRDS) as world:
        release = ChartRelease(
            cluster.control_plane, world.client, folder, name=RELEASE, namespace=NAMESPACE
        )
        with contextlib.suppress(ClusterError):  # there from the test before
            await world.client.create(NAMESPACES, RESTRICTED)
        for name, zone in SYSTEM_NODES.items():
            await world.client.create(NODES, system_node(name, zone))
        try:
            yield Installed(release, world, folder)
        finally:
            for controller in world.controllers.values():
                await controller.process.stop()
            await release.uninstall()


@pytest_asyncio.fixture(loop_scope="session")
async def installed(
    real_local_cluster: RealLocalCluster, tmp_path: Path
) -> AsyncIterator[Installed]:
    """Such a world on the control plane of all tests."""
    async with prepared(real_local_cluster, tmp_path) as made:
        yield made


def system_node(name: str, zone: str) -> dict[str, Any]:
    """Return a Node that only what tolerates CriticalAddonsOnly runs on."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": zone,
            },
        },
        "spec": {"taints": [{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def previous_chart(folder: Path) -> Path:
    """Return the chart as a version before this one."""
    chart = shutil.copytree(CHART, folder / "previous")
    path = chart / "Chart.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **PREVIOUS}))
    return chart


async def test_a_release_is_upgraded_uninstalled_and_installed_again_without_a_lost_node(
    installed: Installed, real_local_cluster: RealLocalCluster, tmp_path: Path
):
    """Uninstalling removes what the chart has made, and keeps what the controller has made."""
    world, release = installed.world, installed.release
    crd_notes = await release.install_crds()
    notes = await release.upgrade(installed.values, chart=previous_chart(tmp_path), wait=True)
    assert "Next: helm upgrade --install karpenter" in crd_notes
    assert "deployment/karpenter-e2e -- karpenter doctor" in notes
    assert "The CRDs are missing" not in notes
    first = installed.pods()
    assert {pod["spec"]["nodeName"] for pod in first} == set(SYSTEM_NODES)
    assert {pod["spec"]["priority"] for pod in first} == {2_000_000_000}
    (budget,) = await world.client.list(
        POD_DISRUPTION_BUDGETS, labelSelector=f"app.kubernetes.io/instance={RELEASE}"
    )
    assert budget["status"]["disruptionsAllowed"] == 1
    await installed.start("a", "b")
    await installed.need_nodes()
    await installed.expect(2, where="after the installation")
    before = installed.claims()

    installed.values["settings"]["batchIdleDuration"] = "500ms"
    await release.upgrade(installed.values, wait=True)

    second = installed.pods()
    assert len(second) == 2
    assert {pod["metadata"]["name"] for pod in second}.isdisjoint(
        pod["metadata"]["name"] for pod in first
    )
    assert {pod["spec"]["nodeName"] for pod in second} == set(SYSTEM_NODES)
    for old, new in (("a", "c"), ("b", "d")):
        await installed.stop(old)
        await installed.start(new)
    await world.scale("web", 3)
    await installed.expect(3, where="after the upgrade")
    assert before.items() <= installed.claims().items()
    before = installed.claims()

    await installed.stop("c", "d")
    await release.uninstall()

    async def nothing_left() -> bool:
        return not await installed.left_over()

    await wait_until(nothing_left, seconds=30)
    await installed.expect(3, where="after the release was uninstalled")

    await release.upgrade(installed.values, wait=True)
    await installed.start("e")
    await world.scale("web", 4)
    await installed.expect(4, where="after it was installed again")
    assert before.items() <= installed.claims().items()
    await release.uninstall("karpenter-crd")
    await installed.expect(4, where="after the chart of the CRDs was uninstalled")
    assert await denied_requests(real_local_cluster.control_plane, ACCOUNT) == []


async def test_the_standby_continues_and_deleted_pools_delete_their_nodes(
    installed: Installed, real_local_cluster: RealLocalCluster
):
    """As documented for a release that is to leave nothing behind."""
    world, release = installed.world, installed.release
    await release.upgrade(installed.values, wait=True)
    await installed.start("a", "b")
    await installed.need_nodes()
    await installed.expect(2, where="after the installation")

    killed = await installed.leader()
    await world.controllers[killed].process.kill()
    await world.scale("web", 4)
    await installed.expect(4, where="after the leader was killed")
    assert world.controllers[killed].process.exit_code == -signal.SIGKILL
    assert await installed.leader() != killed

    await world.client.delete(NODE_POOLS, "general")
    await world.expect(
        Expectation(within=timedelta(seconds=120), nodes=NONE, node_claims=NONE, instances=NONE),
        where="after the NodePool was deleted",
    )
    for controller in world.controllers.values():
        await controller.process.stop()
    await release.uninstall()

    async def nothing_left() -> bool:
        return not await installed.left_over()

    await wait_until(nothing_left, seconds=30)
    assert await denied_requests(real_local_cluster.control_plane, ACCOUNT) == []


async def test_a_release_of_karpenters_own_chart_is_upgraded_and_rolled_back(
    installed: Installed,
):
    """As the page on moving says, if both releases have one name; nothing of ours stays then."""
    world, release = installed.world, installed.release
    await release.install_crds()
    theirs = {"controller": {"image": {"repository": "registry.example.com/karpenter", "tag": "1"}}}
    await release.upgrade(theirs, chart=module_folder() / "kwok" / "charts")
    before = await installed.kept()
    image = await installed.image()
    assert image.startswith("registry.example.com/karpenter:")

    await release.upgrade(installed.values)
    assert await installed.image() != image
    await installed.start("a")
    await installed.need_nodes()
    await installed.expect(2, where="after the upgrade")
    claims = installed.claims()
    await installed.stop("a")

    await release.roll_back()

    assert await installed.image() == image
    assert await installed.kept() == before
    await installed.expect(2, where="after the way back")

    await release.upgrade(installed.values)
    await installed.start("b")
    await world.scale("web", 3)
    await installed.expect(3, where="after the second upgrade")
    assert claims.items() <= installed.claims().items()


async def test_a_verb_that_the_chart_lacks_is_reported(
    installed: Installed, real_local_cluster: RealLocalCluster
):
    """The checks above, and those of the scenarios, see a denied request."""
    await installed.release.upgrade({**installed.values, "replicas": 0})
    role = await installed.world.client.get(CLUSTER_ROLES, RELEASE, "")
    for rule in role["rules"]:
        if "nodeclaims" in rule["resources"]:
            rule["verbs"].remove("create")
    await installed.world.client.request("PUT", CLUSTER_ROLES.path(name=RELEASE), role)
    await installed.start("a")
    await installed.need_nodes()
    control_plane = real_local_cluster.control_plane

    async def is_denied() -> bool:
        return bool(await denied_requests(control_plane, ACCOUNT))

    try:
        await wait_until(is_denied, seconds=60)
        denied = await denied_requests(control_plane, ACCOUNT)
        assert set(denied) == {"create nodeclaims in ''"}
    finally:
        await installed.stop("a")
        await asyncio.sleep(AUDIT_SECONDS)
        control_plane.audit_log.write_text("")


@pytest.mark.real
async def test_nodes_are_launched_where_owner_references_need_permissions(
    kubernetes: str, tmp_path: Path
):
    """OpenShift's API server refuses references that block an owner's deletion to whom may not delete it."""
    plugins = ("OwnerReferencesPermissionEnforcement",)
    cluster = RealLocalCluster(
        kubernetes, audited_users=[ACCOUNT], admission_plugins=plugins, cores=PROCESS_CORES
    )
    async with cluster, prepared(cluster, tmp_path) as installed:
        await installed.release.upgrade(installed.values, wait=True)
        await installed.start("a")
        await installed.need_nodes()
        await installed.expect(2, where="with the admission plug-in")
        assert await denied_requests(cluster.control_plane, ACCOUNT) == []
