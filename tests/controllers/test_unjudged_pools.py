"""An observer judges the NodePools whose condition Ready nobody writes, and those alone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import READY, Condition, find_condition
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.api.nodepool import NodePoolStatus
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observation.unjudged import RESOLVE_PERIOD, UnjudgedNodePools
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import CloudProviderError, FencedError
from karpenter_core.lifecycle.nodepool.validation import LabelRules
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing import builders
from karpenter_core.testing.state_builders import KWOK, synced_state
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import StoryClock, TwoClocks


@dataclass
class Asked:
    """A provider that notes for which NodePools it is asked."""

    pools: list[str] = field(default_factory=list)

    def resolves(self, _node_class):
        return False

    async def list_instance_types(self, pool, _node_class):
        self.pools.append(pool.name)
        return ()


class Unable(Asked):
    """A provider that cannot list its types."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def list_instance_types(self, pool, node_class):
        await super().list_instance_types(pool, node_class)
        raise self.error


def observer(clock, asked):
    return UnjudgedNodePools(
        providers=asked,
        runtime=ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=Metrics()),
        label_rules=LabelRules(),
    )


def with_class(*pools, now):
    """Return a snapshot of NodePools with a NodeClass that nobody has resolved."""
    node_class = KWOKNodeClass(metadata=ObjectMeta(name=KWOK.name, uid="uid-class"))
    unresolved = node_class.status.model_copy(update={"conditions": ()})
    node_class = node_class.model_copy(update={"status": unresolved})
    return synced_state(*pools, node_class, now=now).snapshot()


def completed(*pools, asked=None):
    """Return the snapshot that is planned with, and the pools that the provider was asked for."""
    clock, asked = StoryClock(), asked or Asked()
    snapshot = with_class(*pools, now=clock.now())
    result = run_virtual(observer(clock, asked).complete(snapshot))
    return result, asked.pools


def pool_with(*conditions):
    pool = builders.node_pool(node_class_ref=KWOK)
    return pool.model_copy(update={"status": NodePoolStatus(conditions=conditions)})


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_pool_that_a_controller_has_judged_stays_as_it_is(status):
    judged = pool_with(Condition(type=READY, status=status, reason="Theirs"))
    snapshot, asked = completed(judged)
    assert snapshot.node_pools[judged.name] == judged
    assert asked == []


def test_a_pool_without_conditions_is_resolved_and_validated():
    pool = pool_with()
    snapshot, asked = completed(pool)
    ready = find_condition(snapshot.node_pools[pool.name].status.conditions, READY)
    assert ready is not None
    assert asked == [pool.name]
    assert snapshot.catalogues[pool.name].instance_types == ()


def test_a_pool_of_a_kind_that_nobody_manages_here_is_not_judged():
    other = NodeClassRef(group="other.io", kind="Other", name="a")
    pool = builders.node_pool(node_class_ref=other)
    pool = pool.model_copy(update={"status": NodePoolStatus(conditions=())})
    snapshot, asked = completed(pool)
    assert snapshot.node_pools[pool.name] == pool
    assert asked == []


@pytest.mark.parametrize(
    "error", [FencedError("not the leader"), CloudProviderError("the cloud is away")], ids=str
)
def test_a_pool_whose_types_cannot_be_listed_is_not_ready(error):
    """An observer may change nothing in the cloud, which a provider may need to list its types."""
    pool = pool_with()
    snapshot, asked = completed(pool, asked=Unable(error))
    assert asked == [pool.name]
    assert snapshot.catalogues[pool.name].instance_types, "what was listed before stays"
    ready = find_condition(snapshot.node_pools[pool.name].status.conditions, READY)
    assert (ready.status, ready.reason) == ("False", "UnhealthyDependents")


@pytest.mark.parametrize(("seconds", "asks"), [(-1, 1), (0, 2)])
def test_a_nodeclass_is_resolved_again_once_its_period_is_over(seconds, asks):
    clock, asked, pool = TwoClocks(), Asked(), pool_with()
    unjudged, snapshot = observer(clock, asked), with_class(pool, now=clock.now())
    run_virtual(unjudged.complete(snapshot))
    clock.passes(RESOLVE_PERIOD.total_seconds() + seconds)
    run_virtual(unjudged.complete(snapshot))
    assert asked.pools == [pool.name] * asks
