"""A deleted claim's instance is terminated only over a fresh and readable state."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import is_true
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclaim.termination import ClaimTerminator
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import DONE, ControllerRuntime
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    NodeClaimNotFoundError,
    NotFoundError,
    TerminationRefusedError,
)
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.provider.contract import PollingPeriods, TerminationStatus
from karpenter_core.state.events import ObjectObserved
from karpenter_core.testing.state_builders import KWOK, node, node_claim, synced_state
from tests.controllers.clocks import StoryClock

TERMINATING = "InstanceTerminating"
FINALIZER = "karpenter.sh/termination"


class Scene:
    """The terminator over one deleted claim, and what is asked of everything around it."""

    def __init__(self, *, outcome=TerminationStatus.GONE, stage="Initialized", stale=()):
        self.clock = StoryClock()
        claim = node_claim("web", node_class_ref=KWOK, stage=stage)
        metadata = claim.metadata.model_copy(
            update={"deletion_timestamp": self.clock.now(), "finalizers": (FINALIZER,)}
        )
        status = claim.status.model_copy(
            update={"node_name": "web" if stage == "Initialized" else ""}
        )
        self.claim = claim.model_copy(update={"metadata": metadata, "status": status})
        self.cluster_state = ClusterState(
            synced_state(self.claim, now=self.clock.now()), self.clock
        )
        self.outcome, self.stale = outcome, stale
        self.read, self.unreadable = [], []
        self.terminated, self.written, self.notices, self.effects = [], [], [], []
        self.woken, self.forgotten, self.failure, self.found = [], [], None, ""
        self.terminator = ClaimTerminator(
            writer=self,
            providers=self,
            launcher=self,
            runtime=ControllerRuntime(
                clock=self.clock, new_id=SequentialIds("id"), metrics=Metrics()
            ),
            freshness=self,
            nodes=self,
            wake=self.woken.append,
        )

    def terminate_claim(self):
        return asyncio.run(self.terminator.terminate(self.claim))

    async def read_now(self, field_selector):
        self.read.append(field_selector)
        return [], self.unreadable

    def stale_or_wake(self, consumer, key, waker):
        assert (consumer, key) == (FreshnessConsumer.INSTANCE_TERMINATION, "web")
        self.waker = waker
        return self.stale

    async def terminate(self, ref, provider_id):
        assert ref == KWOK
        self.terminated.append(provider_id)
        return self.outcome

    def provider_of(self, _ref):
        return "kwok"

    def polling_periods(self, _provider):
        return PollingPeriods(termination=timedelta(seconds=90))

    async def write_claim(self, _old, new):
        if self.failure is not None:
            raise self.failure
        self.written.append(new)
        self.cluster_state.fold(ObjectObserved(new))
        return new

    def record_effects(self, step):
        self.effects.append(step)

    def publish_all(self, notices):
        self.notices += notices

    def is_without_instance(self, _uid):
        return not self.found

    def forget(self, uid):
        self.forgotten.append(uid)

    async def instances(self, _provider):
        raise AssertionError("nothing is looked up")

    def finished(self):
        return [FINALIZER not in claim.metadata.finalizers for claim in self.written]


def test_an_instance_without_a_node_is_terminated_and_its_claim_finished():
    scene = Scene()
    assert scene.terminate_claim() == DONE
    assert scene.read == ["metadata.name=web"]
    assert scene.terminated == [scene.claim.status.provider_id]
    assert scene.finished()[-1]
    assert scene.forgotten == [scene.claim.uid]


def test_nothing_is_terminated_while_the_node_of_the_claim_cannot_be_read():
    """It may have pods."""
    scene = Scene()
    scene.unreadable = ["Node web: spec.taints[0]: no key"]
    with pytest.raises(BadInputError, match=r"NodeClaim web is not terminated.*spec\.taints"):
        scene.terminate_claim()
    assert scene.terminated == scene.written == []


def test_nothing_is_terminated_over_a_stale_state_and_an_event_tells_so():
    scene = Scene(stale=("Node",))
    assert scene.terminate_claim() == DONE
    assert scene.terminated == scene.read == scene.written == []
    assert "Node" in scene.notices[0].message
    scene.waker()
    assert scene.woken == ["web"]


def test_an_instance_that_ends_slowly_is_asked_about_again_after_the_providers_period():
    scene = Scene(outcome=TerminationStatus.STARTED)
    assert scene.terminate_claim().requeue_after == 90
    assert is_true(scene.written[-1].status.conditions, TERMINATING)
    assert not any(scene.finished())


def test_the_node_of_a_claim_is_listed_once_however_long_its_instance_takes_to_end():
    scene = Scene(outcome=TerminationStatus.STARTED)
    for _ in range(3):
        scene.terminate_claim()
        scene.claim = scene.written[-1]
    assert len(scene.terminated) == 3
    assert scene.read == ["metadata.name=web"]


def test_a_known_node_that_only_another_finalizer_keeps_is_not_listed():
    """The instance does not wait for it, and nothing is unknown about its pods."""
    scene = Scene()
    kept = node(
        "web", claim=scene.claim, deleted=scene.clock.now(), finalizers=("example.com/audit",)
    )
    scene.cluster_state.fold(ObjectObserved(kept))
    scene.terminate_claim()
    assert scene.terminated == [scene.claim.status.provider_id]
    assert scene.read == []


def test_no_node_is_listed_for_a_claim_that_never_had_one():
    scene = Scene(stage="Launched")
    scene.terminate_claim()
    assert scene.terminated == [scene.claim.status.provider_id]
    assert scene.read == []


@pytest.mark.parametrize(
    "error", [CloudProviderError("no answer"), TerminationRefusedError("protected")]
)
def test_a_termination_that_fails_keeps_the_claim_and_is_raised(error):
    scene = Scene(outcome=error)
    with pytest.raises(type(error)) as raised:
        scene.terminate_claim()
    assert raised.value is error
    assert not any(scene.finished())
    refused = isinstance(error, TerminationRefusedError)
    assert [bool("protected" in notice.message) for notice in scene.notices] == [True] * refused


def test_an_instance_that_the_cloud_does_not_know_is_gone():
    scene = Scene(outcome=NodeClaimNotFoundError("nothing there"))
    assert scene.terminate_claim() == DONE
    assert scene.finished()[-1]


def test_the_end_of_a_claim_that_another_client_finished_is_not_counted():
    scene = Scene(stage="Created")
    scene.failure = NotFoundError("gone", status=404)
    assert scene.terminate_claim() == DONE
    assert scene.effects == []
