"""Every API server refuses the bad objects of one shared table."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.testing.cluster import ClusterError
from tests.api.admission_cases import CASES, DEFAULT_CASES, UPDATE_CASES
from tests.e2e.kwok import KwokCloud
from tests.support.runner import KINDS, ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


async def refused_at(world: ScenarioWorld, kind: str, obj: dict[str, Any]) -> set[str]:
    """Create an object; return the fields it was refused at, none if it was accepted."""
    try:
        await world.client.create(KINDS[kind], obj)
    except ClusterError as error:
        if error.code != 422:
            raise
        return set(error.fields)
    return set()


async def remove(world: ScenarioWorld, kind: str, obj: dict[str, Any]) -> None:
    await world.client.delete(KINDS[kind], obj["metadata"]["name"])


async def test_every_bad_object_is_refused_at_its_field(
    local_cluster: LocalCluster, tmp_path: Path
):
    """And every good one is accepted. A server may name further fields, never only others."""
    wrong: list[str] = []
    async with ScenarioWorld(local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for case in CASES:
            fields = await refused_at(world, case.kind, case.object)
            if (case.field is None and fields) or (
                case.field is not None and case.field not in fields
            ):
                wrong.append(f"{case.name}: refused at {sorted(fields)}, expected {case.field}")
            if not fields:
                await remove(world, case.kind, case.object)

    assert wrong == []


async def test_every_bad_update_is_refused_at_its_field(
    local_cluster: LocalCluster, tmp_path: Path
):
    """Immutable fields stay what they are; what was wrong before may stay."""
    wrong: list[str] = []
    async with ScenarioWorld(local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for case in UPDATE_CASES:
            kind = KINDS[case.kind]
            stored = await world.client.create(kind, case.old)
            fresh = copy.deepcopy(case.new)
            fresh["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
            fields: set[str] = set()
            try:
                path = kind.path(name=stored["metadata"]["name"])
                await world.client.request("PUT", path, fresh)
            except ClusterError as error:
                fields = set(error.fields)
            if (case.field is None and fields) or (
                case.field is not None and case.field not in fields
            ):
                wrong.append(f"{case.name}: refused at {sorted(fields)}, expected {case.field}")
            await remove(world, case.kind, case.old)

    assert wrong == []


async def test_defaults_are_stored(local_cluster: LocalCluster, tmp_path: Path):
    """The API server sets defaults that every client sees."""
    async with ScenarioWorld(local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for case in DEFAULT_CASES:
            stored = await world.client.create(KINDS[case.kind], case.object)
            assert stored["spec"] == case.spec, case.name
            await remove(world, case.kind, case.object)
