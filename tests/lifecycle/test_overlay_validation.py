"""Errors of a NodeOverlay name the field and the value, and no overlay with one is applied."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import PRICE_PER_NODE
from karpenter_core.lifecycle.nodeoverlay.validation import validate_overlay
from karpenter_core.testing.builders import node_overlay


def test_an_overlay_of_prices_and_capacity_is_valid():
    overlay = node_overlay(
        "gpus",
        ("karpenter.k8s.aws/family", "In", "p5"),
        price="1.5",
        capacity={"x.io/fpga": "2", "hugepages-2Mi": "1Gi", "x.io/none": "0"},
    )
    assert validate_overlay(overlay, rules=None) == ()


@pytest.mark.parametrize(
    ("overlay", "found"),
    [
        (node_overlay("o", ("te am", "Exists")), ("requirements[0]: ", "te am")),
        (
            node_overlay("o", ("a", "Exists"), ("b", "NotIn")),
            ("requirements[1]: key b with operator NotIn must have a value defined",),
        ),
        (
            node_overlay("o", ("beta.kubernetes.io/arch", "NotIn")),
            ("requirements[0]: key kubernetes.io/arch with operator NotIn",),
        ),
        (node_overlay("o", capacity={"memory": "1Gi"}), ('capacity: resource "memory" is',)),
        (
            node_overlay("o", capacity={"x.io/fpga": "-2"}),
            ('capacity: resource "x.io/fpga": -2 is not a whole number of at least 0',),
        ),
        (
            node_overlay("o", capacity={"x.io/fpga": "500m"}),
            ('capacity: resource "x.io/fpga": 500m is not a whole number of at least 0',),
        ),
        (node_overlay("o", price="dear"), ("price: ", "dear")),
        (node_overlay("o", adjustment="+ten%"), ("priceAdjustment: ", "+ten%")),
        (
            node_overlay("o", annotations={PRICE_PER_NODE: "-1"}),
            (f'annotation {PRICE_PER_NODE}: "-1" is not an amount per hour',),
        ),
    ],
)
def test_an_error_names_its_field(overlay, found):
    (error,) = validate_overlay(overlay, rules=None)
    assert error.startswith(found[0])
    assert all(text in error for text in found)


def test_all_errors_are_reported_together():
    overlay = node_overlay(
        "o", ("b", "NotIn"), capacity={"cpu": "1", "pods": "1"}, price="dear", adjustment="more"
    )
    fields = [error.partition(":")[0] for error in validate_overlay(overlay, rules=None)]
    assert fields == ["requirements[0]", "capacity", "capacity", "price", "priceAdjustment"]
