"""Quantities: exact, bounded, and kept as spelled."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.nodepool import NodePoolSpec
from karpenter_core.api.quantities import (
    Quantity,
    format_amount,
    format_resources,
    parse_amount,
    parse_quantity,
    parse_resources,
)
from tests.properties import with_examples

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("-1", "-1"),
        ("1.", "1"),
        (".5", "0.5"),
        ("0.1", "0.1"),
        ("100m", "0.1"),
        ("1n", "0.000000001"),
        ("1u", "0.000001"),
        ("1k", "1000"),
        ("1M", "1000000"),
        ("1E", "1000000000000000000"),
        ("1E3", "1000"),
        ("1e3", "1000"),
        ("1e-3", "0.001"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("7Ei", str(7 * 2**60)),
        (2000, "2000"),
        (1.5, "1.5"),
        (1e21, str(LARGEST)),
    ],
)
def test_quantity_is_read_exactly(text, value):
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1K",
        "1ki",
        "1 Gi",
        "Gi",
        "1gi",
        "ten",
        "1e",
        "1e1.5",
        "--1",
        "1.2.3",
        "1Gi ",
        "\u0661",
    ],
)
def test_texts_that_kubernetes_refuses_are_refused(text):
    with pytest.raises(ValueError, match="invalid quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["9Ei", "1e30", "1e999999999999999999", f"{'9' * 5000}", "100E"])
def test_a_quantity_beyond_the_range_of_kubernetes_is_the_largest(text):
    assert parse_quantity(text) == LARGEST
    assert parse_quantity(f"-{text}") == -LARGEST


def test_tiny_amounts_are_rounded_up():
    assert parse_amount("cpu", "1n") == 1
    assert parse_amount("memory", "0.1") == 1
    assert parse_amount("memory", "1e-999999999") == 1
    assert parse_amount("memory", f"1.{'0' * 50}1") == 2


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "1.5", 1500),
        ("cpu", "1500m", 1500),
        ("cpu", 2000, 2_000_000),
        ("cpu", "0.0001", 1),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "128974848000m", 128974848),
        ("pods", "110", 110),
        ("nvidia.com/gpu", "1", 1),
    ],
)
def test_amount_is_in_the_unit_of_its_resource(resource, text, amount):
    assert parse_amount(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 2 * 2**30, "2Gi"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 1001, "1001"),
        ("ephemeral-storage", 20 * 2**30, "20Gi"),
        ("hugepages-2Mi", 4 * 2**20, "4Mi"),
        ("pods", 1024, "1024"),
    ],
)
def test_amount_is_written_canonically(resource, amount, text):
    assert format_amount(resource, amount) == text


RESOURCES = st.sampled_from(["cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu"])


@given(RESOURCES, st.integers(min_value=-(2**50), max_value=2**50))
@with_examples(100)
def test_a_written_value_is_read_back(resource, amount):
    assert parse_amount(resource, format_amount(resource, amount)) == amount


@given(st.dictionaries(RESOURCES, st.integers(min_value=0, max_value=2**60)))
@with_examples(100)
def test_resource_lists_survive_a_round_trip(resources):
    assert parse_resources(format_resources(resources)) == resources


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=9))
@with_examples(100)
def test_sums_of_quantities_are_exact(value):
    assert parse_quantity(format(value, "f")) == value
    assert parse_quantity(format(value, "f")) - value == 0


@given(st.text(max_size=12) | st.from_regex(r"[+-]?[0-9.]{0,30}[eE]?[+-]?[0-9]{0,30}[A-Zi]?"))
@with_examples(100)
def test_any_text_is_read_or_refused(text):
    try:
        value = parse_quantity(text)
    except ValueError:
        return
    assert -LARGEST <= value <= LARGEST


def test_the_users_spelling_is_preserved():
    spec = {
        "template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}},
        "limits": {"cpu": 2000, "memory": "1.5Gi", "nodes": "10", "pods": "1e3"},
    }

    read = NodePoolSpec.model_validate(spec)

    assert read.model_dump(mode="json", exclude_unset=True) == spec
    assert '"cpu":2000' in read.model_dump_json(exclude_unset=True, by_alias=True)
    assert read.limits["memory"].value == Decimal(1610612736)


@pytest.mark.parametrize("value", [True, None, [], "1K"])
def test_invalid_quantity_is_refused_in_its_field(value):
    with pytest.raises(ValueError, match=r"limits\.cpu"):
        NodePoolSpec.model_validate({"template": {}, "limits": {"cpu": value}})


def test_quantities_compare_by_spelling():
    """Two spellings of one amount are two texts in a manifest."""
    assert Quantity("1") == Quantity("1")
    assert Quantity("1") != Quantity("1000m")
    assert Quantity("1").value == Quantity("1000m").value
