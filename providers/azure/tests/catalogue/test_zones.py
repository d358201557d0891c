"""Tests zones and placement scopes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.labels import placement_scope, zone_label, zone_number


@given(location=st.sampled_from(["westus2", "WestUS2", "eastus"]), number=st.integers(1, 9))
def test_a_zone_label_has_its_number(location: str, number: int) -> None:
    label = zone_label(location, str(number))

    assert label == f"{location.lower()}-{number}"
    assert zone_number(label) == str(number)
    assert placement_scope(label) == "zonal"


def test_the_regional_zone_has_no_number() -> None:
    assert (zone_number("0"), placement_scope("0")) == ("", "regional")


@pytest.mark.parametrize("zone", ["westus2", "westus2-a", ""])
def test_a_label_without_a_number_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="does not end in the number"):
        zone_number(zone)
