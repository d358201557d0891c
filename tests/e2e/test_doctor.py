"""A controller works with exactly the permissions that the doctor asks for."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.cli.doctor.permissions import FACT_PERMISSIONS, Permission, needed_permissions
from karpenter_core.kube.resources import NODES, ResourceKind
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.testing.scenarios import load_scenario
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.e2e.kwok import KwokCloud
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))
USER = "least"
RBAC = "rbac.authorization.k8s.io"
ROLES = ResourceKind(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = ResourceKind(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]


def permissions():
    """Return what the controller needs, and what kwok needs to make Nodes."""
    kinds = Codecs([KWOKNodeClass]).kinds
    needed = needed_permissions(kinds, [KWOKNodeClass], lease_namespace="kube-system")
    needed += FACT_PERMISSIONS
    return (*needed, Permission("create", NODES), Permission("patch", NODES, "status"))


def cluster_role(needed):
    verbs = defaultdict(list)
    for permission in needed:
        name = permission.kind.plural
        name += f"/{permission.subresource}" if permission.subresource else ""
        verbs[permission.kind.group, name].append(permission.verb)
    rules = [
        {"apiGroups": [group], "resources": [name], "verbs": allowed}
        for (group, name), allowed in verbs.items()
    ]
    return {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": USER},
        "rules": rules,
    }  # fmt: skip


BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": USER},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": USER},
    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
}


async def doctor(kubeconfig):
    """Return what is wrong, by what it is about."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "karpenter_core.cli.main", "doctor", "--output=json",
        f"--kubeconfig={kubeconfig}", "--providers=kwok", "--kwok-state-file=:memory:",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    results = [line for line in json.loads(output) if line["severity"] == "error"]
    return process.returncode, [line["message"] for line in results]


async def test_a_controller_works_with_the_permissions_that_doctor_requires(
    real_local_cluster: RealLocalCluster, tmp_path
):
    """And what is missing of it is named."""
    kubeconfig = real_local_cluster.control_plane.write_kubeconfig(USER, organization="nobody")
    consolidation = load_scenario(ROOT / "tests" / "scenarios" / "consolidation.yaml")
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        role = cluster_role(permissions())
        await world.client.create(ROLES, {**role, "rules": role["rules"][1:]})
        await world.client.create(BINDINGS, BINDING)
        try:
            first = role["rules"][0]
            wrong = f"not permitted: {', '.join(first['verbs'])} {first['resources'][0]}"
            assert await doctor(kubeconfig) == (1, [wrong])
            await world.client.patch(ROLES, USER, {"rules": role["rules"]})
            assert await doctor(kubeconfig) == (0, [])
            await play(world, consolidation, kubeconfig)
            assert "forbidden" not in world.controllers["karpenter"].process.log_text()
        finally:
            await world.client.delete(BINDINGS, USER)
            await world.client.delete(ROLES, USER)


async def play(world, scenario, kubeconfig):
    for manifest in scenario.given.objects():
        await world.create(manifest)
    options = {"providers": ",".join(scenario.providers), **scenario.settings}
    await world.add_controller(kubeconfig=kubeconfig, options=options).start()
    for number, step in enumerate(scenario.steps, start=1):
        for action in step.when:
            await world.act(action)
        if step.then is not None:
            await world.expect(step.then, where=f"{scenario.name}, step {number}")
