"""The claim of a static NodePool is its template, without instance types."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ALIASES, INITIALIZED, INSTANCE_TYPE, NODE_POOL
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import build_node_claim
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.testing.builders import catalogue, instance_type, node_pool, offering
from karpenter_core.testing.state_builders import ready_node_pool, synced_state


def planned(pool, *types, solve=None, listed=True):
    catalogues = {pool.name: catalogue(*types)} if listed else {}
    snapshot = synced_state(ready_node_pool(pool), catalogues=catalogues).snapshot()
    return plan_static_claim(
        snapshot, pool, aliases=ALIASES, well_known=frozenset(), solve=solve or SolveOptions()
    )


def sold(name, price, **options):
    return instance_type(name, offerings=[offering(price=price, **options)])


def test_the_template_is_carried_over():
    """Case 315: Gt 2 appears as Gte 3; no instance type and no request is put in."""
    pool = node_pool(
        replicas=2,
        labels={"team": "web"},
        annotations={"note": "kept"},
        taints=["dedicated=web:NoSchedule"],
        startup_taints=["boot:NoExecute"],
        requirements=[("example.com/size", "Gt", "2"), ("kubernetes.io/arch", "In", "amd64")],
    )

    claim = build_node_claim(
        planned(pool, sold("a", 1.0)),
        pool,
        suffix="x",
        node_pool_hash="1",
        node_pool_hash_version="v",
    )

    wanted = {spec.key: (spec.operator, spec.values) for spec in claim.spec.requirements}
    assert wanted["example.com/size"] == ("Gte", ("3",))
    assert wanted["kubernetes.io/arch"] == ("In", ("amd64",))
    assert wanted["team"] == ("In", ("web",))
    assert INSTANCE_TYPE not in wanted
    assert INITIALIZED not in wanted
    assert claim.metadata.labels["team"] == "web"
    assert claim.metadata.labels[NODE_POOL] == "default"
    assert int(claim.metadata.labels["example.com/size"]) >= 3
    assert claim.metadata.annotations["note"] == "kept"
    assert [taint.key for taint in claim.spec.taints] == ["dedicated"]
    assert [taint.key for taint in claim.spec.startup_taints] == ["boot"]
    assert claim.spec.resources.requests == {}


def test_the_cheapest_available_offering_is_its_price():
    plan = planned(node_pool(replicas=1), sold("dear", 3.0), sold("cheap", 1.0), sold("mid", 2.0))

    assert (plan.cheapest.instance_type, plan.cheapest.price_per_hour) == ("cheap", 1.0)


def test_offerings_that_the_template_excludes_are_not_its_price():
    pool = node_pool(replicas=1, requirements=[(INSTANCE_TYPE, "In", "dear")])

    assert planned(pool, sold("dear", 3.0), sold("cheap", 1.0)).cheapest.instance_type == "dear"


@pytest.mark.parametrize("types", [(), (sold("gone", 1.0, available=False),)])
def test_nothing_is_planned_while_no_offering_is_available(types):
    assert planned(node_pool(replicas=1), *types) is None


def test_nothing_is_planned_before_instance_types_are_listed():
    assert planned(node_pool(replicas=1), listed=False) is None


def test_nothing_is_planned_from_a_template_that_cannot_be_read():
    pool = node_pool(replicas=1, requirements=[("kubernetes.io/arch", "Gt", "many")])

    assert planned(pool, sold("a", 1.0)) is None
