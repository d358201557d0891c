"""A name server that goes silent costs a leadership, and no node; the standby works on when it is back."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.support.controller import RUN
from tests.support.name_server import NameServer, NameService
from tests.support.processes import wait_until
from tests.support.runner import NODE_CLAIMS, ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

CRDS: Final = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
NAME: Final = "api.cluster.test"
REMEMBERED_SECONDS: Final = 11.0
"""Longer than the client keeps an address that it has looked up."""
LEASE_SECONDS: Final = 10.0
END_SECONDS: Final = 6.0
"""Time for the end of a process, in which an unanswered lookup may have no part: it takes up to 40 s."""
LOOKUP_SECONDS: Final = 60.0
"""Longer than a lookup without an answer takes."""
HEALED_SECONDS: Final = 60.0

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a process a resolv.conf"),
]

GIVEN: Final = InitialObjects(
    node_pools=[ScenarioNodePool(name="general")],
    deployments=[ScenarioDeployment(name="web", replicas=2, cpu="40")],
)


def running(count: int) -> Expectation:
    amount = CountBounds(at_least=count, at_most=count)
    return Expectation(
        within=timedelta(seconds=HEALED_SECONDS),
        pods=ExpectedPods(running=amount),
        node_claims=amount,
        instances=amount,
        launched=amount,
        consistent=True,
    )


def named_kubeconfig(given: Path, file: Path) -> Path:
    """Write the kubeconfig that names the API server by its host name."""
    document = yaml.safe_load(given.read_text())
    cluster = document["clusters"][0]["cluster"]
    cluster["server"] = cluster["server"].replace("127.0.0.1", NAME)
    cluster["tls-server-name"] = "127.0.0.1"
    file.write_text(yaml.safe_dump(document))
    return file


async def test_lookups_that_get_no_answer_cost_no_node_and_end_a_leader_in_time(
    real_local_cluster: LocalCluster, tmp_path: Path
):
    """All connections break meanwhile, and a pod is created."""
    kubeconfig = named_kubeconfig(real_local_cluster.kubeconfig, tmp_path / "named.kubeconfig")
    async with (
        NameServer(NAME, tmp_path) as names,
        ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world,
    ):
        for manifest in GIVEN.objects():
            await world.create(manifest)
        leader, standby = (
            world.add_controller(
                name,
                kubeconfig=kubeconfig,
                options={"providers": "kwok"},
                command=names.command(RUN),
            )
            for name in ("leader", "standby")
        )
        await leader.start()
        await world.expect(running(2), where="before")
        await standby.start()
        before = {kind: world.uids(kind) for kind in (NODE_CLAIMS, NODES, PODS)}
        world.expendable.add("leader")  # it ends when it loses the lease; a kubelet starts it again

        names.service = NameService.SILENT
        await asyncio.sleep(REMEMBERED_SECONDS)
        await real_local_cluster.restart_api_server()
        await world.scale("web", 3)

        async def has_lost_the_lease() -> bool:
            return "lost the leader lease, ending" in leader.process.log_text()

        async def has_said_why() -> bool:
            return "Temporary failure in name resolution" in standby.process.log_text()

        await wait_until(has_lost_the_lease, seconds=2 * LEASE_SECONDS)
        assert await leader.process.wait(END_SECONDS) == 1
        await wait_until(has_said_why, seconds=LOOKUP_SECONDS)
        for kind, held in before.items():
            assert held <= world.uids(kind), kind.kind

        names.service = NameService.WORKS
        await world.expect(running(3), where="healed")
        for kind, held in before.items():
            assert held <= world.uids(kind), kind.kind
        assert standby.process.is_running
