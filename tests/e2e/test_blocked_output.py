"""A controller works on while nobody reads what it logs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.kwok import KwokCloud
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("karpenter*.yaml")))

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


async def test_a_controller_leads_and_ends_although_its_log_is_blocked(
    embedded_local_cluster: LocalCluster, tmp_path: Path
):
    """The pipe is full before the first line: a write to it would wait for ever."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while os.write(reader, b"." * 4096):
            pass
    async with ScenarioWorld(embedded_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        controller = world.add_controller(options={"log-output-paths": str(pipe)})
        await controller.start()
        await world.expect_leader()
        await controller.process.stop()
    os.close(reader)

    assert controller.process.exit_code == 0
