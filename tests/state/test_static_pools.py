"""Claims of static NodePools are counted against replicas and limits.nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, INITIALIZED, INSTANCE_TERMINATING
from karpenter_core.state.events import DeletionMarked, DeletionUnmarked
from karpenter_core.state.static_pools import (
    StaticNodeAllowance,
    free_nodes,
    is_managed_static,
    missing_replicas,
    static_claims_by_pool,
    static_pool_claims,
    surplus_replicas,
)
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import (
    node,
    node_claim,
    synced_state,
    with_claim_conditions,
)


def static_pool(name="default", *, replicas=3, nodes=None):
    return node_pool(name, replicas=replicas, limits=None if nodes is None else {"nodes": nodes})


def claims(count, *, pool="default", first=0):
    return [node_claim(f"{pool}-{n}", pool=pool) for n in range(first, first + count)]


def replaced(claim):
    """A claim that a command has marked and not replaced yet."""
    return with_claim_conditions(claim, DISRUPTION_REASON, now=EPOCH)


def counts(snapshot, pool="default"):
    found = static_pool_claims(snapshot, pool)
    return len(found.active), len(found.pending), len(found.deleting)


def test_claims_are_active_pending_or_deleting():
    terminating = with_claim_conditions(node_claim("d"), INSTANCE_TERMINATING, now=EPOCH)
    state = synced_state(
        static_pool(),
        node_claim("a"),
        replaced(node_claim("b")),
        node_claim("c", deleted=EPOCH),
        terminating,
        node_claim("elsewhere", pool="other"),
    )

    found = static_pool_claims(state.snapshot(), "default")

    names = [[claim.name for claim in group] for group in (found.active, found.pending)]
    assert names == [["a"], ["b"]]
    assert [claim.name for claim in found.deleting] == ["c", "d"]
    assert found.node_count == 4


def test_a_marked_claim_counts_as_deleting_until_it_is_unmarked():
    """As when a drift command starts, and when it is rolled back."""
    state = synced_state(static_pool(), replaced(node_claim("a")), node_claim("b"))
    assert counts(state.snapshot()) == (1, 1, 0)

    state.apply_event(DeletionMarked(names=("a",), cause="drift"))
    assert counts(state.snapshot()) == (1, 0, 1)

    state.apply_event(DeletionUnmarked(names=("a",)))
    assert counts(state.snapshot()) == (1, 1, 0)


def test_a_claim_that_only_a_foreign_finalizer_keeps_does_not_count_against_the_limit():
    state = synced_state(
        static_pool(nodes="1"), node_claim("a", deleted=EPOCH, finalizers=("example.com/kept",))
    )
    pool = state.snapshot().node_pools["default"]

    assert free_nodes(pool, static_pool_claims(state.snapshot(), "default")) == 1


@pytest.mark.parametrize(
    ("condition", "finalizers", "free"),
    [
        (INSTANCE_TERMINATING, ("example.com/kept",), 1),
        (INSTANCE_TERMINATING, ("example.com/kept", TERMINATION_FINALIZER), 0),
        (INITIALIZED, ("example.com/kept",), 0),
    ],
)
def test_a_claim_whose_node_only_a_foreign_finalizer_keeps_does_not_count(
    condition, finalizers, free
):
    """Our finalizer is removed from the Node when the instance is gone."""
    claim = with_claim_conditions(
        node_claim("a", provider_id="kwok://a", deleted=EPOCH), condition, now=EPOCH
    )
    kept = node("a", claim=claim, deleted=EPOCH, finalizers=finalizers)
    snapshot = synced_state(static_pool(nodes="1"), claim, kept).snapshot()

    assert (
        free_nodes(snapshot.node_pools["default"], static_pool_claims(snapshot, "default")) == free
    )


@pytest.mark.parametrize(
    ("replicas", "existing", "missing", "surplus"),
    [(1, 2, 0, 1), (2, 0, 2, 0), (3, 1, 2, 0), (0, 0, 0, 0), (0, 2, 0, 2), (50, 0, 50, 0)],
)
def test_replicas_are_compared_with_active_claims(replicas, existing, missing, surplus):
    """Cases 312, 315, 319."""
    pool = static_pool(replicas=replicas)
    found = static_pool_claims(synced_state(pool, *claims(existing)).snapshot(), "default")

    assert (missing_replicas(pool, found), surplus_replicas(pool, found)) == (missing, surplus)


@pytest.mark.parametrize(("in_flight", "missing"), [(0, 2), (1, 1), (2, 0), (3, 0)])
def test_claims_in_flight_are_not_missing(in_flight, missing):
    pool = static_pool(replicas=3)
    found = static_pool_claims(synced_state(pool, *claims(1)).snapshot(), "default")

    assert missing_replicas(pool, found, in_flight=in_flight) == missing


def test_claims_that_are_being_replaced_are_neither_missing_nor_surplus():
    pool = static_pool(replicas=2)
    marked = [replaced(claim) for claim in claims(2)]
    replacements = claims(1, first=2)
    found = static_pool_claims(synced_state(pool, *marked, *replacements).snapshot(), "default")

    assert (missing_replicas(pool, found), surplus_replicas(pool, found)) == (0, 0)


def test_deleting_claims_are_missing_replicas_and_no_surplus():
    """Case 319: one active and three deleting, one wanted."""
    leaving = [node_claim(f"gone-{n}", deleted=EPOCH) for n in range(3)]
    for replicas, missing in ((1, 0), (2, 1)):
        pool = static_pool(replicas=replicas)
        found = static_pool_claims(
            synced_state(pool, node_claim("a"), *leaving).snapshot(), "default"
        )
        assert (missing_replicas(pool, found), surplus_replicas(pool, found)) == (missing, 0)


def test_free_nodes_counts_active_deleting_pending_and_claims_in_flight():
    """Case 321."""
    pool = static_pool(nodes="6")
    state = synced_state(
        pool, node_claim("a"), replaced(node_claim("b")), node_claim("c", deleted=EPOCH)
    )
    found = static_pool_claims(state.snapshot(), "default")

    assert free_nodes(pool, found) == 3
    assert free_nodes(pool, found, in_flight=2) == 1
    assert free_nodes(pool, found, in_flight=5) == 0
    assert free_nodes(static_pool(), found, in_flight=5) is None


def grants(allowance, pool, wanted):
    given = 0
    for _ in range(wanted):
        if not allowance.refusal(pool):
            allowance.grant(pool)
            given += 1
    return given


def test_an_allowance_grants_up_to_the_limit_and_then_nothing():
    """Case 314: three claims of ten, then seven more of ten wanted."""
    pool = static_pool(nodes="10")
    allowance = StaticNodeAllowance(synced_state(pool, *claims(3)).snapshot(), in_flight={})

    assert grants(allowance, pool, 10) == 7
    assert grants(allowance, pool, 10) == 0
    assert "limits.nodes=10" in allowance.refusal(pool)


def test_an_allowance_counts_claims_in_flight_of_its_pool_only():
    pool = static_pool(nodes="4")
    snapshot = synced_state(pool, *claims(1)).snapshot()

    here = StaticNodeAllowance(snapshot, in_flight={"default": 2})
    elsewhere = StaticNodeAllowance(snapshot, in_flight={"other": 2})

    assert (grants(here, pool, 10), grants(elsewhere, pool, 10)) == (1, 3)


def test_an_allowance_never_limits_dynamic_pools():
    pool = node_pool(limits={"nodes": "0"})

    assert grants(StaticNodeAllowance(synced_state(pool).snapshot(), in_flight={}), pool, 3) == 3


def test_only_served_pools_with_replicas_that_stay_are_managed():
    """Case 311."""
    pool, dynamic = static_pool(), node_pool("dynamic")
    state = synced_state(pool, dynamic)
    metadata = pool.metadata.model_copy(update={"deletion_timestamp": EPOCH})

    assert is_managed_static(pool, state.snapshot())
    assert not is_managed_static(dynamic, state.snapshot())
    assert not is_managed_static(pool.model_copy(update={"metadata": metadata}), state.snapshot())
    assert not is_managed_static(pool, synced_state(pool, managed_kinds={}).snapshot())


@given(
    st.integers(0, 12),
    st.integers(0, 12) | st.none(),
    st.lists(st.sampled_from(("active", "pending", "deleting")), max_size=12),
    st.integers(0, 5),
)
def test_granted_claims_never_exceeds_limit_or_replicas(replicas, limit, kinds, in_flight):
    makers = {
        "active": node_claim,
        "pending": lambda name: replaced(node_claim(name)),
        "deleting": lambda name: node_claim(name, deleted=EPOCH),
    }
    pool = static_pool(replicas=replicas, nodes=None if limit is None else str(limit))
    existing = [makers[kind](f"claim-{n}") for n, kind in enumerate(kinds)]
    snapshot = synced_state(pool, *existing).snapshot()
    found = static_claims_by_pool(snapshot, frozenset({"default"})).get("default")
    if found is None:
        assert not existing
        found = static_pool_claims(snapshot, "default")
    allowance = StaticNodeAllowance(snapshot, in_flight={"default": in_flight})

    given = grants(allowance, pool, missing_replicas(pool, found))

    kept = len(found.active) + len(found.pending)
    assert kept + given <= max(replicas, kept)
    if limit is not None and given:
        assert len(existing) + in_flight + given <= limit
    assert not (given and surplus_replicas(pool, found))


def test_a_stage_makes_no_difference():
    state = synced_state(static_pool(), node_claim("a"), node_claim("b", stage=INITIALIZED))
    assert counts(state.snapshot()) == (2, 0, 0)
