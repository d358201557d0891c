"""The documented Indexed Job of a sweep, on a real control plane with the Job controller of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import PODS, ResourceKind
from tests.e2e.kwok import KwokCloud
from tests.support.processes import wait_until
from tests.support.runner import ScenarioWorld
from tests.support.sweep_job import INPUTS, documented_job

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
JOBS = ResourceKind("batch", "v1", "jobs", "Job", namespaced=True)
CONFIG_MAPS = ResourceKind("", "v1", "configmaps", "ConfigMap", namespaced=True)
INDEX = "batch.kubernetes.io/job-completion-index"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]


async def test_the_job_is_admitted_and_has_a_pod_for_each_part(
    real_local_cluster: RealLocalCluster, tmp_path
):
    """Each pod has its index in the variable that the arguments name."""
    job = documented_job()
    job["metadata"]["namespace"] = "default"
    (volume,) = (
        each for each in job["spec"]["template"]["spec"]["volumes"] if each["name"] == "input"
    )
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": volume["configMap"]["name"], "namespace": "default"},
        "data": {file.name: file.read_text() for file in INPUTS},
    }
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:

        async def pods() -> list[dict[str, Any]]:
            listed = await world.client.list(PODS)
            owner = job["metadata"]["name"]
            return [
                each
                for each in listed
                if each["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == owner
            ]

        async def all_there() -> bool:
            return len(await pods()) == job["spec"]["completions"]

        await world.client.create(CONFIG_MAPS, files)
        made = await world.client.create(JOBS, job)
        try:
            await wait_until(all_there, seconds=60)
            found = await pods()
        finally:
            await world.client.delete(JOBS, job["metadata"]["name"], "default")
            for each in await pods():
                await world.client.delete(PODS, each["metadata"]["name"], "default")
            await world.client.delete(CONFIG_MAPS, files["metadata"]["name"], "default")

    spec = made["spec"]
    assert (spec["completionMode"], spec["backoffLimitPerIndex"]) == ("Indexed", 2)
    actions = [each["action"] for each in spec["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "FailJob", "FailIndex"]
    indexes = sorted(int(each["metadata"]["annotations"][INDEX]) for each in found)
    assert indexes == list(range(job["spec"]["completions"]))
    for each in found:
        (container,) = each["spec"]["containers"]
        assert container["args"] == job["spec"]["template"]["spec"]["containers"][0]["args"]
        (variable,) = (one for one in container["env"] if one["name"] == "JOB_COMPLETION_INDEX")
        assert INDEX in variable["valueFrom"]["fieldRef"]["fieldPath"]
