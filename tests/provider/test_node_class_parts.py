"""Parts of a NodeClass's resolution are kept while the cloud is down, and decide Ready."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, Condition
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus
from karpenter_core.provider.kit.node_class.parts import (
    REFUSED_REASON,
    RETRY_SOON,
    UNREACHABLE_REASON,
    absent_terms_message,
    code_reason,
    condition_met,
    condition_unknown,
    condition_unmet,
    current_condition,
    ready_condition,
    resolution_of,
    truncated_message,
)

OLD = Condition(type="SubnetsReady", status=TRUE, reason="SubnetsReady", observed_generation=3)


def test_findings_of_the_same_spec_are_kept_while_the_cloud_is_down():
    part = condition_unknown("SubnetsReady", "no answer")

    assert current_condition(part, [OLD], generation=3) == (OLD, False)


def test_findings_of_another_spec_are_ignored():
    part = condition_unknown("SubnetsReady", "no answer")

    condition, is_news = current_condition(part, [OLD], generation=4)

    assert (condition.status, condition.reason, is_news) == (UNKNOWN, UNREACHABLE_REASON, True)


def test_ready_needs_all_conditions_and_names_the_unmet_ones():
    """A false part comes before an unknown one."""
    fine = condition_met("A").condition
    wrong = condition_unmet("B", "NotFound", "nothing there").condition
    silent = condition_unknown("C", "no answer").condition

    assert ready_condition([fine]).status == TRUE
    assert ready_condition([fine, silent]).status == UNKNOWN
    ready = ready_condition([fine, silent, wrong])
    assert (ready.status, ready.message) == (FALSE, "B=False: nothing there")


def test_a_resolution_skips_valid_parts_and_is_due_at_the_earliest_expiry():
    node_class = NodeClass(
        metadata=ObjectMeta(name="web", generation=3), status=NodeClassStatus(conditions=(OLD,))
    )
    results = [
        condition_unknown("SubnetsReady", "no answer"),
        condition_met("ImagesReady", status={"images": []}, retry_after=timedelta(minutes=5)),
    ]

    resolution = resolution_of(node_class, results)

    assert [c.type for c in resolution.conditions] == ["ImagesReady", READY]
    assert resolution.conditions[-1].status == TRUE
    assert resolution.status == {"images": []}
    assert resolution.retry_after == RETRY_SOON


def test_a_code_becomes_a_reason_that_kubernetes_takes():
    assert code_reason("Forbidden.RAM") == "ForbiddenRAM"
    assert code_reason("") == REFUSED_REASON
    assert code_reason("404") == REFUSED_REASON


def test_messages_have_the_length_that_conditions_may_have():
    assert len(truncated_message("x" * 40_000)) == 32_768
    assert (
        absent_terms_message(["spec.a[0]", "spec.a[1]"]) == "nothing matches spec.a[0], spec.a[1]"
    )
    assert absent_terms_message([]) == ""
