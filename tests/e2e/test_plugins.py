"""Several providers run in one process; conflicting ones are refused."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.kube import resources
from karpenter_core.kube.resources import ResourceKind
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    InitialObjects,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.e2e.plugins import distribution, minimal_provider, render_crds
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

ROOT = Path(__file__).parents[2]
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))
MINIMAL_NODE_CLASSES = ResourceKind(
    "minimal.example.com", "v1", "minimalnodeclasses", "MinimalNodeClass", namespaced=False
)
BAD_QUANTITY = json.dumps(
    [
        {
            "name": "m1",
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": "two", "memory": "1Gi"},
            "offerings": [],
        },
    ],
)

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


def exactly(number: int) -> CountBounds:
    return CountBounds(at_least=number, at_most=number)


async def test_two_providers_serve_a_pool_each(
    embedded_local_cluster: LocalCluster, tmp_path: Path
):
    """Each launches for its own NodePool, and each removes what it launched."""
    plugins = minimal_provider(tmp_path / "plugins")
    crds = {path.name: path for path in render_crds("minimal", tmp_path / "crds", plugins)}
    crds |= {path.name: path for path in CRDS}
    async with ScenarioWorld(
        embedded_local_cluster,
        KwokCloud(),
        tmp_path,
        crds=crds.values(),
        plugins=plugins,
        kinds=[MINIMAL_NODE_CLASSES],
    ) as world:
        given = InitialObjects(
            node_pools=[
                ScenarioNodePool(name="kwok", labels={"example.com/cloud": "kwok"}),
                ScenarioNodePool(
                    name="minimal",
                    labels={"example.com/cloud": "minimal"},
                    node_class_group="minimal.example.com",
                    node_class_kind="MinimalNodeClass",
                ),
            ],
            manifests=[
                {
                    "apiVersion": "minimal.example.com/v1",
                    "kind": "MinimalNodeClass",
                    "metadata": {"name": "default"},
                    "spec": {},
                },
            ],
            deployments=[
                ScenarioDeployment(
                    name=f"on-{cloud}",
                    replicas=3,
                    pod={"nodeSelector": {"example.com/cloud": cloud}},
                )
                for cloud in ("kwok", "minimal")
            ],
        )
        for manifest in given.objects():
            await world.create(manifest)
        await world.add_controller(options={"providers": "kwok,minimal"}).start()

        await world.expect(
            Expectation(
                within=timedelta(seconds=60),
                pods=ExpectedPods(running=exactly(6)),
                pools_used=["kwok", "minimal"],
            ),
        )
        provider_ids = [node["spec"]["providerID"] for node in world.observe().pool_nodes]
        assert {each.partition(":")[0] for each in provider_ids} == {"kwok", "minimal"}

        for cloud in ("kwok", "minimal"):
            await world.scale(f"on-{cloud}", 0)
        await world.expect(Expectation(within=timedelta(seconds=60), nothing_left=True))


async def start_fails(world: ScenarioWorld, **options: str) -> str:
    """Start a controller that must not come up; return what it says."""
    controller = world.add_controller(options={"providers": "kwok", **options})
    await controller.start(wait=False)
    code = await controller.process.wait(30)
    assert code not in (0, -9, -15), controller.process.log_text()
    return controller.process.log_text()


async def test_two_owners_of_one_kind_stop_the_start(
    embedded_local_cluster: LocalCluster, tmp_path: Path
):
    """And the message names both, with the distributions they came with."""
    twin = distribution(
        tmp_path / "plugins",
        "knockoff-provider",
        {"knockoff": "knockoff:KnockoffProvider"},
        knockoff="""
            from dataclasses import replace

            from karpenter_core.provider.markers import hookimpl
            from karpenter_provider_kwok.plugin import KwokProvider


            class KnockoffProvider:
                def __init__(self):
                    self._original = KwokProvider()
                    for name in dir(KwokProvider):
                        taken = name in ("karpenter_provider_info", "karpenter_add_settings")
                        if name.startswith("karpenter_") and not taken:
                            setattr(self, name, getattr(self._original, name))

                @hookimpl
                def karpenter_provider_info(self):
                    return replace(self._original.karpenter_provider_info(), name="knockoff")
        """,
    )
    async with ScenarioWorld(
        embedded_local_cluster, KwokCloud(), tmp_path, crds=CRDS, plugins=[twin]
    ) as world:
        said = await start_fails(world, providers="kwok,knockoff")

    assert "KWOKNodeClass" in said
    assert "karpenter-provider-kwok" in said
    assert "knockoff-provider" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("content", "mentioned"),
    [
        (None, ["catalogue.json"]),
        ("{", ["catalogue.json"]),
        (BAD_QUANTITY, ["catalogue.json", "m1", "cpu", "two"]),
    ],
    ids=["missing", "not-json", "bad-quantity"],
)
async def test_a_bad_catalogue_file_stops_the_start(
    embedded_local_cluster: LocalCluster, tmp_path: Path, content: str | None, mentioned: list[str]
):
    """With file, entry, field and value in the message."""
    catalogue = tmp_path / "catalogue.json"
    if content is not None:
        catalogue.write_text(content)
    async with ScenarioWorld(embedded_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        said = await start_fails(world, **{"instance-types-file": str(catalogue)})

    assert [word for word in mentioned if word not in said] == [], said
    assert "Traceback" not in said


async def test_waits_for_the_crds_and_says_so(embedded_local_cluster: LocalCluster, tmp_path: Path):
    """A controller may be there before the kinds it works with."""
    async with ScenarioWorld(embedded_local_cluster, KwokCloud(), tmp_path, crds=CRDS) as world:
        kind = resources.CUSTOM_RESOURCE_DEFINITIONS
        for crd in await world.client.list(kind):
            await world.client.delete(kind, crd["metadata"]["name"])
        controller = world.add_controller(options={"providers": "kwok"})
        await controller.start(wait=False)

        async def says_what_is_missing() -> bool:
            return "nodepools.karpenter.sh" in controller.process.log_text()

        await controller.process.ready(says_what_is_missing, seconds=30)
        assert not await controller.is_ready()

        await world.install_crds()
        await controller.process.ready(controller.is_ready, seconds=30)
