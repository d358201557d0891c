"""Commands wait for their replacements."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.controllers.disruption.execution import CommandQueue
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.test_disruption_queue import ALONE, CPU, fixed, is_true, staged
from tests.controllers.whole_controller import deployment

BOOT = {"key": "example.com/boot", "effect": "NoSchedule"}
"""A startup taint that nobody takes off, unless a test does."""


def boot_slowly(stage):
    """Let all nodes drift; their replacements have a startup taint."""
    patch = {"spec": {"template": {"spec": {"startupTaints": [BOOT]}}}}
    stage.scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")


def replacement(stage):
    (new,) = (c for c in stage.scene.claims() if c["metadata"]["name"] not in stage.first)
    return new


async def wait_registered(stage):
    """Wait for a replacement that is registered; return its name."""
    await stage.until(lambda: len(stage.claims) == 2)
    await stage.until(lambda: is_true(replacement(stage), "Registered"))
    return replacement(stage)["metadata"]["name"]


def test_a_replacement_that_is_registered_and_not_initialized_is_waited_for(tmp_path):
    """Its startup taint stays: the old node serves, until the taint goes."""

    async def scenario(stage):
        await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
        boot_slowly(stage)
        new = await wait_registered(stage)

        await stage.clock.sleep(8 * 60)

        assert not is_true(replacement(stage), "Initialized")
        assert stage.leaving == set()
        assert stage.tainted == stage.first

        stage.scene.cluster.server.registry.patch(NODES, {"spec": {"taints": None}}, new, "")
        await stage.until(lambda: stage.claims == {new}, seconds=120)

    staged(tmp_path, scenario)


def test_a_replacement_that_registers_late_is_waited_for(tmp_path):
    """Bare metal may boot for a quarter of an hour: each try would cost a node, and end too early."""

    async def scenario(stage):
        await stage.begin(fixed(after="0s"), deployment("web", 1, affinity=ALONE), pods=1)
        stage.cloud_fails({"fault": "slow-node", "delay": "13m"})
        boot_slowly(stage)
        await stage.until(lambda: len(stage.claims) == 2)
        (new,) = stage.claims - stage.first

        await stage.clock.sleep(12 * 60)
        assert stage.claims == {*stage.first, new}
        assert stage.tainted == stage.first
        await stage.until(lambda: is_true(replacement(stage), "Registered"), seconds=180)
        await stage.clock.sleep(8 * 60)
        assert stage.tainted == stage.first

        stage.scene.cluster.server.registry.patch(NODES, {"spec": {"taints": None}}, new, "")
        await stage.until(lambda: stage.claims == {new}, seconds=120)

    staged(tmp_path, scenario)


def test_a_replacement_that_is_never_initialized_is_waited_for_ten_minutes(tmp_path):
    """They count from its registration: then its node is up, and something else is wrong."""

    async def scenario(stage):
        await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
        boot_slowly(stage)
        await wait_registered(stage)
        await stage.clock.sleep(9 * 60)
        assert stage.tainted == stage.first
        await stage.until(lambda: not stage.tainted, seconds=120)
        assert stage.reasoned == set()

    staged(tmp_path, scenario)


@pytest.mark.parametrize(
    ("reason", "after"), [("drifted", "0s"), ("drifted", "5m"), ("underutilized", "0s")]
)
def test_a_replacement_that_is_ready_after_its_command_was_taken_back_is_used(
    tmp_path, reason, after
):
    """Removed as empty, it would be launched again, and be too late again, without end."""

    async def scenario(stage):
        registry = stage.scene.cluster.server.registry
        on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        sizes = {"requirements": [on_demand, {**CPU, "values": ["2", "4", "8"]}]}
        pool = fixed(after=after, template=sizes)
        await stage.begin(pool, deployment("web", 1, cpu="6"), pods=1)
        if reason == "underutilized":
            requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
            containers = [{"name": "web", "image": "nginx", "resources": requests}]
            smaller = {"spec": {"template": {"spec": {"containers": containers}}}}
            registry.patch(DEPLOYMENTS, smaller, "web", "default")
            annotations = {"karpenter.sh/drift": "detect-only"}
            registry.patch(NODE_POOLS, {"metadata": {"annotations": annotations}}, "general", "")
        boot_slowly(stage)
        await stage.until(lambda: len(stage.claims) == 2, seconds=600)
        new = await wait_registered(stage)
        assert replacement(stage)["metadata"]["annotations"]["karpenter.sh/created-for"] == reason
        await stage.until(lambda: not stage.tainted, seconds=900)
        await stage.clock.sleep(120)

        registry.patch(NODES, {"spec": {"taints": None}}, new, "")
        await stage.until(lambda: stage.claims == {new}, seconds=120)

    staged(tmp_path, scenario)


def test_a_replacement_that_nobody_uses_goes_after_five_minutes(tmp_path):
    async def scenario(stage):
        await stage.begin(fixed(after="0s"), deployment("web", 1, affinity=ALONE), pods=1)
        boot_slowly(stage)
        new = await wait_registered(stage)
        stage.scene.cluster.server.registry.patch(
            DEPLOYMENTS, {"spec": {"replicas": 0}}, "web", "default"
        )
        await stage.clock.sleep(5)
        stage.scene.cluster.server.registry.patch(NODES, {"spec": {"taints": None}}, new, "")
        await stage.clock.sleep(4 * 60)
        assert stage.claims == {new}
        await stage.until(lambda: not stage.claims, seconds=120)

    staged(tmp_path, scenario)


def test_a_command_is_taken_back_while_its_replacement_is_still_ending(tmp_path):
    """A foreign finalizer holds the claim: it exists, and cannot be used."""

    async def scenario(stage):
        await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
        boot_slowly(stage)
        new = await wait_registered(stage)
        held = {"metadata": {"finalizers": [*stage.finalizers(new), "example.com/audit"]}}
        stage.scene.cluster.server.registry.patch(NODE_CLAIMS, held, new, "")

        stage.scene.cluster.delete(NODE_CLAIMS, new)

        await stage.until(lambda: not stage.tainted & stage.first, seconds=10)
        assert new in stage.claims
        assert stage.leaving == set()

    staged(tmp_path, scenario)


def test_a_command_is_taken_back_when_a_replacement_that_was_ready_is_lost(tmp_path):
    """The pods that should go there would have no node: the cloud may reclaim it while others boot."""

    async def scenario(stage):
        large, small = ({"requirements": [{**CPU, "values": [size]}]} for size in ("8", "4"))
        web = deployment("web", 3, cpu="2100m", memory="1Gi")
        await stage.begin(fixed(template=large), web, pods=3)
        template = {**small, "startupTaints": [BOOT]}
        registry = stage.scene.cluster.server.registry
        registry.patch(NODE_POOLS, {"spec": {"template": {"spec": template}}}, "general", "")
        await stage.until(lambda: len(stage.scene.nodes()) == 4)
        *ready, slow = sorted(stage.claims - stage.first)
        await stage.until(lambda: all(is_true(c, "Registered") for c in stage.scene.claims()))
        for name in ready:
            registry.patch(NODES, {"spec": {"taints": None}}, name, "")
        await stage.until(lambda: sum(is_true(c, "Initialized") for c in stage.scene.claims()) == 3)
        await stage.clock.sleep(5)
        assert stage.tainted == stage.first

        stage.scene.cluster.delete(NODE_CLAIMS, ready[0])

        await stage.until(lambda: not stage.tainted & stage.first, seconds=10)
        registry.patch(NODES, {"spec": {"taints": None}}, slow, "")
        await stage.clock.sleep(10)
        assert stage.leaving == set()

    staged(tmp_path, scenario)


def bulky(**affinity):
    """Pods that fill a node of eight cores but for one, each on a node of its own."""
    terms = [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "bulk"}}}
    ]
    return deployment(
        "bulk",
        2,
        cpu="6",
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        **affinity,
    )


async def begin_two_for_one(stage):
    """Make two large nodes, of which a small one could soon do the work."""
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    sizes = {**CPU, "values": ["2", "4", "8"]}
    pool = fixed(after="0s", template={"requirements": [on_demand, sizes]})
    await stage.begin(pool, bulky(), deployment("web", 2, cpu="1"), pods=4)
    assert len(stage.first) == 2
    assert len({pod["spec"]["nodeName"] for pod in stage.scene.pods() if "web" in str(pod)}) == 2


async def seen_for(stage, seconds):
    """Return every claim there was at some moment of the next while."""
    seen = set()
    for _ in range(seconds):
        await stage.clock.sleep(1)
        seen |= stage.claims
    return seen


def test_two_nodes_are_replaced_by_one(tmp_path):
    """The move that the next test forbids happens without an obstacle."""

    async def scenario(stage):
        await begin_two_for_one(stage)
        stage.scene.cluster.scale(DEPLOYMENTS, "bulk", 0)
        await stage.until(lambda: stage.tainted >= stage.first, seconds=60)
        await stage.until(lambda: stage.leaving == stage.first, seconds=120)
        assert len(stage.claims - stage.first) == 1

    staged(tmp_path, scenario)


@pytest.mark.parametrize("status", [403, 404], ids=["refused", "gone"])
def test_nothing_is_ordered_for_candidates_of_which_one_cannot_be_marked(tmp_path, status):
    """Pods would still be bound to it, and the replacement is not made for those.

    Nor is it made for a node that has gone since the decision, which the watch has not told yet.
    """

    async def scenario(stage):
        await begin_two_for_one(stage)
        stuck = max(stage.first)
        stage.scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("PATCH", f"/nodes/{stuck}"), times=None, status=status)
        )
        stage.scene.cluster.scale(DEPLOYMENTS, "bulk", 0)

        assert await seen_for(stage, 120) <= stage.first

    staged(tmp_path, scenario)


def test_a_candidate_is_in_one_command_at_a_time(tmp_path, monkeypatch):
    """Another command for it, at the same moment or later, is refused."""
    start, results = CommandQueue.start, []

    async def several(queue, command, found, **options):
        one, two = await asyncio.gather(
            start(queue, command, found, **options), start(queue, command, found, **options)
        )
        results.append((one, two, await start(queue, command, found, **options)))
        return one

    monkeypatch.setattr(CommandQueue, "start", several)

    async def scenario(stage):
        await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
        stage.change()
        await stage.until(lambda: stage.leaving == stage.first, seconds=120)
        assert results == [(True, False, False)]
        assert len(stage.claims - stage.first) == 1

    staged(tmp_path, scenario)


def put_namesake(cluster, name):
    """Put another claim in the place of one; what the first ordered runs on."""
    registry = cluster.server.registry
    (old,) = (claim for claim in cluster.list(NODE_CLAIMS) if claim["metadata"]["name"] == name)
    registry.patch(NODE_CLAIMS, {"metadata": {"finalizers": None}}, name)
    registry.delete(NODE_CLAIMS, name)
    metadata = {"name": name, "labels": old["metadata"]["labels"]}
    registry.create(
        NODE_CLAIMS,
        {
            "apiVersion": NODE_CLAIMS.api_version,
            "kind": NODE_CLAIMS.kind,
            "metadata": metadata,
            "spec": old["spec"],
        },
    )


def test_a_claim_recreated_under_the_name_of_a_candidate_is_not_marked(tmp_path, monkeypatch):
    """The command was decided for another claim; the namesake may be a launch under way."""
    start, results = CommandQueue.start, []

    async def scenario(stage):
        async def late(queue, command, found, **options):
            if not results:
                put_namesake(stage.scene.cluster, command.candidates[0].name)
                await stage.clock.sleep(1)
            command_started = await start(queue, command, found, **options)
            results.append((command_started, stage.reasoned))
            return command_started

        monkeypatch.setattr(CommandQueue, "start", late)
        await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
        stage.change()
        await stage.until(lambda: bool(results), seconds=120)

        assert results[0] == (False, set())

    staged(tmp_path, scenario)
