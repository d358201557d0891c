"""The API server admits what the embedded one admits.

Properties of admitted objects (`test_admitted_objects.py`) ask its check in the place of an API server.
Here the same random objects are judged by both, without being stored.

`KARPENTER_PROPERTY_EXAMPLES=2000 pytest -m e2e tests/e2e/test_admission_fuzz.py` tries many.
"""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from karpenter_core.api.crd import render_crd
from karpenter_core.kube.resources import custom_kind
from karpenter_core.sim.custom import kinds_of
from karpenter_core.testing.cluster import ClusterError
from tests.api.test_admitted_objects import MODELS, specs_of
from tests.e2e.kwok import KwokCloud
from tests.properties import examples
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
USUAL_EXAMPLES = 150
AT_ONCE = 16

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]


def drawn(kind: str, count: int) -> list[dict[str, Any]]:
    """Return random objects of a kind."""
    resource = MODELS[kind].resource
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(spec=specs_of(kind))
    def collect(spec: Any) -> None:
        found.append(
            {
                "apiVersion": resource.api_version,
                "kind": kind,
                "metadata": {"name": "any"},
                "spec": copy.deepcopy(spec),
            }
        )

    collect()
    return found


async def refusal(world: ScenarioWorld, obj: dict[str, Any]) -> str:
    """Return the message of the API server's refusal; nothing if it admits the object."""
    kind = custom_kind(MODELS[obj["kind"]].resource)
    path = kind.path(namespace="default" if kind.namespaced else "")
    try:
        await world.client.request("POST", path, obj, query={"dryRun": "All"})
    except ClusterError as error:
        if error.code not in {400, 422}:
            raise
        return str(error)
    return ""


async def test_random_objects_are_judged_alike(real_local_cluster: LocalCluster, tmp_path: Path):
    different: list[str] = []
    admitted: dict[str, int] = {}
    async with ScenarioWorld(real_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        for kind in sorted(MODELS):
            versions = kinds_of(render_crd(MODELS[kind]))
            version = MODELS[kind].resource.version
            (served,) = (each for each in versions if each.kind.version == version)
            objects = await asyncio.to_thread(drawn, kind, examples(USUAL_EXAMPLES))
            slots = asyncio.Semaphore(AT_ONCE)

            async def judge(obj: dict[str, Any], slots: asyncio.Semaphore = slots) -> str:
                async with slots:
                    return await refusal(world, obj)

            for obj, said in zip(objects, await asyncio.gather(*map(judge, objects)), strict=True):
                prepared = served.prepare(copy.deepcopy(obj), None)
                ours = [str(issue) for issue in served.issues(prepared, None)]
                admitted[kind] = admitted.get(kind, 0) + (not said)
                if bool(ours) != bool(said):
                    different.append(
                        f"{obj}\n  server: {said or 'admits'}\n  ours: {ours or 'admits'}"
                    )
    assert not different, "\n".join([f"{len(different)} of {admitted}", *different[:10]])
    assert min(admitted.values()) > 0, admitted
