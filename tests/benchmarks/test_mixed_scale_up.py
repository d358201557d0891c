"""The mix of workloads has the pods that were asked for, and figures are compared by ratios."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.inputs import read_pods
from benchmarks.mixed_scale_up import (
    QUIET_SECONDS,
    ScaleUp,
    last_binding,
    medians,
    summary,
    workloads,
)
from benchmarks.mixes import PodTemplate
from benchmarks.scale_up import count_answers
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.scheduling.portfolio import plan_portfolio
from karpenter_core.scheduling.problem import Catalogue, SchedulingProblem
from karpenter_core.scheduling.solve import solve
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.builders import node_pool
from karpenter_provider_kwok.catalogue import load_catalogue
from karpenter_provider_kwok.catalogue_default import ZONES as SOLD_ZONES
from karpenter_provider_kwok.catalogue_default import default_catalogue_text
from tests.verifier import violations

ZONES = ["a", "b", "c"]


@pytest.mark.parametrize("pods", [8, 160, 1001])
def test_eight_deployments_share_all_pods(pods):
    made = workloads(pods, ZONES)
    assert sum(each.replicas for each in made) == pods
    assert len({(each.cpu, each.memory) for each in made}) == len(made) == 8
    assert max(each.replicas for each in made) - min(each.replicas for each in made) <= 1


def test_spreads_count_the_pods_of_their_own_deployment():
    made = {each.name: each.manifest() for each in workloads(80, ZONES)}
    spread = {
        name: term
        for name, manifest in made.items()
        for term in manifest["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    }
    assert set(spread) == {"zone-small", "zone-large", "hostname"}
    for name, term in spread.items():
        assert term["labelSelector"] == made[name]["spec"]["selector"]


def scale_up(seconds):
    return ScaleUp(
        all_bound_seconds=seconds,
        nodes=3,
        price_per_hour=2.0,
        cpu_seconds=1.0,
        memory_mib=100.0,
        calls=10,
    )


def test_medians_are_compared_with_floor_and_peer():
    ours = medians([scale_up(9.0), scale_up(6.0), scale_up(7.0)])
    lines = summary({"karpenter-core": ours, "Karpenter": medians([scale_up(14.0)])}, 4.0)
    assert lines[0].startswith("karpenter-core: all_bound_seconds 7.00")
    assert "karpenter-core takes 1.75 x it" in lines[2]
    assert lines[3].startswith(
        "karpenter-core beside Karpenter: all_bound_seconds 0.50 x, nodes 1.00 x"
    )


def test_calls_are_counted_by_their_answers():
    """A patch that is refused and sent again is two calls."""
    patch = {"verb": "patch", "objectRef": {"resource": "nodes"}, "responseStatus": {"code": 200}}
    status = {**patch, "objectRef": {"resource": "pods", "subresource": "status"}}
    refused = {**patch, "responseStatus": {"code": 409}}
    assert count_answers([refused, patch, status, patch]) == {
        "patch nodes 200": 2,
        "patch nodes 409": 1,
        "patch pods/status 200": 1,
    }


def problem_of(pods: int) -> SchedulingProblem:
    """Return the mix as one pass plans for it, on the default catalogue."""
    templates: list[PodTemplate] = []
    for each in workloads(pods, SOLD_ZONES):
        cpu, memory = parse_quantity(each.cpu), parse_quantity(each.memory)
        template = PodTemplate(
            labels={"app": each.name},
            cpu_milli=int(cpu * 1000),
            memory_mib=int(memory / 2**20),
            spec=each.pod,
        )
        templates += [template] * each.replicas
    types = load_catalogue(default_catalogue_text(), file="default")
    return SchedulingProblem(
        pods=tuple(read_pods(templates)),
        pools=(node_pool("general"),),
        catalogues={"general": Catalogue(version="1", instance_types=types)},
        namespaces={"default": {}},
    )


def test_the_mix_gets_fewer_larger_nodes_where_they_cost_no_more(monkeypatch):
    """Each node is some ten writes to the API server, by this controller and others."""
    asked = problem_of(120)
    plan = solve(asked)
    monkeypatch.setattr(plan_portfolio, "_LARGE_NODES_FEE_SHARES", (1.0,))
    before = solve(asked)

    assert violations(asked, plan) == []
    assert not plan.unschedulable
    assert len(plan.claims) < len(before.claims)
    assert plan.cost.hourly <= before.cost.hourly


@pytest.mark.parametrize(("pods", "left", "took"), [(3, 0, 5.0), (4, 1, 5.0 + QUIET_SECONDS)])
def test_the_floor_ends_with_the_last_binding_that_there_is(pods, left, took):
    """A pod for which the scheduler has left no room would be waited for without an end."""
    bound_at = (1.0, 2.0, 5.0)

    async def story():
        now = asyncio.get_running_loop().time
        begun = now()
        last, unbound = await last_binding(
            lambda: sum(now() - begun >= at for at in bound_at), pods
        )
        return last - begun, unbound, now() - begun

    last, unbound, waited = run_virtual(story())
    assert (last, unbound) == (pytest.approx(5.0, abs=0.1), left)
    assert waited == pytest.approx(took, abs=0.2)
