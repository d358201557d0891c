"""Launched claims register and initialise (cases 33-59)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import msgspec
import pytest

from karpenter_core.api.base import OwnerReference
from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.api.labels import (
    DO_NOT_DISRUPT,
    DO_NOT_SYNC_TAINTS,
    TERMINATION_FINALIZER,
)
from karpenter_core.api.labels import (
    INITIALIZED as INITIALIZED_LABEL,
)
from karpenter_core.api.labels import (
    REGISTERED as REGISTERED_LABEL,
)
from karpenter_core.api.nodeclaim import INITIALIZED, LAUNCHED, REGISTERED
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.records import OwnerView, Taint
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.nodeclaim.initialization import initialization_step
from karpenter_core.lifecycle.nodeclaim.liveness import liveness_step, node_removed_step
from karpenter_core.lifecycle.nodeclaim.progress import progress_step
from karpenter_core.lifecycle.nodeclaim.registration import (
    pool_uid_of,
    registration_step,
    synced_node,
)
from karpenter_core.state.events import RegistrationSettled
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import node, node_claim, with_claim_conditions

UNREGISTERED = "karpenter.sh/unregistered:NoExecute"
LATER = EPOCH + timedelta(seconds=30)


@dataclass(frozen=True)
class Gate:
    name: str
    retry_after: timedelta = timedelta(seconds=5)


def after(**delta: float):
    return EPOCH + timedelta(**delta)


def launched(**options):
    return node_claim("web", stage="Launched", **options)


def booted(claim, *, taints=(UNREGISTERED,), ready="False", **options):
    return node("ip-1", claim=claim, stage="", taints=taints, ready=ready, finalizers=(), **options)


def register(claim, *nodes, **options):
    return registration_step(claim, nodes, now=LATER, **options)


def condition(step, condition_type):
    current = find_condition(step.claim.status.conditions, condition_type)
    return (current.status, current.reason, current.message)


class TestRegistration:
    def test_the_pool_of_a_claim_is_its_owner_of_that_kind_and_api(self):
        ours = {"name": "default", "uid": "uid-ours"}
        owners = tuple(
            OwnerReference(api_version=version, kind=kind, **ours)
            for version, kind in (
                ("karpenter.sh/v1", "NodeOverlay"),
                ("example.com/v1", "NodePool"),
            )
        )
        pool = OwnerReference(api_version="karpenter.sh/v1", kind="NodePool", name="x", uid="uid-x")
        bare = launched()

        def owned(*references):
            metadata = bare.metadata.model_copy(update={"owner_references": references})
            return bare.model_copy(update={"metadata": metadata})

        assert pool_uid_of(owned(*owners, pool)) == "uid-x"
        assert pool_uid_of(owned(*owners)) == ""
        step = register(owned(*owners), booted(bare))
        assert (is_true(step.claim.status.conditions, REGISTERED), step.events) == (True, ())

    def test_launched_node_is_registered(self):
        """Cases 33 and 34."""
        claim = launched()
        young = booted(claim)
        step = register(claim, young)
        assert is_true(step.claim.status.conditions, REGISTERED)
        assert step.claim.status.node_name == "ip-1"
        grown = step.node.applied_to(young)
        assert grown.labels[REGISTERED_LABEL] == "true"
        assert (grown.taints, grown.finalizers) == ((), (TERMINATION_FINALIZER,))
        assert [owner.name for owner in grown.owners] == ["web"]
        assert step.events == (RegistrationSettled(pool_uid="uid-default", succeeded=True),)
        assert [metric_update.metric for metric_update in step.metric_updates] == ["nodes_created"]
        assert step.notices == ()

    @pytest.mark.parametrize(
        ("allocatable", "words"),
        [
            ({"cpu": "3", "memory": "8Gi"}, "only 3 of cpu for pods that ask for 3500m"),
            ({"cpu": "3500m", "memory": "1Gi"}, "only 1Gi of memory for pods that ask for 2Gi"),
            ({"cpu": "3500m", "memory": "2Gi"}, ""),
            ({"cpu": "0"}, ""),
        ],
    )
    def test_a_node_that_is_too_small_for_its_pods_registers_and_counts_as_a_failure(
        self, allocatable, words
    ):
        claim = launched(requests={"cpu": "3500m", "memory": "2Gi"})
        young = booted(claim)
        told = msgspec.structs.replace(young, allocatable=parse_resources(allocatable))
        step = register(claim, told)
        assert is_true(step.claim.status.conditions, REGISTERED)
        (event,) = step.events
        assert event.succeeded is (not words)
        assert event.reason == ("NodeTooSmall" if words else "")
        assert words in event.message

    @pytest.mark.parametrize(
        ("taint", "tolerations", "fails"),
        [
            ("example.com/agent:NoSchedule", (), True),
            ("example.com/agent:NoExecute", (), True),
            ("example.com/agent:NoSchedule", ("example.com/agent:NoSchedule",), False),
            ("example.com/agent:PreferNoSchedule", (), False),
            ("node.kubernetes.io/unschedulable:NoSchedule", (), False),
            ("declared:NoSchedule", (), True),  # put on the claim by a webhook: no plan does that
            ("declared:NoSchedule", ("declared:NoSchedule",), False),
            ("starting:NoSchedule", (), False),
        ],
    )
    def test_a_taint_that_no_pool_declares_and_a_planned_pod_does_not_tolerate_is_a_failure(
        self, taint, tolerations, fails
    ):
        claim = launched(taints=("declared:NoSchedule",), startup_taints=("starting:NoSchedule",))
        young = booted(claim, taints=(UNREGISTERED, taint))
        waiting = [pod("easy", tolerations=[taint]), pod("web", tolerations=tolerations)]
        (event,) = register(claim, young, planned=waiting).events
        assert event.succeeded is not fails
        if fails:
            assert event.reason == "UnexpectedTaint"
            assert "pod default/web does not tolerate" in event.message
        (alone,) = register(claim, young).events
        assert alone.succeeded

    def test_node_has_one_owner_reference(self):
        """Case 33."""
        claim = launched()
        owned = OwnerView(
            api_version="karpenter.sh/v1", kind="NodeClaim", name="web", uid=claim.uid
        )
        young = msgspec.structs.replace(booted(claim), owners=(owned,))
        assert register(claim, young).node.applied_to(young).owners == (owned,)

    def test_registration_removes_the_unregistered_taint_alone(self):
        """Others write the same lists meanwhile."""
        claim = launched()
        theirs = OwnerView(api_version="v1", kind="ConfigMap", name="x", uid="u")
        tainted = Taint(key="a", effect="NoExecute", time_added="2026-01-01T00:00:00Z")
        young = booted(claim)
        young = msgspec.structs.replace(young, owners=(theirs,), taints=(*young.taints, tainted))
        operations = register(claim, young).node.operations_for(young)
        (owner,) = (each for each in operations if each["path"].startswith("/metadata/owner"))
        assert owner["path"] == "/metadata/ownerReferences/-"
        assert (owner["value"]["kind"], owner["value"]["blockOwnerDeletion"]) == ("NodeClaim", True)
        assert [each for each in operations if each["path"].startswith("/spec")] == [
            {"op": "test", "path": "/spec/taints/0/key", "value": "karpenter.sh/unregistered"},
            {"op": "test", "path": "/spec/taints/0/effect", "value": "NoExecute"},
            {"op": "remove", "path": "/spec/taints/0"},
        ]

    def test_missing_unregistered_taint_gets_an_event(self):
        """Case 35."""
        claim = launched()
        step = register(claim, booted(claim, taints=()))
        assert is_true(step.claim.status.conditions, REGISTERED)
        (notice,) = step.notices
        assert (notice.reason, notice.dedupe) == ("UnregisteredTaintMissing", (claim.uid,))

    def test_labels_and_annotations_of_the_claim_win(self):
        """Case 36."""
        claim = launched(labels={"team": "a"}, annotations={DO_NOT_DISRUPT: "true"})
        young = booted(claim, labels={"team": "b", "own": "x"}, annotations={"own": "y"})
        grown = register(claim, young).node.applied_to(young)
        assert (grown.labels["team"], grown.labels["own"]) == ("a", "x")
        assert grown.annotations == {DO_NOT_DISRUPT: "true", "own": "y"}

    @pytest.mark.parametrize(
        ("labels", "synced"), [({}, True), ({DO_NOT_SYNC_TAINTS: "no"}, True), ({DO_NOT_SYNC_TAINTS: "true"}, False)]
    )  # fmt: skip
    def test_taints_are_synced_unless_a_label_forbids_it(self, labels, synced):
        """Case 37."""
        claim = launched(labels=labels, taints=("a=1:NoSchedule",), startup_taints=("b:NoExecute",))
        young = booted(claim, taints=(UNREGISTERED, "own:NoSchedule"))
        keys = [taint.key for taint in register(claim, young).node.applied_to(young).taints]
        assert keys == (["own", "a", "b"] if synced else ["own"])

    def test_a_node_may_say_that_its_taints_are_not_synced(self):
        """Case 37: the bootstrap knows, and puts the label on its Node."""
        claim = launched(taints=("a=1:NoSchedule",))
        young = booted(claim, labels={DO_NOT_SYNC_TAINTS: "true"})
        assert register(claim, young).node.applied_to(young).taints == ()

    def test_a_startup_taint_that_was_removed_stays_away(self):
        """Case 38: a registered claim is not registered again."""
        claim = node_claim("web", stage="Registered", startup_taints=("b:NoSchedule",))
        step = progress_step(
            claim,
            [node("ip-1", claim=claim, stage="Registered")],
            now=LATER,
            pending=(),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert "b" not in [taint.key for taint in step.node.add_taints]

    def test_claim_without_a_node_waits(self):
        claim = launched()
        assert condition(register(claim), REGISTERED) == (
            "Unknown", "NodeNotFound", "Node not registered with cluster",
        )  # fmt: skip

    def test_two_nodes_fail_the_registration(self):
        claim = launched()
        twins = (booted(claim), node("ip-2", claim=claim, stage=""))
        assert condition(register(claim, *twins), REGISTERED) == (
            "False", "MultipleNodesFound", "Invariant violated, matched multiple nodes",
        )  # fmt: skip

    def test_a_gate_holds_the_node_with_everything_else_in_place(self):
        """Cases 42, 44, 45."""
        claim = launched(taints=("a:NoSchedule",))
        young = booted(claim)
        pending = (Gate("disk", timedelta(seconds=5)), Gate("network", timedelta(seconds=3)))
        step = register(claim, young, pending=pending)
        assert condition(step, REGISTERED) == (
            "Unknown", "RegistrationHookPending", "disk, network",
        )  # fmt: skip
        assert step.requeue_after == timedelta(seconds=3)
        held = step.node.applied_to(young)
        assert [taint.key for taint in held.taints] == ["karpenter.sh/unregistered", "a"]
        assert REGISTERED_LABEL not in held.labels
        assert (step.claim.status.node_name, step.events) == ("", ())

    def test_a_gate_that_fails_is_an_error(self):
        """Case 43."""
        claim, error = launched(), RuntimeError("no answer")
        step = register(claim, booted(claim), gate_error=error)
        assert step.error is error
        assert condition(step, REGISTERED)[1] == "RegistrationHookPending"

    def test_open_gate_registers_the_node(self):
        """Cases 41, 46, 47."""
        claim = launched()
        held = register(claim, booted(claim), pending=(Gate("disk"),)).claim
        assert is_true(register(held, booted(claim)).claim.status.conditions, REGISTERED)

    def test_gates_see_the_node_as_it_will_be(self):
        claim = launched(taints=("a:NoSchedule",), labels={"team": "a"})
        seen = synced_node(claim, booted(claim))
        assert (seen.labels["team"], len(seen.taints)) == ("a", 2)


class TestInitialisation:
    def claim(self, **options):
        return node_claim("web", stage="Registered", **options)

    def step(self, claim, **options):
        grown = node("ip-1", claim=claim, stage="Registered", **options)
        return initialization_step(claim, [grown], now=LATER, slices=None)

    def test_a_ready_node_is_initialised(self):
        """Case 49."""
        step = self.step(self.claim())
        assert is_true(step.claim.status.conditions, INITIALIZED)
        assert step.node.labels == {INITIALIZED_LABEL: "true"}

    def test_unregistered_claim_is_not_initialised(self):
        claim = launched()
        step = initialization_step(claim, [booted(claim, ready="True")], now=LATER, slices=None)
        assert step.claim is claim

    @pytest.mark.parametrize("ready", ["False", "Unknown"])
    def test_a_node_that_is_not_ready_waits(self, ready):
        """Case 50."""
        assert condition(self.step(self.claim(), ready=ready), INITIALIZED) == (
            "Unknown", "NodeNotReady", "Node status is NotReady",
        )  # fmt: skip

    def test_missing_device_delays_initialisation(self):
        """Case 51."""
        claim = self.claim(requests={"cpu": "1", "example.com/gpu": "1"})
        without = self.step(claim, allocatable={"example.com/gpu": "0"})
        assert condition(without, INITIALIZED)[1:] == (
            "ResourceNotRegistered",
            'Resource "example.com/gpu" was requested but not registered',
        )
        step = self.step(claim, allocatable={"example.com/gpu": "1"})
        assert is_true(step.claim.status.conditions, INITIALIZED)

    @pytest.mark.parametrize(
        ("taint", "reason", "message"),
        [
            (
                "cni=x:NoSchedule",
                "StartupTaintsExist",
                'StartupTaint "cni:NoSchedule" still exists',
            ),
            (
                "node.kubernetes.io/not-ready:NoExecute",
                "KnownEphemeralTaintsExist",
                'KnownEphemeralTaint "node.kubernetes.io/not-ready:NoExecute" still exists',
            ),
            (
                "readiness.k8s.io/foo=bar:NoSchedule",
                "KnownEphemeralTaintsExist",
                'KnownEphemeralTaint "readiness.k8s.io/foo=bar:NoSchedule" still exists',
            ),
        ],
    )
    def test_startup_taints_delay_initialisation(self, taint, reason, message):
        """Cases 52 and 53."""
        claim = self.claim(startup_taints=("cni:NoSchedule",))
        assert condition(self.step(claim, taints=(taint,)), INITIALIZED) == (
            "Unknown", reason, message,
        )  # fmt: skip
        assert is_true(self.step(claim).claim.status.conditions, INITIALIZED)

    def test_other_taints_do_not_delay_initialisation(self):
        step = self.step(self.claim(), taints=("dedicated=web:NoSchedule",))
        assert is_true(step.claim.status.conditions, INITIALIZED)


class TestLiveness:
    def test_claim_not_launched_in_time_is_deleted(self):
        """Case 57."""
        claim = node_claim("web")
        early = liveness_step(claim, now=after(minutes=1))
        assert (early.delete, early.requeue_after) == ("", timedelta(minutes=4))
        late = liveness_step(claim, now=after(minutes=6))
        assert late.delete == "launch_timeout"
        assert late.events == (RegistrationSettled(pool_uid="uid-default", succeeded=False),)
        assert late.metric_updates[0].labels["reason"] == "launch_timeout"

    def test_reason_of_the_failed_launch_is_passed_on(self):
        """Case 60 and section 3: the pool's condition says it."""
        claim = with_condition(
            node_claim("web"),
            LAUNCHED, status="Unknown", reason="NoCapacity", message="sold out", now=EPOCH,
        )  # fmt: skip
        assert liveness_step(claim, now=after(minutes=6)).events == (
            RegistrationSettled(
                pool_uid="uid-default", succeeded=False, reason="NoCapacity", message="sold out"
            ),
        )

    def test_the_launch_timeout_can_be_shortened(self):
        """Case 58."""
        claim, limit = node_claim("web"), timedelta(seconds=45)
        assert not liveness_step(claim, now=after(seconds=30), launch_timeout=limit).delete
        assert liveness_step(claim, now=after(seconds=60), launch_timeout=limit).delete

    def test_claim_not_registered_in_time_is_deleted(self):
        """Case 56."""
        claim = launched()
        assert not liveness_step(claim, now=after(minutes=14)).delete
        assert liveness_step(claim, now=after(minutes=20)).delete == "registration_timeout"
        registered = node_claim("web", stage="Registered")
        assert not liveness_step(registered, now=after(minutes=20)).delete

    def test_claims_have_some_time_after_an_outage(self):
        """Nothing could be launched, and no Node join, while the API server did not answer."""
        for claim in (node_claim("web"), launched()):
            held = liveness_step(claim, now=after(minutes=20), shown_for=timedelta(seconds=50))
            assert (held.delete, held.requeue_after) == ("", timedelta(seconds=70))
            assert liveness_step(
                claim, now=after(minutes=20), shown_for=timedelta(minutes=2)
            ).delete

    def test_the_time_after_an_outage_is_no_longer_than_the_limit(self):
        limit = timedelta(seconds=45)
        late = partial(
            liveness_step, node_claim("web"), now=after(minutes=20), launch_timeout=limit
        )
        assert not late(shown_for=timedelta(seconds=44)).delete
        assert late(shown_for=limit).delete

    def test_a_removed_node_ends_its_claim_and_does_not_count_as_a_failed_registration(self):
        step = node_removed_step(launched())
        assert step.delete == "node_removed"
        assert [update.labels["reason"] for update in step.metric_updates] == ["node_removed"]
        assert step.events == ()

    def test_limits_run_from_the_condition(self):
        """Case 59: transition moved by 10 min; at +16 min neither timeout has passed."""
        claim = node_claim("web")
        conditions = tuple(
            item.model_copy(update={"last_transition_time": after(minutes=10)})
            for item in claim.status.conditions
        )
        moved = claim.model_copy(
            update={"status": claim.status.model_copy(update={"conditions": conditions})}
        )
        assert not liveness_step(moved, now=after(minutes=12)).delete
        registering = with_claim_conditions(moved, LAUNCHED, now=after(minutes=11))
        step = liveness_step(registering, now=after(minutes=16))
        assert not step.delete
        assert timedelta() < step.requeue_after < timedelta(minutes=15)

    @pytest.mark.parametrize(
        ("claim", "limit"),
        [
            (node_claim("web"), timedelta(minutes=5)),
            (launched(), timedelta(minutes=15)),
        ],
    )
    def test_limits_restart_if_their_start_lies_in_the_future(self, claim, limit):
        """Else a claim that never registers is kept for as many hours as the clock was ahead."""
        now = after(hours=-5)
        step = liveness_step(claim, now=now)
        assert (step.delete, step.requeue_after) == ("", limit)
        assert not liveness_step(step.claim, now=now + limit - timedelta(seconds=1)).delete
        assert liveness_step(step.claim, now=now + limit).delete

    def test_clocks_of_two_processes_may_differ_a_little(self):
        claim = launched()
        step = liveness_step(claim, now=after(seconds=-50))
        assert step.claim is claim
        assert step.requeue_after == timedelta(minutes=15, seconds=50)


