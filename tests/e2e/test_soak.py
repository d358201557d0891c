"""Two controllers live through a few rounds; `tests.e2e.soak` plays an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e import soak

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.local_clusters import LocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]


async def test_rounds_with_a_killed_leader_and_an_api_server_that_restarts_leave_nothing(
    real_local_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(soak, "ROUND_SECONDS", 20.0)
    monkeypatch.setattr(soak, "API_RESTART_ROUNDS", 2)
    monkeypatch.setattr(soak, "STEADY_SECONDS", 0.0)
    record = await soak.soak(real_local_cluster, tmp_path, minutes=0.9, least_rounds=2)
    assert record.breaches == []
    assert record.happened["leader killed"] >= 1
    assert record.happened["API server killed"] >= 1
    assert record.launched > 0
    assert {sample.pid for samples in record.samples.values() for sample in samples}
    assert all(sample.tasks > 0 for samples in record.samples.values() for sample in samples)
