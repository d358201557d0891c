"""Drift is detected without the provider (acceptance cases 126-136)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL_HASH,
    NODE_POOL_HASH_VERSION,
    OS,
    ZONE,
)
from karpenter_core.api.nodeclaim import (
    DRIFTED,
    LAUNCHED,
    NODE_CLAIM_CONDITIONS,
    NodeClassRef,
    TaintSpec,
)
from karpenter_core.api.prices import Price
from karpenter_core.lifecycle.nodeclaim.drift import (
    DriftRules,
    LocalDrift,
    is_type_check_due,
    local_drift,
    with_drift,
)
from karpenter_core.lifecycle.nodepool.hashing import with_hash
from karpenter_core.scheduling.instance_types import Offering
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.testing.builders import (
    EPOCH,
    instance_type,
    node_pool,
    offering,
    requirement_spec,
)
from karpenter_core.testing.state_builders import node, node_and_claim, node_claim, synced_state

YOUNG = EPOCH + timedelta(minutes=5)
OLD = EPOCH + timedelta(hours=2)
RESERVATION = "example.com/reservation-id"
TYPES = {"m-4x": instance_type("m-4x")}


def claim(**options):
    return node_claim(stage="Launched", **options)


def drift(drifting, pool, *, types=None, now=YOUNG, **options) -> str:
    return local_drift(drifting, pool, TYPES if types is None else types, now=now, **options).reason


def condition(drifting):
    current = find_condition(drifting.status.conditions, DRIFTED)
    return None if current is None else (current.status, current.reason, current.message)


def hashed(pool, **options):
    """A claim that was made from the pool as it is."""
    return claim(annotations=with_hash(pool).metadata.annotations, **options)


class TestTemplate:
    """Cases 134 and 135."""

    @pytest.mark.parametrize(
        ("metadata", "spec"),
        [
            ({"annotations": {"note": "b"}}, {}),
            ({"labels": {"team": "b"}}, {}),
            ({}, {"taints": (TaintSpec(key="b", effect="NoSchedule"),)}),
            ({}, {"startup_taints": (TaintSpec(key="b", effect="NoSchedule"),)}),
            ({}, {"node_class_ref": NodeClassRef(group="g", kind="k", name="other")}),
            ({}, {"expire_after": NillableDuration("100m")}),
            ({}, {"termination_grace_period": Duration("100m")}),
        ],
        ids=lambda change: ",".join(change) or "-",
    )
    def test_a_claim_drifts_when_the_template_changes(self, metadata, spec):
        before = node_pool()
        template = before.spec.template
        changed = template.model_copy(
            update={
                "metadata": template.metadata.model_copy(update=metadata),
                "spec": template.spec.model_copy(update=spec),
            }
        )
        after = before.model_copy(
            update={"spec": before.spec.model_copy(update={"template": changed})}
        )

        assert drift(hashed(before), with_hash(before)) == ""
        assert drift(hashed(before), with_hash(after)) == "NodePoolDrifted"

    @pytest.mark.parametrize("side", ["claim", "pool"])
    @pytest.mark.parametrize(
        ("key", "value"),
        [(NODE_POOL_HASH, None), (NODE_POOL_HASH_VERSION, None), (NODE_POOL_HASH_VERSION, "v2")],
    )
    def test_incomparable_hashes_are_no_drift(self, side, key, value):
        old, new = with_hash(node_pool(labels={"team": "a"})), with_hash(node_pool())
        drifting = hashed(old)
        assert drift(drifting, new) == "NodePoolDrifted"

        changed = drifting if side == "claim" else new
        annotations = {**changed.metadata.annotations, key: value}
        if value is None:
            del annotations[key]
        metadata = changed.metadata.model_copy(update={"annotations": annotations})
        changed = changed.model_copy(update={"metadata": metadata})
        pair = (changed, new) if side == "claim" else (drifting, changed)

        assert drift(*pair) == ""


class TestRequirements:
    """Cases 132 and 133."""

    @pytest.mark.parametrize(
        ("before", "after", "drifts"),
        [
            ((CAPACITY_TYPE, "In", "on-demand"), (CAPACITY_TYPE, "In", "spot"), True),
            ((OS, "Exists"), ("example.com/new", "In", "a"), True),
            ((CAPACITY_TYPE, "In", "on-demand", "spot"), (CAPACITY_TYPE, "In", "spot"), True),
            ((OS, "In", "linux"), (OS, "DoesNotExist"), True),
            (("example.com/size", "Gt", "2"), ("example.com/size", "Gt", "10"), True),
            (("example.com/small", "Lt", "5"), ("example.com/small", "Lt", "1"), True),
            ((CAPACITY_TYPE, "In", "on-demand"), (CAPACITY_TYPE, "In", "on-demand", "spot"), False),
            ((OS, "In", "linux"), (OS, "Exists"), False),
            ((OS, "In", "linux"), ("example.com/new", "NotIn", "a"), False),
            ((OS, "In", "linux"), ("example.com/new", "DoesNotExist"), False),
        ],
    )
    def test_a_claim_drifts_when_its_labels_are_excluded(self, before, after, drifts):
        """A label that is missing meets only demands that it be missing, or other than a value."""
        running = claim(labels={"example.com/size": "5", "example.com/small": "2"})

        assert drift(running, node_pool(requirements=[before])) == ""
        assert drift(running, node_pool(requirements=[after])) == (
            "RequirementsDrifted" if drifts else ""
        )

    def test_only_the_claims_that_are_excluded_drift(self):
        pool = node_pool(requirements=[(OS, "In", "windows")])

        assert drift(claim(labels={OS: "linux"}), pool) == "RequirementsDrifted"
        assert drift(claim(labels={OS: "windows"}), pool) == ""

    def test_deprecated_and_aliased_keys_are_the_canonical_ones(self):
        rules = DriftRules(aliases={"cloud.example/zone": ZONE, "beta.kubernetes.io/arch": ARCH})
        pool = node_pool(
            requirements=[
                ("cloud.example/zone", "In", "zone-a"),
                ("beta.kubernetes.io/arch", "In", "amd64"),
            ]
        )

        assert drift(claim(), pool, rules=rules) == ""
        assert drift(claim(zone="zone-b"), pool, rules=rules) == "RequirementsDrifted"


class TestCatalogue:
    """Case 127."""

    @pytest.mark.parametrize(
        ("types", "labels"),
        [
            (TYPES, {INSTANCE_TYPE: ""}),
            (TYPES, {INSTANCE_TYPE: "unknown"}),
            ({}, {}),
            ({"m-4x": instance_type("m-4x", offerings=[])}, {}),
            ({"m-4x": instance_type("m-4x", zones=["zone-z"])}, {}),
        ],
        ids=["no label", "unknown type", "nothing sold", "no offerings", "other offerings"],
    )
    def test_old_claim_drifts_when_its_instance_type_is_gone(self, types, labels):
        running = claim(labels=labels)

        assert drift(running, node_pool(), types=types, now=OLD) == "InstanceTypeNotFound"
        assert drift(running, node_pool(), types=types, now=YOUNG) == ""
        assert drift(claim(), node_pool(), now=OLD) == ""

    def test_a_claim_without_a_type_label_drifts(self):
        running = claim()
        labels = {k: v for k, v in running.metadata.labels.items() if k != INSTANCE_TYPE}
        metadata = running.metadata.model_copy(update={"labels": labels})

        unlabelled = running.model_copy(update={"metadata": metadata})

        assert drift(unlabelled, node_pool(), now=OLD) == "InstanceTypeNotFound"

    def test_unavailable_offering_is_no_drift(self):
        sold_out = instance_type("m-4x", offerings=[offering(available=False)])

        assert drift(claim(), node_pool(), types={"m-4x": sold_out}, now=OLD) == ""

    def test_offerings_may_have_labels_that_only_the_provider_knows(self):
        """A well-known label that the claim lacks excludes nothing; any other one does."""
        zoned = Offering(
            requirements=Requirements.from_labels(
                {ZONE: "zone-a", CAPACITY_TYPE: "on-demand", "cloud.example/zone-id": "1"}
            ),
            price=Price(1.0, "USD"),
        )
        types = {"m-4x": instance_type("m-4x", offerings=[zoned])}
        knowing = DriftRules(well_known=DriftRules().well_known | {"cloud.example/zone-id"})

        assert drift(claim(), node_pool(), types=types, now=OLD, rules=knowing) == ""
        assert drift(claim(), node_pool(), types=types, now=OLD) == "InstanceTypeNotFound"

    def test_a_type_check_is_not_due_for_half_an_hour(self):
        result = local_drift(claim(), node_pool(), TYPES, now=OLD)
        assert result == LocalDrift(is_type_found=True)

        assert not is_type_check_due(claim(), OLD, now=OLD + timedelta(minutes=29))
        assert is_type_check_due(claim(), OLD, now=OLD + timedelta(minutes=30))
        later = OLD + timedelta(minutes=29)
        assert drift(claim(), node_pool(), types={}, now=later, found_at=OLD) == ""

    def test_without_a_catalogue_the_condition_is_kept(self):
        """Neither set nor cleared; what the provider says counts all the same."""
        local = local_drift(claim(), node_pool(), None, now=OLD)
        drifted = with_drift(claim(), LocalDrift(reason="x", is_decided=True), None, now=OLD)

        assert local == LocalDrift(is_type_unknown=True)
        assert with_drift(drifted, local, "", now=OLD) is drifted
        assert condition(with_drift(claim(), local, "ImageDrifted", now=OLD)) == (
            "True", "ImageDrifted", "ImageDrifted",
        )  # fmt: skip


def reserved_offering(zone="zone-a", reservation="r-1"):
    labels = {ZONE: zone, CAPACITY_TYPE: "reserved", RESERVATION: reservation}
    return Offering(requirements=Requirements.from_labels(labels), price=Price(0.0, "USD"))


@pytest.mark.parametrize(
    ("offerings", "drifts"),
    [
        ([reserved_offering(), offering()], False),
        ([reserved_offering()], False),
        ([reserved_offering(reservation="r-2")], False),
        ([offering()], False),
        ([offering(capacity_type="spot")], True),
        ([reserved_offering(zone="zone-b")], True),
        ([], True),
    ],
    ids=["both", "reserved", "other reservation", "on-demand", "spot", "other zone", "none"],
)
def test_a_reserved_claim_may_go_on_as_on_demand(offerings, drifts):
    """Case 136; which reservation it is of is the provider's to compare."""
    running = claim(capacity_type="reserved", labels={RESERVATION: "r-1"})
    types = {"m-4x": instance_type("m-4x", offerings=offerings)}

    assert drift(running, node_pool(), types=types, now=OLD) == (
        "InstanceTypeNotFound" if drifts else ""
    )


