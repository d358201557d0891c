"""Limits and instants are decided exactly at their bound."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from karpenter_core.api.devices import DeviceCapacity
from karpenter_core.api.interruptions import INTERRUPTING
from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, RequirementSpec
from karpenter_core.api.records import Taint, Toleration
from karpenter_core.disruption.costs import lifetime_remaining
from karpenter_core.disruption.drift_backoff import DriftBackoff
from karpenter_core.kube.wire.kind_codec import _VERSION_DIGITS, is_version
from karpenter_core.lifecycle.claim_status import MAX_MESSAGE, truncate_message
from karpenter_core.lifecycle.nodeclaim.consistency import shape_issues
from karpenter_core.lifecycle.nodepool.validation import _value_errors
from karpenter_core.scheduling.devices.capacity import _consumed
from karpenter_core.scheduling.devices.selectors import _shortened
from karpenter_core.scheduling.least_allocated import free_share
from karpenter_core.scheduling.requirements.requirement import (
    MAX_INT64,
    MIN_INT64,
    Requirement,
)
from karpenter_core.scheduling.taints import tolerates
from karpenter_core.state.interruption import INTERRUPTION_LEAD_TIME, is_interrupted_soon
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim, with_claim_conditions

SECOND = timedelta(seconds=1)


def test_the_digits_of_a_resource_version():
    assert is_version("9" * _VERSION_DIGITS)
    assert not is_version("9" * (_VERSION_DIGITS + 1))


def test_a_life_of_no_time_is_never_over():
    made = node_claim("web")
    spec = type(made.spec).model_validate(
        {**made.spec.model_dump(by_alias=True), "expireAfter": "0s"}
    )
    assert lifetime_remaining(made.model_copy(update={"spec": spec}), EPOCH) == 1.0


@pytest.mark.parametrize(("memory", "issues"), [("9Gi", 0), ("8Gi", 1)])
def test_a_node_may_have_nine_tenths_of_what_was_expected(memory, issues):
    made = node_claim("web")
    resources = made.spec.resources.model_copy(update={"requests": {"memory": "1Gi"}})
    wants = made.model_copy(
        update={
            "spec": made.spec.model_copy(update={"resources": resources}),
            "status": made.status.model_copy(update={"capacity": {"memory": "10Gi"}}),
        }
    )
    assert len(shape_issues(wants, node("n", capacity={"memory": memory}))) == issues


def test_a_message_of_the_longest_length_is_whole():
    assert truncate_message("x" * MAX_MESSAGE) == "x" * MAX_MESSAGE
    assert truncate_message("x" * (MAX_MESSAGE + 1)) == "x" * MAX_MESSAGE + "..."
    assert _shortened("x" * 120) == "x" * 120
    assert _shortened("x" * 121) == "x" * 120 + "…"


@pytest.mark.parametrize(("operator", "above", "below"), [("Gt", True, False), ("Lt", False, True)])
def test_a_toleration_by_order_leaves_out_its_bound(operator, above, below):
    toleration = Toleration(key="size", operator=operator, value="5", effect="")

    def is_tolerated(value):
        return tolerates(toleration, Taint(key="size", value=value, effect="NoSchedule"))

    assert (is_tolerated("6"), is_tolerated("5"), is_tolerated("4")) == (above, False, below)


@pytest.mark.parametrize(
    ("operator", "bound", "has_values"),
    [
        ("Gt", MAX_INT64 - 1, True),
        ("Gt", MAX_INT64, False),
        ("Gte", MAX_INT64, True),
        ("Lt", MIN_INT64 + 1, True),
        ("Lt", MIN_INT64, False),
        ("Lte", MIN_INT64, True),
    ],
)
def test_no_number_is_beyond_the_largest_and_the_smallest(operator, bound, has_values):
    requirement = Requirement.of("size", operator, [str(bound)])
    assert requirement.complement is has_values
    if has_values:
        extreme = MAX_INT64 if operator.startswith("G") else MIN_INT64
        assert requirement.any_value() == str(extreme)


@pytest.mark.parametrize(("later", "is_soon"), [(timedelta(0), True), (SECOND, False)])
def test_pods_move_from_the_lead_time_of_an_interruption_on(later, is_soon):
    deadline = EPOCH + INTERRUPTION_LEAD_TIME + later
    made = with_claim_conditions(node_claim("web"), DISRUPTION_REASON, now=EPOCH)
    conditions = tuple(
        each.model_copy(update={"reason": min(INTERRUPTING)})
        if each.type == DISRUPTION_REASON
        else each
        for each in made.status.conditions
    )
    annotations = {TERMINATION_TIMESTAMP: deadline.isoformat()}
    metadata = made.metadata.model_copy(
        update={"deletion_timestamp": EPOCH, "annotations": annotations}
    )
    status = made.status.model_copy(update={"conditions": conditions})
    leaving = made.model_copy(update={"metadata": metadata, "status": status})
    assert is_interrupted_soon(leaving, EPOCH) is is_soon


def test_a_resource_that_a_node_does_not_have_counts_nothing():
    share = free_share(available={"cpu": 4}, allocatable={"cpu": 4, "memory": 0}, requests={})
    assert share == 1.0


@pytest.mark.parametrize(("requested", "consumed"), [(8, 8), (9, None)])
def test_a_request_for_the_maximum_of_a_device_is_met(requested, consumed):
    capacity = DeviceCapacity(
        name="memory", value=Decimal(10), minimum=Decimal(1), maximum=Decimal(8)
    )
    assert _consumed(capacity, Decimal(requested)) == consumed


def test_a_back_off_is_over_at_its_end():
    backoff = DriftBackoff({"web": (1, EPOCH)})
    assert backoff.active_pools(EPOCH - SECOND) == {"web"}
    assert backoff.active_pools(EPOCH) == frozenset()


@pytest.mark.parametrize(("value", "is_valid"), [("0", True), ("-1", False), ("x", False)])
def test_zero_is_a_bound_of_a_requirement(value, is_valid):
    spec = RequirementSpec(key="example.com/size", operator="Gt", values=(value,))
    assert (not list(_value_errors(spec, spec.key))) is is_valid
