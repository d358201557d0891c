"""Interruptions are handled once, acknowledged when handled, and tried again otherwise."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from karpenter_core.api.base import OwnerReference
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.interruption.controller import (
    ATTEMPTS,
    UNCLAIMED_GRACE,
    InterruptionController,
)
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import (
    ApiError,
    ConflictError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NotFoundError,
    OfferingKey,
    QuotaGroup,
)
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.provider.contract import Interruption, InterruptionKind, PollingPeriods
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, TimePassed
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.controllers.clocks import TwoClocks

WEB = node_claim("web", stage="Initialized")
NODE = node("web", claim=WEB)
OTHER = NodeClassRef(group="other.io", kind="Other", name="a")


def reclaim(number=1, *, provider_id=WEB.status.provider_id, kind=InterruptionKind.SPOT_RECLAIM):
    return Interruption(id=f"message-{number}", kind=kind, provider_id=provider_id)


class Interruptions:
    """The controller over a state; it is also its writer and its providers."""

    names = ("kwok",)

    def __init__(self, *objects, messages=(), failures=()):
        self.clock = TwoClocks()
        self.cluster_state = ClusterState(synced_state(*objects), self.clock)
        self.messages, self.failures = list(messages), list(failures)
        self.acknowledged, self.deleted, self.read, self.recorded = [], [], [], []
        self.metrics = Metrics()
        self.runtime = ControllerRuntime(
            clock=self.clock, new_id=SequentialIds("id"), metrics=self.metrics
        )
        self.controller = InterruptionController(
            writer=self,
            providers=self,
            runtime=self.runtime,
            act_on_rebalance=False,
        )

    # providers

    def polling_periods(self, _provider):
        return PollingPeriods()

    def reads_interruptions(self, _provider):
        return True

    def polls_interruptions(self, _provider):
        return True

    def provider_of(self, _ref):
        return "kwok"

    async def poll_interruptions(self, provider):
        assert provider == "kwok"
        return tuple(self.messages)

    async def read_interruptions(self, _ref, its_node):
        self.read.append(its_node.name)
        return tuple(self.messages)

    async def acknowledge_interruptions(self, provider, ids):
        assert provider == "kwok"
        self.acknowledged += ids

    # writer

    async def write_claim(self, _old, new):
        if self.failures:
            raise self.failures.pop(0)
        return new

    async def delete_claim(self, claim):
        self.deleted.append(claim.name)
        await asyncio.sleep(0)  # others work while the API server answers
        return True

    def publish_all(self, _notices):
        pass

    def record_metrics(self, updates):
        self.recorded += updates

    # what a test does

    def poll(self):
        return asyncio.run(self.controller.poll("kwok"))

    def read_node(self, name="web"):
        asyncio.run(self.controller.read_node(name))

    def passes(self, seconds):
        self.clock.passes(seconds)
        self.cluster_state.fold(TimePassed(self.clock.now()))

    def shortages(self):
        return dict(self.cluster_state.snapshot().ledger.unavailable_offerings)

    def claims_disrupted(self, reason):
        updates = [each for each in self.recorded if each.labels.get("reason") == reason]
        return sum(each.metric == "nodeclaims_disrupted" for each in updates)

    def counted(self, name, **labels):
        labels = {"provider": "kwok", **labels}
        return self.metrics.registry.get_sample_value(f"karpenter_interruption_{name}", labels) or 0


class TestPoll:
    def test_a_reclaimed_claim_is_deleted_and_its_message_acknowledged(self):
        world = Interruptions(WEB, NODE, messages=[reclaim()])
        assert world.poll() == 0.0, "there may be more messages"
        assert (world.deleted, world.acknowledged) == (["web"], ["message-1"])
        assert world.counted("received_messages_total", message_type="spot_interrupted") == 1
        assert world.counted("deleted_messages_total") == 1

    def test_a_claim_that_several_messages_announce_is_recorded_once(self):
        """EC2 tells of a reclaim, and of the instance that is shutting down then."""
        world = Interruptions(WEB, NODE, messages=[reclaim(1), reclaim(2)])
        world.poll()
        assert world.acknowledged == ["message-1", "message-2"]
        (entry,) = world.runtime.journal.latest(kind="disrupt")
        assert (entry.method, [item.node_claim for item in entry.candidates]) == (
            "interruption",
            ["web"],
        )

    def test_a_queue_that_acknowledges_nothing_has_a_count_of_zero(self):
        """An alert compares it with the messages that were received."""
        world = Interruptions(messages=[reclaim()])
        world.poll()
        name = "karpenter_interruption_deleted_messages_total"
        assert world.acknowledged == []
        assert world.metrics.registry.get_sample_value(name, {"provider": "kwok"}) == 0

    def test_without_messages_the_next_poll_waits(self):
        world = Interruptions(WEB, NODE)
        assert world.poll() == 5.0
        assert world.acknowledged == []

    def test_a_provider_that_repeats_itself_is_not_polled_without_a_pause(self):
        world = Interruptions(WEB, NODE, messages=[reclaim()])
        assert [world.poll(), world.poll()] == [0.0, 5.0]
        world.messages.append(reclaim(2))
        assert world.poll() == 0.0

    @pytest.mark.parametrize("kind", [InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN])
    def test_a_message_about_nothing_is_acknowledged_and_deletes_nothing(self, kind):
        world = Interruptions(WEB, NODE, messages=[reclaim(kind=kind)])
        world.poll()
        assert (world.deleted, world.acknowledged) == ([], ["message-1"])

    def test_a_message_waits_for_a_claim_that_may_still_appear(self):
        world = Interruptions(messages=[reclaim()])
        assert world.poll() == 5.0
        world.clock.passes(UNCLAIMED_GRACE.total_seconds() - 1)
        world.poll()
        assert world.acknowledged == []
        world.clock.passes(1)
        world.poll()
        assert world.acknowledged == ["message-1"]

    def test_a_claim_that_appears_meanwhile_is_interrupted(self):
        world = Interruptions(messages=[reclaim()])
        world.poll()
        world.cluster_state.fold(ObjectObserved(WEB))
        world.poll()
        assert (world.deleted, world.acknowledged) == (["web"], ["message-1"])

    def test_the_time_of_an_instance_without_claim_counts_anew_after_the_acknowledgement(self):
        world = Interruptions(messages=[reclaim()])
        for _ in range(3):
            world.poll()
            world.clock.passes(UNCLAIMED_GRACE.total_seconds())
        assert len(world.acknowledged) == 1

    def test_a_message_that_names_no_instance_is_not_waited_for(self):
        world = Interruptions(WEB, NODE, messages=[reclaim(provider_id="")])
        world.poll()
        assert world.acknowledged == ["message-1"]

    def test_messages_that_were_handled_are_acknowledged_although_others_fail(self):
        api = node_claim("api", stage="Initialized")
        about_api = reclaim(2, provider_id=api.status.provider_id)
        failure = ApiError("trouble", status=500)
        world = Interruptions(WEB, api, messages=[reclaim(), about_api], failures=[failure])
        world.poll()
        assert (world.deleted, world.acknowledged) == (["api"], ["message-2"])

    def test_the_time_in_the_queue_is_measured(self):
        world = Interruptions(WEB, NODE)
        announced = world.clock.now() - timedelta(seconds=40)
        message = reclaim()
        world.messages = [
            Interruption(
                id=message.id, kind=message.kind, provider_id=message.provider_id,
                announced_at=announced,
            )
        ]  # fmt: skip
        world.poll()
        assert world.counted("message_queue_duration_seconds_sum") == 40


def failed_launch(number=1, *, provider_id=WEB.status.provider_id, **fields):
    return Interruption(
        id=f"message-{number}",
        kind=InterruptionKind.LAUNCH_FAILED,
        provider_id=provider_id,
        **fields,
    )


def starting_claim(**options):
    """Return a claim of a NodePool that has an instance and no node."""
    claim = node_claim("web", stage="Launched", **options)
    pool = OwnerReference(
        api_version="karpenter.sh/v1", kind="NodePool", name="default", uid="uid-of-pool"
    )
    metadata = claim.metadata.model_copy(update={"owner_references": (pool,)})
    return claim.model_copy(update={"metadata": metadata})


class TestLaunchesThatFailLate:
    def test_several_messages_about_one_failure_count_once(self):
        """Two failures in a row would pause the NodePool."""
        world = Interruptions(starting_claim(), messages=[failed_launch(1), failed_launch(2)])
        world.poll()
        world.poll()
        ledger = world.cluster_state.snapshot().ledger
        assert ledger.launch_pauses["uid-of-pool"].failures == 1
        assert world.claims_disrupted("launch_failed") == 1

    def test_repeated_message_does_not_prolong_the_shortage(self):
        """The claim may take minutes to end, and the provider may repeat itself meanwhile."""
        world = Interruptions(starting_claim(), messages=[failed_launch()])
        world.poll()
        (before,) = world.shortages().values()
        world.passes(60)
        world.poll()
        assert list(world.shortages().values()) == [before]

    def test_a_leader_learns_the_shortage_of_a_claim_that_its_predecessor_deleted(self):
        """The predecessor ended before it acknowledged the message, and its masks ended with it."""
        world = Interruptions(starting_claim(deleted=EPOCH), messages=[failed_launch()])
        world.poll()
        assert (world.deleted, world.acknowledged) == ([], ["message-1"])
        assert len(world.shortages()) == 1

    @pytest.mark.parametrize(
        ("scope", "node_class"),
        [(ExhaustedScope.NODE_CLASS, "default"), (ExhaustedScope.OFFERING, "")],
    )
    def test_shortage_of_the_subnets_of_a_nodeclass_masks_for_that_one_alone(
        self, scope, node_class
    ):
        key = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="on-demand")
        error = InsufficientCapacityError("no addresses", offerings=(key,), scope=scope)
        world = Interruptions(starting_claim(), messages=[failed_launch(error=error)])
        world.poll()
        assert {each.node_class for each in world.shortages()} == {node_class}

    def test_shortage_of_a_claim_that_is_gone_is_learned_once(self):
        """The launch may fail after its NodeClaim was given up; the next one would fail as late."""
        key = OfferingKey(instance_type="m-4x", zone="zone-a", capacity_type="on-demand")
        group = QuotaGroup(label="family", value="m", capacity_type="spot")
        error = InsufficientCapacityError("full", offerings=(key,), quota_groups=(group,))
        world = Interruptions(messages=[failed_launch(error=error)])
        world.poll()
        assert {each.offering for each in world.shortages()} == {key, group}
        before = world.shortages()
        world.passes(30)
        world.poll()
        assert world.shortages() == before

    @pytest.mark.parametrize(
        "error",
        [
            None,
            LaunchFailedError("no boot"),
            InsufficientCapacityError("sold out"),
            InsufficientCapacityError(
                "no addresses",
                offerings=(OfferingKey(instance_type="m", zone="a", capacity_type="spot"),),
                scope=ExhaustedScope.NODE_CLASS,
            ),
        ],
    )
    def test_failure_of_a_claim_that_is_gone_and_names_no_offering_for_all_masks_nothing(
        self, error
    ):
        """Its offering and its NodeClass went with the claim."""
        world = Interruptions(messages=[failed_launch(error=error)])
        world.poll()
        assert world.shortages() == {}

    @pytest.mark.parametrize("provider_id", ["", "kwok://not-recorded-yet"])
    def test_claim_whose_instance_is_not_recorded_yet_is_matched_by_its_token(self, provider_id):
        claim = starting_claim()
        message = failed_launch(provider_id=provider_id, token=claim.uid)
        world = Interruptions(claim, messages=[message])
        world.poll()
        assert (world.deleted, world.acknowledged) == (["web"], ["message-1"])

    def test_the_instance_names_the_claim_whatever_the_token_says(self):
        """The token helps only while the instance is not recorded."""
        for token in ("", "uid-of-another-claim"):
            world = Interruptions(WEB, messages=[failed_launch(token=token)])
            world.poll()
            assert world.deleted == ["web"]


class TestWrites:
    @pytest.mark.parametrize("times", [1, ATTEMPTS - 1])
    def test_a_conflict_is_tried_again(self, times):
        conflicts = [ConflictError("changed", status=409)] * times
        world = Interruptions(WEB, NODE, messages=[reclaim()], failures=conflicts)
        world.poll()
        assert (world.deleted, world.acknowledged) == (["web"], ["message-1"])

    def test_each_conflict_is_followed_by_a_longer_wait(self):
        conflicts = [ConflictError("changed", status=409)] * (ATTEMPTS - 1)
        times = []
        for count in range(ATTEMPTS):
            world = Interruptions(WEB, NODE, messages=[reclaim()], failures=conflicts[:count])
            begun = world.clock.monotonic()
            world.poll()
            times.append(world.clock.monotonic() - begun)
        waits = [after - before for before, after in pairwise(times)]
        assert all(longer > shorter > 0 for shorter, longer in pairwise(waits))
        assert len(waits) > 1

    def test_conflicts_without_end_leave_the_message_with_the_provider(self):
        conflicts = [ConflictError("changed", status=409)] * ATTEMPTS
        world = Interruptions(WEB, NODE, messages=[reclaim()], failures=conflicts)
        world.poll()
        assert (world.deleted, world.acknowledged) == ([], [])

    def test_a_claim_that_is_gone_is_done(self):
        gone = NotFoundError("gone", status=404)
        world = Interruptions(WEB, NODE, messages=[reclaim()], failures=[gone])
        world.poll()
        assert (world.deleted, world.acknowledged) == ([], ["message-1"])


class TestNodes:
    def test_an_announcement_is_handled_once(self):
        world = Interruptions(WEB, NODE, messages=[reclaim(provider_id="")])
        world.read_node()
        world.read_node()
        assert (world.deleted, world.read) == (["web"], ["web", "web"])
        assert world.counted("received_messages_total", message_type="spot_interrupted") == 1
        assert world.acknowledged == []

    def test_an_announcement_that_could_not_be_handled_is_handled_later(self):
        world = Interruptions(WEB, NODE, messages=[reclaim(provider_id="kwok://later")])
        world.read_node()
        assert world.deleted == []
        world.messages = [reclaim()]
        world.read_node()
        assert world.deleted == ["web"]

    @pytest.mark.parametrize(
        "objects",
        [
            (),
            (WEB,),
            (NODE,),
            (
                WEB,
                node_claim("twin", stage="Initialized", provider_id=WEB.status.provider_id),
                NODE,
            ),
            (node_claim("web", stage="Initialized", node_class_ref=OTHER), NODE),
        ],
        ids=["nothing", "no node", "no claim", "two claims", "of nobody"],
    )
    def test_foreign_nodes_are_not_read(self, objects):
        world = Interruptions(*objects, messages=[reclaim()])
        world.read_node()
        assert (world.read, world.deleted) == ([], [])

    def test_a_removed_node_is_not_read(self):
        world = Interruptions(WEB, NODE, messages=[reclaim()])
        world.cluster_state.fold(ObjectRemoved(NODE))
        world.read_node()
        assert world.read == []


@pytest.mark.parametrize("kind", [InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN])
def test_a_message_about_nothing_is_acknowledged_at_once(kind):
    """No claim will ever appear that it could be about."""
    stage = Interruptions(WEB, NODE, messages=[reclaim(kind=kind, provider_id="kwok://other")])
    stage.poll()
    assert stage.acknowledged == ["message-1"]
    assert stage.deleted == []
