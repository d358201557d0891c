"""The demo of a cloud, as a user runs it: `karpenter demo --provider NAME`.

The demo itself fails, with exit code 1, when what it shows is not as promised: pods spread over zones,
a sold-out offering and the next one bought, an interrupted node drained before its
deadline, nodes replaced within the budget, nothing left in the cloud's own dump.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from karpenter_core.cli.demo.demo_manifests import NAME
from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from karpenter_core.testing.cluster import ClusterClient
from tests.e2e.plugins import sample_provider
from tests.support.processes import wait_until

DEMO = (sys.executable, "-c", "from karpenter_core.cli.main import main; main()", "demo")


@pytest.mark.e2e
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("local_cluster", "provider"),
    [
        ("embedded", "alibabacloud"),
        ("embedded", "aws"),
        ("embedded", "azure"),
        # The demo sends the same requests to a cluster for each cloud.
        ("real", "alibabacloud"),
    ],
    indirect=["local_cluster"],
)
async def test_a_demo_fills_disturbs_and_drains_a_cloud(local_cluster, provider, tmp_path):
    async with ClusterClient(local_cluster.kubeconfig) as client:
        before = {each["metadata"]["name"] for each in await definitions(client)}

        demo = await asyncio.create_subprocess_exec(
            *DEMO,
            f"--provider={provider}",
            f"--kubeconfig={local_cluster.kubeconfig}",
            f"--log-folder={tmp_path}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(480):
            output, _ = await demo.communicate()

        text = output.decode()
        assert demo.returncode == 0, text
        for told in (
            "50/50 pods running",
            # A call of Azure tries one offering.
            "sold out\n" if provider == "azure" else "sold out, bought",
            "before its deadline",
            "at the same time; image",
            "the cloud has no resource of this cluster any more",
        ):
            assert told in text
        assert [node for node in await client.list(NODES) if NAME in str(node["spec"])] == []

        async def all_is_gone():  # Kubernetes empties first what it deletes, which takes a while
            namespaces = {each["metadata"]["name"] for each in await client.list(NAMESPACES)}
            kinds = {each["metadata"]["name"] for each in await definitions(client)}
            return NAME not in namespaces and kinds == before

        await wait_until(all_is_gone, seconds=60)


@pytest.mark.e2e
@pytest.mark.timeout(500)
async def test_the_demo_of_a_cloud_without_spot_says_so_and_ends(tmp_path):
    """The sample provider of a REST cloud, on an embedded cluster, as its author would run it."""
    path = os.pathsep.join(map(str, sample_provider(tmp_path / "sample")))
    demo = await asyncio.create_subprocess_exec(
        *DEMO,
        "--provider=sample",
        f"--log-folder={tmp_path}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": path},
    )
    async with asyncio.timeout(480):
        output, _ = await demo.communicate()

    text = output.decode()
    assert demo.returncode == 0, text
    for told in (
        "50/50 pods running",
        "EUR/h",
        "bought ",
        "the simulated cloud has no spot instances",
        "at the same time; image debian-2",
        "the cloud has no resource of this cluster any more",
    ):
        assert told in text


async def definitions(client):
    return await client.list(CUSTOM_RESOURCE_DEFINITIONS)
