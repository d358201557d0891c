"""The demo as a user starts it: it runs to its end, and an interrupted one cleans up."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from karpenter_core.cli.demo.demo_manifests import NAME
from karpenter_core.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
)
from karpenter_core.testing.cluster import ClusterClient
from tests.support.local_clusters import EmbeddedLocalCluster

COMMAND = (sys.executable, "-c", "from karpenter_core.cli.main import main; main()")
DEMO = (*COMMAND, "demo")
HINT = b"export KUBECONFIG="


@pytest.mark.e2e
@pytest.mark.timeout(150)
async def test_demo_plays_to_its_end(tmp_path):
    """Exit code 0: every pod ran and every node went away again, within 90 s; other commands see it."""
    demo = await asyncio.create_subprocess_exec(
        *DEMO, f"--log-folder={tmp_path}", stdout=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    async with asyncio.timeout(90):
        while HINT not in (line := await demo.stdout.readline()):
            assert line
        kubeconfig = line.partition(HINT)[2].decode().strip()
        top = await asyncio.create_subprocess_exec(
            *(*COMMAND, "top", "--once", "--kubeconfig", kubeconfig), stdout=asyncio.subprocess.PIPE
        )
        shown, _ = await top.communicate()
        output, _ = await demo.communicate()

    assert demo.returncode == 0, output.decode()
    assert b"500/500 pods running" in output
    assert (top.returncode, NAME.encode() in shown) == (0, True)


@pytest.mark.e2e
@pytest.mark.timeout(150)
async def test_interrupted_demo_leaves_nothing_behind(tmp_path):
    """Ctrl-C in the middle: nodes, objects and the CRDs it brought are gone from the cluster."""
    async with EmbeddedLocalCluster() as local_cluster:
        demo = await asyncio.create_subprocess_exec(
            *DEMO,
            f"--kubeconfig={local_cluster.kubeconfig}",
            f"--log-folder={tmp_path}",
            stdout=asyncio.subprocess.PIPE,
        )
        assert demo.stdout is not None
        while b"scale nginx to 500" not in await demo.stdout.readline():
            pass
        demo.send_signal(signal.SIGINT)
        async with asyncio.timeout(90):
            await demo.communicate()
        async with ClusterClient(local_cluster.kubeconfig) as client:
            left = [await client.list(kind) for kind in (NODES, PODS, CUSTOM_RESOURCE_DEFINITIONS)]
            names = {each["metadata"]["name"] for each in await client.list(NAMESPACES)}

    assert demo.returncode == 130
    assert left == [[], [], []]
    assert NAME not in names
