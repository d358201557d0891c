"""An overlay adds an amount per hour to the price of each node, or is refused."""

from __future__ import annotations

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import PRICE_PER_NODE
from karpenter_core.api.nodeoverlay import NodeOverlay, NodeOverlaySpec
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.nodeoverlay.validation import node_fee


def overlay(text=None):
    annotations = {} if text is None else {PRICE_PER_NODE: text}
    return NodeOverlay(
        metadata=ObjectMeta(name="fee", annotations=annotations), spec=NodeOverlaySpec()
    )


@pytest.mark.parametrize(
    ("text", "fee"), [(None, None), ("0", 0.0), ("0.25", 0.25), ("1e-3", 0.001)]
)
def test_a_fee_is_an_amount_of_at_least_nothing(text, fee):
    assert node_fee(overlay(text)) == fee


@pytest.mark.parametrize("text", ["", "much", "-0.1", "inf", "nan", "0,5", "1 USD"])
def test_a_fee_that_is_no_amount_is_refused_with_its_annotation(text):
    with pytest.raises(BadInputError, match="is not an amount per hour") as refused:
        node_fee(overlay(text))
    assert f'annotation {PRICE_PER_NODE}: "{text}"' in str(refused.value)