@pytest.mark.parametrize(
    ("requirement", "drifts"),
    [
        (requirement_spec(CAPACITY_TYPE, "In", "reserved"), True),
        (requirement_spec(CAPACITY_TYPE, "NotIn", "on-demand"), True),
        (requirement_spec(RESERVATION, "In", "r-1"), True),
        (requirement_spec(CAPACITY_TYPE, "In", "reserved", "on-demand"), False),
    ],
    ids=["reserved", "not on-demand", "the reservation", "both"],
)
def test_an_instance_whose_reservation_has_ended_drifts_where_on_demand_is_excluded(
    requirement, drifts
):
    """The provider labels the Node alone: the claim keeps the labels of its launch."""
    pool = node_pool(requirements=[requirement])
    _, running = node_and_claim(capacity_type="reserved")
    labels = {**running.metadata.labels, RESERVATION: "r-1"}
    running = running.model_copy(
        update={"metadata": running.metadata.model_copy(update={"labels": labels})}
    )
    reserved = node("node", claim=running)
    ended = {**reserved.labels, CAPACITY_TYPE: "on-demand"}
    del ended[RESERVATION]

    def reason(labels) -> str:
        snapshot = synced_state(running, replace(reserved, labels=labels)).snapshot()
        return drift(running, pool, state_node=snapshot.state_nodes_by_claim["node"])

    assert reason(reserved.labels) == ""
    assert reason(ended) == ("RequirementsDrifted" if drifts else "")


