"""An observer with permissions to read only works on a real API server, beside a controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.cli.rbac import render_rbac
from karpenter_core.kube.resources import ResourceKind
from karpenter_core.testing.scenarios import load_scenario
from karpenter_provider_kwok.plugin import KwokProvider
from tests.e2e.kwok import KwokCloud
from tests.support.processes import wait_until
from tests.support.runner import NODE_CLAIMS, ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))
RBAC = "rbac.authorization.k8s.io"
KINDS = {
    "ClusterRole": ResourceKind(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": ResourceKind(
        RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "Role": ResourceKind(RBAC, "v1", "roles", "Role", namespaced=True),
    "RoleBinding": ResourceKind(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True),
}
ACCOUNT = "system:serviceaccount:kube-system:observer"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(240),
]


async def test_an_observer_needs_permissions_to_read_only(
    real_local_cluster: RealLocalCluster, tmp_path
):
    kubeconfig = real_local_cluster.control_plane.write_kubeconfig(ACCOUNT, organization="nobody")
    roles = render_rbac(
        [KwokProvider().karpenter_provider_info()],
        namespace="kube-system",
        service_account="observer",
        observe=True,
    )
    scenario = load_scenario(ROOT / "tests" / "scenarios" / "consolidation.yaml")
    journal = tmp_path / "decisions"
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for role in roles:
            await world.client.create(KINDS[role["kind"]], role)
        try:
            for manifest in scenario.given.objects():
                await world.create(manifest)
            options = {"providers": ",".join(scenario.providers), **scenario.settings}
            await world.add_controller(options=options).start()
            (deploying, *_) = scenario.steps
            for action in deploying.when:
                await world.act(action)
            await world.expect(deploying.then, where="nodes for the pods")
            claims = {each["metadata"]["uid"] for each in await world.client.list(NODE_CLAIMS)}
            observer = world.add_controller(
                "observer",
                kubeconfig=kubeconfig,
                options={
                    **options,
                    "observe": "true",
                    "decision-journal": str(journal),
                    "kwok-state-file": str(tmp_path / "observer.sqlite3"),
                },
            )
            await observer.start()

            async def has_compared():
                return journal.exists() and '"observe"' in journal.read_text()

            await wait_until(has_compared, seconds=60)
            records = [json.loads(line) for line in journal.read_text().splitlines()]
            (compared, *_) = [each for each in records if each["kind"] == "observe"]
            assert compared["candidates"]
            assert {each["metadata"]["uid"] for each in await world.client.list(NODE_CLAIMS)} == (
                claims
            )
            log = observer.process.log_text()
            assert "forbidden" not in log
            assert "Traceback" not in log
        finally:
            for role in reversed(roles):
                metadata = role["metadata"]
                namespace = metadata.get("namespace", "")
                await world.client.delete(KINDS[role["kind"]], metadata["name"], namespace)
