"""Results of parts become conditions; values alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.conditions import Condition
from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.parts import (
    ResolutionPart,
    condition_met,
    condition_unmet,
    current_condition,
    ready_condition,
)
from karpenter_provider_aws.node_class.conditions import AWS_ERRORS
from tests.properties import with_examples

STATUS = st.sampled_from(["True", "False", "Unknown"])


def condition(condition_type, status, message="", generation=1):
    return Condition(
        type=condition_type,
        status=status,
        reason="Reason",
        message=message,
        observed_generation=generation,
    )


@given(st.lists(STATUS, max_size=6))
@with_examples(100)
def test_ready_has_the_worst_status_and_names_its_conditions(found):
    """False before Unknown before True; those at fault are named, and no others."""
    conditions = [condition(f"Part{i}", status, f"m{i}") for i, status in enumerate(found)]

    ready = ready_condition(conditions)

    worst = next((status for status in ("False", "Unknown") if status in found), "True")
    assert ready.status == worst
    for each in conditions:
        named = f"{each.type}={each.status}: {each.message}"
        assert (named in ready.message) == (each.status == worst != "True")


@pytest.mark.parametrize(
    ("old", "stands"),
    [
        (condition("SubnetsReady", "True"), True),
        (condition("SubnetsReady", "False"), True),
        (condition("SubnetsReady", "True", generation=0), False),
        (condition("AMIsReady", "True"), False),
    ],
    ids=["good", "bad", "of another spec", "of another part"],
)
def test_findings_are_kept_while_aws_does_not_answer(old, stands):
    """If it was about the same spec."""
    part = AWS_ERRORS.failed_part(
        "SubnetsReady", "spec.subnetSelectorTerms", CloudProviderError("no route")
    )

    known, is_news = current_condition(part, [old], generation=1)

    assert is_news is not stands
    assert (known == old) is stands
    if not stands:
        assert (known.status, known.message) == (
            "Unknown",
            "spec.subnetSelectorTerms: no route",
        )


@pytest.mark.parametrize(
    "part", [condition_met("SubnetsReady"), condition_unmet("SubnetsReady", "Gone", "x")]
)
def test_new_findings_replace_earlier_ones(part):
    """In any case."""
    old = condition("SubnetsReady", "Unknown")
    assert current_condition(part, [old], generation=1) == (part.condition, True)


class ClientError(Exception):
    """Shaped as boto3's."""

    def __init__(self, code):
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": "m"}}


def caused(code):
    error = CloudProviderError("x")
    error.__cause__ = ClientError(code)
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AuthError("x", action="ec2:X"), "Unauthorized"),
        (caused("InvalidParameterValue"), "InvalidParameterValue"),
        (caused("InvalidGroup.NotFound"), "InvalidGroupNotFound"),
        (caused("404"), "Refused"),
        (CloudProviderError("x"), "Refused"),
    ],
)
def test_a_reason_is_a_word_that_the_api_takes(error, reason):
    """The code of AWS where it has one."""
    assert AWS_ERRORS.refusal_reason(error) == reason


def test_no_message_is_longer_than_the_api_takes():
    """However much is missing."""
    text = "x" * 40_000
    parts: list[ResolutionPart] = [
        condition_met("A", text),
        condition_unmet("B", "Gone", text),
        AWS_ERRORS.failed_part("C", "spec", AuthError(text, action="ec2:X")),
    ]
    for part in parts:
        assert len(part.condition.message) == 32_768
    assert len(ready_condition(part.condition for part in parts).message) == 32_768
