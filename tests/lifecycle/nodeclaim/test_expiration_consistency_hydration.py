"""Expiry, consistency and hydration (acceptance cases 122, 123, 125)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import INITIALIZED as INITIALIZED_LABEL
from karpenter_core.api.labels import NODE_POOL, node_class_label
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.nodeclaim import CONSISTENT_STATE_FOUND, LAUNCHED
from karpenter_core.lifecycle.nodeclaim.consistency import consistency_step
from karpenter_core.lifecycle.nodeclaim.expiration import expiration_step
from karpenter_core.lifecycle.nodeclaim.hydration import hydration_step
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import KWOK, node, node_claim, with_claim_conditions

LABEL = node_class_label(KWOK.group, KWOK.kind)


def after(seconds: float):
    return EPOCH + timedelta(seconds=seconds)


class TestExpiration:
    """Case 122."""

    def test_claim_expires_after_its_lifetime(self):
        """Counted with the pods that have to move; those of DaemonSets do not."""
        claim = node_claim(stage="Initialized", expire_after="30s", termination_grace_period="1h")
        pods = [pod("web-1"), pod("web-2"), pod("log", owner_kind="DaemonSet")]

        step = expiration_step(claim, pods, now=after(60), paused=False)

        labels = {
            "reason": "expired",
            "nodepool": "default",
            "capacity_type": "on-demand",
            "consolidation_policy": "",
            "termination_mode": "eventual",
        }
        assert step.delete == "expired"
        assert [
            (metric_update.metric, metric_update.labels, metric_update.value)
            for metric_update in step.metric_updates
        ] == [
            ("nodeclaims_disrupted", labels, 1.0),
            ("pods_disruption_initiated", labels, 2),
        ]

    @pytest.mark.parametrize(
        ("stage", "failed"),
        [("Launched", ["uid-default"]), ("Registered", []), ("Initialized", [])],
    )
    def test_a_claim_that_expires_before_its_node_registers_counts_as_a_failure(
        self, stage, failed
    ):
        claim = node_claim(stage=stage, expire_after="30s")
        step = expiration_step(claim, (), now=after(60), paused=False)
        assert step.delete == "expired"
        assert [event.pool_uid for event in step.events if not event.succeeded] == failed
        assert all(event.reason == "ExpiredBeforeRegistration" for event in step.events)
        cause = f"expireAfter of NodeClaim {claim.name}, 30s, has passed"
        assert all(event.message.startswith(cause) for event in step.events)

    def test_claim_expires_at_the_exact_second(self):
        claim = node_claim(expire_after="30s")

        assert expiration_step(claim, (), now=after(30), paused=False).delete == "expired"
        early = expiration_step(claim, (), now=after(29), paused=False)
        assert (early.delete, early.requeue_after) == ("", timedelta(seconds=1))

    def test_young_claim_is_requeued_for_its_expiry(self):
        step = expiration_step(node_claim(expire_after="200s"), (), now=after(100), paused=False)

        assert (step.delete, step.metric_updates, step.requeue_after) == (
            "",
            (),
            timedelta(seconds=100),
        )

    @pytest.mark.parametrize("launched_after", [5 * 60, 5 * 3600, -5 * 3600])
    def test_lifetime_starts_at_the_creation_however_the_launch_is_dated(self, launched_after):
        bare = node_claim(expire_after="1h")
        claim = with_claim_conditions(bare, LAUNCHED, now=after(launched_after))
        step = expiration_step(claim, (), now=after(3599), paused=False)
        assert (step.delete, step.requeue_after) == ("", timedelta(seconds=1))
        assert expiration_step(claim, (), now=after(3600), paused=False).delete == "expired"

    @pytest.mark.parametrize(
        "claim",
        [node_claim(expire_after="Never"), node_claim(expire_after="30s", deleted=after(40))],
        ids=["never", "already deleting"],
    )
    def test_others_are_ignored(self, claim):
        step = expiration_step(claim, (), now=after(10**9), paused=False)

        assert (step.delete, step.metric_updates, step.requeue_after) == ("", (), None)


GPU = "nvidia.com/gpu"


class TestConsistency:
    """Case 123."""

    def step(self, *, memory, stage="Initialized", requests=None, nodes=1, **options):
        claim = node_claim(
            stage=stage,
            requests={"memory": "1Gi", "cpu": "1"} if requests is None else requests,
            capacity={"memory": "128Gi"},
            **options,
        )
        result = node(claim=claim, capacity={"memory": memory})
        step = consistency_step(claim, [result] * nodes, now=EPOCH)
        condition = find_condition(step.claim.status.conditions, CONSISTENT_STATE_FOUND)
        return step, None if condition is None else (condition.status, condition.reason)

    def test_a_node_with_too_little_is_reported(self):
        step, condition = self.step(memory="64Gi")

        assert condition == ("False", "ConsistencyCheckFailed")
        (notice,) = step.notices
        assert (notice.type, notice.reason, notice.message) == (
            "Warning",
            "FailedConsistencyCheck",
            "expected 128Gi of resource memory, but found 64Gi (50.0% of expected)",
        )
        assert notice.window == timedelta(minutes=10)

    def test_a_resource_that_the_node_does_not_have_is_reported_as_zero(self):
        claim = node_claim(stage="Initialized", requests={GPU: "1"}, capacity={GPU: "4"})
        step = consistency_step(claim, [node(claim=claim, capacity={})], now=EPOCH)
        assert [notice.message for notice in step.notices] == [
            f"expected 4 of resource {GPU}, but found 0 (0.0% of expected)"
        ]

    @pytest.mark.parametrize("memory", ["128Gi", "256Gi", "116Gi"])
    def test_a_node_with_nearly_everything_is_fine(self, memory):
        step, condition = self.step(memory=memory)

        assert condition == ("True", "ConsistentStateFound")
        assert step.notices == ()

    def test_unrequested_resources_do_not_count(self):
        assert self.step(memory="1Gi", requests={"cpu": "1"})[1] == ("True", "ConsistentStateFound")
        assert self.step(memory="1Gi", requests={"memory": "0"})[1] == (
            "True", "ConsistentStateFound",
        )  # fmt: skip

    @pytest.mark.parametrize(
        "options", [{"stage": "Registered"}, {"nodes": 0}, {"nodes": 2}, {"deleted": EPOCH}]
    )
    def test_incomparable_nodes_are_not_reported(self, options):
        """Not initialised, no node, two of them, on its way out."""
        step, condition = self.step(memory="1Gi", **options)

        assert (condition, step.notices) == (None, ())

    def test_the_condition_follows_the_node(self):
        step, _ = self.step(memory="64Gi")
        mended = node(claim=step.claim, capacity={"memory": "128Gi"})

        again = consistency_step(step.claim, [mended], now=after(60))

        condition = find_condition(again.claim.status.conditions, CONSISTENT_STATE_FOUND)
        assert condition is not None
        assert (condition.status, condition.last_transition_time) == ("True", after(60))


class TestHydration:
    """Case 125."""

    def test_claims_and_nodes_of_older_controllers_get_the_label(self):
        claim = node_claim(stage="Initialized")
        labels = {k: v for k, v in claim.metadata.labels.items() if k != LABEL}
        bare = claim.model_copy(
            update={"metadata": claim.metadata.model_copy(update={"labels": labels})}
        )
        its_node = node(claim=bare)
        assert LABEL not in its_node.labels

        step = hydration_step(bare, [its_node])

        assert step.claim.metadata.labels == {**labels, LABEL: "default"}
        assert step.node is not None
        assert step.node.applied_to(its_node).labels[LABEL] == "default"

    def test_labelled_claims_are_ignored(self):
        claim = node_claim(stage="Initialized")

        step = hydration_step(claim, [node(claim=claim)])

        assert step.claim is claim
        assert step.node is None

    @pytest.mark.parametrize("count", [0, 2])
    def test_nodes_that_may_be_of_another_claim_are_ignored(self, count):
        claim = node_claim(stage="Initialized")
        stranger = node(provider_id=claim.status.provider_id)

        assert hydration_step(claim, [stranger] * count).node is None

    def bare_node(self, claim, **options):
        """The Node that its kubelet has created again: without the labels of the controller."""
        whole = node(claim=claim, **options)
        labels = {k: v for k, v in whole.labels.items() if not k.startswith("karpenter.sh/")}
        return msgspec.structs.replace(whole, labels=labels)

    def restored(self, step):
        return (
            {k for k in step.node.labels if k.startswith("karpenter.sh/")} if step.node else set()
        )

    @pytest.mark.parametrize("ready", ["True", "False"])
    def test_a_node_that_is_not_usable_again_gets_no_label_that_it_is_initialised(self, ready):
        """Pods would be planned for it; the other labels are its own in any case."""
        claim = node_claim(stage="Initialized")
        step = hydration_step(claim, [self.bare_node(claim, ready=ready)])
        initialised = {INITIALIZED_LABEL} if ready == "True" else set()
        assert self.restored(step) == {REGISTERED_LABEL, NODE_POOL} | initialised
        (notice,) = step.notices
        assert (INITIALIZED_LABEL in notice.message) is bool(initialised)
        assert notice.window == timedelta(minutes=10)

    def test_a_node_that_is_not_ready_keeps_the_label_that_it_has(self):
        claim = node_claim(stage="Initialized")
        step = hydration_step(claim, [node(claim=claim, ready="False")])
        assert (step.node, step.notices) == (None, ())

    def test_a_node_that_is_being_deleted_gets_no_labels_back(self):
        claim = node_claim(stage="Initialized")
        step = hydration_step(claim, [self.bare_node(claim, deleted=EPOCH)])
        assert self.restored(step) == set()
        assert step.notices == ()
