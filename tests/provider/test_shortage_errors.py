"""Shortages with invalid values are refused where a plug-in makes them, with field and value."""

from __future__ import annotations

import re

import pytest

from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
    QuotaGroup,
)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"least_cpu_milli": "8000"},
            "QuotaGroup.least_cpu_milli must have the type int, not '8000'",
        ),
        ({"least_cpu_milli": 0.5}, "QuotaGroup.least_cpu_milli must have the type int, not 0.5"),
        ({"zone": None}, "QuotaGroup.zone must have the type str, not None"),
        (
            {"capacity_type": ["spot"]},
            "QuotaGroup.capacity_type must have the type str, not ['spot']",
        ),
        ({"value": "m"}, "QuotaGroup.label and QuotaGroup.value must be given together"),
        ({"label": "family"}, "QuotaGroup.label and QuotaGroup.value must be given together"),
    ],
)
def test_quota_group_with_an_invalid_field_is_refused(fields, problem):
    """A value without a label would mask every offering of the provider."""
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        QuotaGroup(**fields)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"offerings": ["m5.large"]}, "offerings must have the type OfferingKey, not 'm5.large'"),
        ({"quota_groups": [("family", "m")]}, "quota_groups must have the type QuotaGroup"),
        ({"scope": "rack"}, "'rack' is not a valid ExhaustedScope"),
    ],
)
def test_shortage_with_an_invalid_field_is_refused(fields, problem):
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        InsufficientCapacityError("sold out", **fields)


def test_scope_that_is_a_text_is_read():
    key = OfferingKey(instance_type="m", zone="a", capacity_type="spot")
    error = InsufficientCapacityError("sold out", offerings=[key], scope="node-class")
    assert error.scope is ExhaustedScope.NODE_CLASS