class TestCondition:
    """Cases 126, 128, 129 and 131."""

    def test_provider_drift_gives_the_reason(self):
        drifted = with_drift(claim(), LocalDrift(), "ImageDrifted", now=YOUNG)

        assert condition(drifted) == ("True", "ImageDrifted", "ImageDrifted")

    @pytest.mark.parametrize("reason", ["NodePoolDrifted", "RequirementsDrifted"])
    def test_drift_of_core_fields_comes_first(self, reason):
        local = LocalDrift(reason=reason, is_decided=True)

        assert condition(with_drift(claim(), local, "ImageDrifted", now=YOUNG)) == (
            "True", reason, reason,
        )  # fmt: skip

    def test_the_template_comes_before_the_requirements(self):
        pool = with_hash(node_pool(labels={"team": "b"}, requirements=[(OS, "In", "windows")]))

        assert drift(hashed(node_pool()), pool) == "NodePoolDrifted"

    @pytest.mark.parametrize("status", ["Unknown", "False"])
    def test_a_claim_that_is_not_launched_has_not_drifted(self, status):
        """With any template, and without a provider call."""
        drifted = with_drift(claim(), LocalDrift(), "ImageDrifted", now=YOUNG)
        conditions = NODE_CLAIM_CONDITIONS.set(
            drifted.status.conditions,
            type=LAUNCHED, status=status, reason="x", now=YOUNG, generation=1,
        )  # fmt: skip
        lost = drifted.model_copy(
            update={"status": drifted.status.model_copy(update={"conditions": conditions})}
        )
        excluding = node_pool(requirements=[(OS, "In", "windows")])

        local = local_drift(lost, excluding, TYPES, now=OLD)

        assert local == LocalDrift(is_decided=True)
        assert condition(with_drift(lost, local, None, now=OLD)) is None

    def test_condition_is_removed_when_drift_is_over(self):
        drifted = with_drift(claim(), LocalDrift(), "ImageDrifted", now=YOUNG)

        assert condition(with_drift(drifted, LocalDrift(), "", now=YOUNG)) is None

    def test_failed_provider_leaves_the_condition(self):
        drifted = with_drift(claim(), LocalDrift(), "ImageDrifted", now=YOUNG)

        assert with_drift(drifted, LocalDrift(), None, now=OLD) is drifted
        assert condition(with_drift(claim(), LocalDrift(), None, now=OLD)) is None

    def test_a_new_reason_of_drift_keeps_its_transition_time(self):
        drifted = with_drift(claim(), LocalDrift(), "ImageDrifted", now=YOUNG)
        again = with_drift(drifted, LocalDrift(), "NetworkDrifted", now=OLD)

        current = find_condition(again.status.conditions, DRIFTED)
        assert current is not None
        assert (current.reason, current.last_transition_time) == ("NetworkDrifted", YOUNG)
        assert with_drift(again, LocalDrift(), "NetworkDrifted", now=OLD) is again
