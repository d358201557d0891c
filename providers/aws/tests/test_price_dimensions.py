"""A product with several amounts has one price, whatever the order in which the list names them."""

from __future__ import annotations

import json

import pytest

from karpenter_provider_aws.prices import read_products


def product(*amounts: str) -> str:
    dimensions = {
        f"A.B.{number}": {"unit": "Hrs", "pricePerUnit": {"USD": amount}}
        for number, amount in enumerate(amounts)
    }
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": "m7i.large"}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": dimensions}}},
        }
    )


@pytest.mark.parametrize("amounts", [("0.0", "0.1", "0.3"), ("0.3", "0.1", "0.0")])
def test_the_highest_of_several_amounts_counts(amounts):
    """A node is never taken for cheaper than it may be."""
    assert read_products([product(*amounts)], currency="USD") == {"m7i.large": 0.3}
