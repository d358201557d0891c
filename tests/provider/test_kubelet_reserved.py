"""Reserved resources and eviction thresholds of kubelets are computed and checked."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.kubelet_reserved import (
    eviction_threshold,
    eviction_threshold_of_field,
    reserved_amounts,
    reserved_by_brackets,
)
from tests.properties import with_examples

MI = 2**20
GI = 2**30

AWS_CPU = [(1000, 0.06), (2000, 0.01), (4000, 0.005), (inf, 0.0025)]
AZURE_CPU = [(1, 0.06), (2, 0.04), (4, 0.02), (inf, 0.01)]
AZURE_MEMORY = [(4, 0.25), (8, 0.2), (16, 0.1), (128, 0.06), (inf, 0.02)]


@pytest.mark.parametrize(
    ("cores", "milli"), [(2, 70), (4, 80), (32, 150), (64, 230), (96, 310), (128, 390)]
)
def test_reserved_amounts_equal_those_of_amazons_images(cores, milli):
    assert reserved_by_brackets(cores * 1000, AWS_CPU, whole_slices=True) == milli


@pytest.mark.parametrize(
    ("cores", "gib", "milli", "mib"), [(4, 7, 140, 1638), (2, 8, 100, 1843), (3, 64, 120, 5611)]
)
def test_reserved_amounts_equal_those_of_azures_nodes(cores, gib, milli, mib):
    assert int(1000 * reserved_by_brackets(cores, AZURE_CPU) + 1e-9) == milli
    assert int(1024 * reserved_by_brackets(gib, AZURE_MEMORY)) == mib


@given(st.floats(0, 1e6), st.floats(0, 1e6))
@with_examples(100)
def test_a_larger_instance_never_reserves_less(one, other):
    small, large = sorted((one, other))
    assert reserved_by_brackets(small, AWS_CPU) <= reserved_by_brackets(large, AWS_CPU)


def test_brackets_must_rise():
    with pytest.raises(ValueError, match="the bound 1 does not lie above 2"):
        reserved_by_brackets(5, [(2, 0.1), (1, 0.1)])


@pytest.mark.parametrize(
    ("text", "kept"),
    [("5%", 50), ("0.15%", 2), ("100%", 0), ("0%", 0), ("100Mi", 100 * MI), ("1Gi", GI)],
)
def test_an_eviction_threshold_is_a_share_or_a_quantity(text, kept):
    assert eviction_threshold(text, 1000) == kept


@pytest.mark.parametrize("text", ["101%", "-1%", "-1Mi", "abc", "abc%", "nan%"])
def test_an_eviction_threshold_that_means_nothing_is_refused(text):
    with pytest.raises(ValueError, match=f'"{text}"'):
        eviction_threshold(text, 1000)


def test_reservations_of_the_user_count_for_requestable_resources():
    quantities = {"memory": "1Gi", "cpu": "100m", "pid": "1000"}

    assert reserved_amounts(quantities, field="spec.kubelet.kubeReserved") == {
        "cpu": 100,
        "memory": GI,
    }


def test_an_invalid_reservation_is_refused_by_field_and_value():
    with pytest.raises(ValueError, match=r'^spec\.x\.kubeReserved\.cpu: .*"much"'):
        reserved_amounts({"cpu": "much"}, field="spec.x.kubeReserved")
    with pytest.raises(ValueError, match=r'^spec\.x\.evictionHard: .*"101%"'):
        eviction_threshold_of_field("101%", 1000, field="spec.x.evictionHard")
    assert eviction_threshold_of_field("5%", 1000, field="spec.x.evictionHard") == 50