class TestProgress:
    def test_ready_node_is_registered_and_initialised_in_one_step(self):
        """Registration and initialisation add up to one patch of the node."""
        claim = launched()
        young = booted(claim, ready="True")
        step = progress_step(
            claim,
            [young],
            now=LATER,
            pending=(),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert is_true(step.claim.status.conditions, LAUNCHED, REGISTERED, INITIALIZED, "Ready")
        grown = step.node.applied_to(young)
        assert (grown.labels[REGISTERED_LABEL], grown.labels[INITIALIZED_LABEL]) == ("true", "true")
        assert grown.taints == ()
        assert step.requeue_after is None

    def test_a_booting_node_is_registered_and_waits(self):
        claim = launched()
        step = progress_step(
            claim,
            [booted(claim)],
            now=LATER,
            pending=(),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert is_true(step.claim.status.conditions, REGISTERED)
        assert condition(step, INITIALIZED)[1] == "NodeNotReady"

    def test_a_held_node_is_not_initialised(self):
        claim = launched()
        step = progress_step(
            claim,
            [booted(claim, ready="True")],
            now=LATER,
            pending=(Gate("disk"),),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert not is_true(step.claim.status.conditions, INITIALIZED)
        assert INITIALIZED_LABEL not in step.node.labels
        assert step.requeue_after == timedelta(seconds=5)

    def test_a_claim_that_is_not_launched_has_no_node_either(self):
        """Section 5: no step is skipped because an earlier one waits."""
        step = progress_step(
            node_claim("web"),
            [],
            now=LATER,
            pending=(),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert condition(step, REGISTERED)[1] == "NodeNotFound"
        assert step.requeue_after is not None

    def test_a_new_generation_is_observed(self):
        """Case 55."""
        claim = node_claim("web", stage="Initialized")
        bumped = claim.model_copy(
            update={"metadata": claim.metadata.model_copy(update={"generation": 7})}
        )
        step = progress_step(
            bumped,
            [node("ip-1", claim=claim)],
            now=LATER,
            pending=(),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert {item.observed_generation for item in step.claim.status.conditions} == {7}

    def test_initialised_claim_needs_no_write(self):
        claim = node_claim("web", stage="Initialized")
        step = progress_step(
            claim,
            [node("ip-1", claim=claim)],
            now=LATER,
            pending=(),
            gate_error=None,
            planned=(),
            refused=(),
            slices=None,
        )
        assert (step.claim, step.node, step.requeue_after) == (claim, None, None)
