"""NodePool status has the usage and is patched by difference."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import find_condition
from karpenter_core.api.crd import render_crd
from karpenter_core.api.nodepool import NODE_CLASS_READY, VALIDATION_SUCCEEDED, NodePool
from karpenter_core.api.quantities import Quantity
from karpenter_core.api.schema import SchemaValidator
from karpenter_core.lifecycle.nodepool.pool_usage import with_usage
from karpenter_core.lifecycle.nodepool.readiness import with_readiness
from karpenter_core.lifecycle.nodepool.status import node_pool_status_patch, with_condition
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import ObjectObserved, ObjectRemoved
from karpenter_core.state.node_pool_usage import PoolStatusSums
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import (
    MANAGED_KINDS,
    node,
    node_and_claim,
    node_claim,
    synced_state,
)

NOW = EPOCH + timedelta(minutes=1)
ZEROS = {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


def held(builder: StateBuilder, pool: NodePool) -> dict[str, str]:
    status = with_usage(pool, builder.snapshot(), PoolStatusSums(rates=None)).status
    assert status.resources["nodes"] == Quantity(str(status.nodes))
    return {name: str(quantity) for name, quantity in status.resources.items()}


def test_a_pool_without_nodes_shows_zeros():
    """Cases 142 and 84."""
    assert held(synced_state(), node_pool()) == ZEROS


def test_two_nodes_add_up():
    """Case 142: static pools are counted like the others."""
    amounts = {"cpu": "300m", "memory": "3Gi", "pods": "10"}
    builder = synced_state(
        *node_and_claim("web-1", capacity=amounts), *node_and_claim("web-2", capacity=amounts)
    )

    for pool in (node_pool(), node_pool(replicas=2)):
        assert held(builder, pool) == ZEROS | {
            "cpu": "600m",
            "memory": "6Gi",
            "pods": "20",
            "nodes": "2",
        }


def test_the_claim_counts_until_the_node_is_initialised():
    """Cases 142 and 84."""
    claim = node_claim("web", stage="Launched", capacity={"cpu": "2", "memory": "1Gi"})
    builder = synced_state(claim)
    assert held(builder, node_pool())["cpu"] == "2"

    builder.apply_event(ObjectObserved(node("web", claim=claim, capacity={"cpu": "1"})))

    assert held(builder, node_pool())["cpu"] == "1"


def test_the_last_node_gone_leaves_zeros():
    """Cases 142 and 84."""
    instance, claim = node_and_claim("web-1")
    builder = synced_state(instance, claim)
    pool = with_usage(node_pool(), builder.snapshot(), PoolStatusSums(rates=None))
    assert pool.status.nodes == 1

    builder.apply_event(ObjectRemoved(instance))
    builder.apply_event(ObjectRemoved(claim))

    assert held(builder, pool) == ZEROS


def test_pools_are_counted_separately():
    """Case 84."""
    builder = synced_state(
        *node_and_claim("web-1", pool="web"), *node_and_claim("batch-1", pool="batch")
    )

    assert held(builder, node_pool("web"))["nodes"] == "1"
    assert held(builder, node_pool("other")) == ZEROS


def test_nothing_new_is_the_same_pool():
    snapshot = synced_state(*node_and_claim("web-1")).snapshot()
    pool = with_usage(node_pool(), snapshot, PoolStatusSums(rates=None))

    assert with_usage(pool, snapshot, PoolStatusSums(rates=None)) is pool


def test_an_unsynced_state_says_nothing():
    """It would count too little, and write that over the truth."""
    builder = StateBuilder(MANAGED_KINDS)

    pool = node_pool()

    assert with_usage(pool, builder.snapshot(), PoolStatusSums(rates=None)) is pool


def versioned(pool: NodePool) -> NodePool:
    metadata: ObjectMeta = pool.metadata.model_copy(update={"resource_version": "7"})
    return pool.model_copy(update={"metadata": metadata})


def test_an_unchanged_status_is_not_written():
    pool = versioned(node_pool())

    assert node_pool_status_patch(pool, pool) is None


def test_usage_is_patched_without_a_lock_and_drops_unused_resources():
    snapshot = synced_state(*node_and_claim("web-1")).snapshot()
    old = versioned(with_usage(node_pool(), snapshot, PoolStatusSums(rates=None)))
    resources = {name: old.status.resources[name] for name in ("cpu", "nodes")}
    new = old.model_copy(
        update={"status": old.status.model_copy(update={"resources": resources, "nodes": 4})}
    )

    patch = node_pool_status_patch(old, new)

    assert patch is not None
    assert patch.resource_version is None
    assert patch.body == {
        "status": {
            "nodes": 4,
            "resources": {
                "cpu": "4",
                "nodes": "1",
                "memory": None,
                "pods": None,
                "ephemeral-storage": None,
            },
        }
    }


def test_conditions_are_patched_with_a_resource_version_and_match_the_schema():
    old = versioned(node_pool())
    new = with_readiness(old, None, now=NOW)

    patch = node_pool_status_patch(old, new)

    assert patch is not None
    assert patch.resource_version == "7"
    version = render_crd(NodePool)["spec"]["versions"][0]
    manifest = new.model_dump(mode="json", exclude_none=True) | patch.body
    validator = SchemaValidator(version["schema"]["openAPIV3Schema"])
    assert validator.validate(validator.default(manifest)) == []


def test_a_pool_that_is_being_deleted_stays_unready_since_it_was():
    """Its generation is one higher then; that is no news about its conditions."""
    invalid = with_condition(
        node_pool(), type=VALIDATION_SUCCEEDED, status="False", reason="Invalid", now=EPOCH
    )
    kept = tuple(each for each in invalid.status.conditions if each.type != NODE_CLASS_READY)
    deleting = invalid.model_copy(
        update={
            "status": invalid.status.model_copy(update={"conditions": kept}),
            "metadata": invalid.metadata.model_copy(
                update={"generation": 2, "deletion_timestamp": NOW}
            ),
        }
    )
    after = with_condition(
        deleting, type=VALIDATION_SUCCEEDED, status="False", reason="Invalid", now=NOW
    )
    ready = find_condition(after.status.conditions, "Ready")
    assert (ready.status, ready.last_transition_time) == ("False", EPOCH)
