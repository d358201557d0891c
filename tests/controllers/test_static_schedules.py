"""Replicas that no schedule tells remove no node, and the pool is looked at again."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ControllerRuntime,
    ReconcileResult,
)
from karpenter_core.controllers.static.deprovisioning import StaticDeprovisioningController
from karpenter_core.controllers.static.pool_changes import SETTLED_SECONDS
from karpenter_core.errors import ApiError
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.testing import builders
from karpenter_core.testing.state_builders import KWOK, node_claim, ready_node_pool, synced_state
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import StoryClock


class Pool:
    """The controller over a static pool with a surplus claim, and what it deletes."""

    def __init__(self, schedules="", *, replicas=1):
        clock = StoryClock()
        pool = ready_node_pool(builders.node_pool(replicas=replicas, node_class_ref=KWOK))
        if schedules:
            annotations = {"karpenter.sh/schedules": schedules}
            metadata = pool.metadata.model_copy(update={"annotations": annotations})
            pool = pool.model_copy(update={"metadata": metadata})
        claims = [node_claim(name, node_class_ref=KWOK) for name in ("one", "two")]
        node_class = KWOKNodeClass(metadata=ObjectMeta(name=KWOK.name, uid="uid-class"))
        builder = synced_state(pool, node_class, *claims, now=clock.now())
        self.cluster_state = ClusterState(builder, clock)
        self.deleted = []
        self.refusal = None
        self.asked, self.stale = [], ()
        self.controller = StaticDeprovisioningController(
            writer=self,
            runtime=ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=Metrics()),
            freshness=self,
        )

    def stale_or_wake(self, consumer, name, wake):
        self.asked.append((consumer, name))
        self.wake = wake
        return self.stale

    def record_metrics(self, updates):
        assert updates

    async def delete_claim(self, claim):
        if self.refusal is not None:
            raise self.refusal
        self.deleted.append(claim.name)
        return True

    def reconcile(self):
        return asyncio.run(self.controller.reconcile("default"))


SHUT = '[{"name": "x", "schedule": "0 0 1 1 *", "duration": "8784h", "shutdown": true}]'
"""Shut down at every time."""
OPEN = '[{"name": "x", "schedule": "0 0 1 1 *", "duration": "8784h", "replicas": 1}]'


def test_a_pool_without_surplus_is_reconciled_again():
    pool = Pool(replicas=2)
    result = pool.reconcile()
    assert pool.deleted == []
    assert result.requeue_after == SETTLED_SECONDS


def test_nodes_of_a_pool_that_is_shut_down_are_left_to_its_budgets():
    pool = Pool(SHUT)
    result = pool.reconcile()
    assert pool.deleted == []
    assert result.requeue_after == SETTLED_SECONDS


@pytest.mark.parametrize("schedules", ["", OPEN])
def test_a_surplus_claim_is_deleted_and_the_pool_is_reconciled_again(schedules):
    pool = Pool(schedules)
    result = pool.reconcile()
    assert len(pool.deleted) == 1
    assert result.requeue_after == SETTLED_SECONDS


def test_a_refused_deletion_is_tried_again_later_and_later():
    pool = Pool()
    pool.refusal = ApiError("no", status=403)
    assert pool.reconcile() == ReconcileResult(back_off=True)
    pool.refusal = None
    assert pool.reconcile().requeue_after == SETTLED_SECONDS
    assert len(pool.deleted) == 1


@pytest.mark.parametrize("schedules", ["[{}]", "{"])
def test_nothing_is_deleted_while_schedules_cannot_be_read(schedules):
    """The end of a wrong annotation wakes the pool; the look later is for what nobody tells."""
    pool = Pool(schedules)
    result = pool.reconcile()
    assert pool.deleted == []
    assert result.requeue_after == SETTLED_SECONDS


def test_nothing_is_deleted_while_what_it_depends_on_may_be_old():
    pool = Pool()
    pool.stale = ("pods",)
    assert pool.reconcile() == DONE
    assert pool.deleted == []
    assert pool.asked == [(FreshnessConsumer.STATIC_DEPROVISIONING, "default")]
    pool.stale = ()
    pool.reconcile()
    assert len(pool.deleted) == 1


def test_a_pool_without_surplus_waits_for_nothing():
    pool = Pool(replicas=2)
    pool.stale = ("pods",)
    assert pool.reconcile().requeue_after == SETTLED_SECONDS
    assert pool.asked == []
