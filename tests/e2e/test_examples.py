"""The manifests of the guides, on a real API server: all are admitted, and the rights are enough."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.cli.demo.demo_kubelets import find_simulated_cloud
from karpenter_core.kube import resources
from karpenter_core.kube.resources import ResourceKind, custom_kind
from tests.e2e.kwok import KwokCloud
from tests.repository.test_examples import CLOUDS, NODE_CLASSES, documents
from tests.support.helm import only, render
from tests.support.runner import NODE_POOLS, ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

ACCOUNT = "system:serviceaccount:kube-system:karpenter"
CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))
RBAC = "rbac.authorization.k8s.io"
KINDS = {
    "ClusterRole": ResourceKind(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": ResourceKind(
        RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    ),
    "Deployment": resources.DEPLOYMENTS,
    "NodePool": NODE_POOLS,
    "PodDisruptionBudget": resources.POD_DISRUPTION_BUDGETS,
    "Role": ResourceKind(RBAC, "v1", "roles", "Role", namespaced=True),
    "RoleBinding": ResourceKind(RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True),
    "Service": resources.SERVICES,
    "ServiceAccount": ResourceKind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True),
    **{model.resource.kind: custom_kind(model.resource) for model in NODE_CLASSES.values()},
}
KEPT = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
"""Kinds that the doctor needs; others are admitted as a dry run."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(240),
]


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_manifests_of_the_guides_are_admitted_and_lets_the_controller_do_its_work(
    cloud, real_local_cluster: RealLocalCluster, tmp_path
):
    """As `karpenter doctor` finds under the service account's own rights."""
    kubeconfig = real_local_cluster.control_plane.write_kubeconfig(ACCOUNT, organization="nobody")
    (values,) = documents(f"{cloud}/values")
    applied = await asyncio.to_thread(render, values, namespace="kube-system")
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        try:
            for manifest in (*applied, *documents(f"{cloud}/nodes")):
                await apply(world.client, manifest)
            with find_simulated_cloud(cloud) as account:
                pod = only(applied, "Deployment")["spec"]["template"]["spec"]
                variables = {
                    each["name"]: each["value"]
                    for each in pod["containers"][0]["env"]
                    if "value" in each
                }
                folder = {"CACHE_FOLDER": str(tmp_path)}
                result = await doctor(kubeconfig, {**variables, **folder, **account.environment})
        finally:
            for manifest in reversed(applied):
                if manifest["kind"] in KEPT:
                    metadata = manifest["metadata"]
                    namespace = metadata.get("namespace", "")
                    await world.client.delete(KINDS[manifest["kind"]], metadata["name"], namespace)

    assert {each["about"] for each in result} >= {"CRDs", "objects", "permissions", cloud}
    assert [each for each in result if each["severity"] == "error"] == []
    (rights,) = (each for each in result if each["about"] == "permissions")
    assert rights["severity"] == "ok"


async def apply(client, manifest):
    """Apply as the guide does, but refuse fields that the server does not know."""
    metadata = manifest["metadata"]
    path = KINDS[manifest["kind"]].path(
        namespace=metadata.get("namespace", ""), name=metadata["name"]
    )
    await client.request(
        "PATCH",
        path,
        manifest,
        query={
            "fieldManager": "kubectl",
            "fieldValidation": "Strict",
            **({} if manifest["kind"] in KEPT else {"dryRun": "All"}),
        },
        content_type="application/apply-patch+yaml",
    )


async def doctor(kubeconfig, settings):
    """Return the findings of `karpenter doctor` with these variables."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "karpenter_core.cli.main", "doctor", "--output=json"),
        f"--kubeconfig={kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **settings},
    )
    output, _ = await process.communicate()
    return json.loads(output)
