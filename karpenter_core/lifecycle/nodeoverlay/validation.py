"""Validates NodeOverlays beyond their CRD."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, PRICE_PER_NODE
from karpenter_core.api.nodeoverlay import RESTRICTED_RESOURCES
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.nodepool.validation import LabelRules, requirement_errors
from karpenter_core.scheduling.price_changes import PriceChange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.nodeoverlay import NodeOverlay

__all__ = ["node_fee", "validate_overlay"]


def validate_overlay(overlay: NodeOverlay, *, rules: LabelRules | None) -> tuple[str, ...]:
    """Return the errors of an overlay, each naming its field; none if it can be applied."""
    return tuple(_errors(overlay, rules or LabelRules()))


def _errors(overlay: NodeOverlay, rules: LabelRules) -> Iterator[str]:
    spec = overlay.spec
    for index, requirement in enumerate(spec.requirements):
        place = f"requirements[{index}]"
        key = {**ALIASES, **rules.aliases}.get(requirement.key, requirement.key)
        for problem in requirement_errors(requirement.to_spec(), key, rules):
            yield f"{place}: {problem}"
        if requirement.operator == "NotIn" and not requirement.values:
            yield f"{place}: key {key} with operator NotIn must have a value defined"
    for name, quantity in sorted(spec.capacity.items()):
        if name in RESTRICTED_RESOURCES:
            yield f'capacity: resource "{name}" is restricted'
        # Kubernetes admits no other amount of an extended resource on a Node.
        elif (amount := parse_quantity(str(quantity))) < 0 or amount % 1:
            yield f'capacity: resource "{name}": {quantity} is not a whole number of at least 0'
    for field, text in (("price", spec.price), ("priceAdjustment", spec.price_adjustment)):
        try:
            _ = None if text is None else PriceChange.parse(text)
        except BadInputError as error:
            yield f"{field}: {error}"
    try:
        node_fee(overlay)
    except BadInputError as error:
        yield str(error)


def node_fee(overlay: NodeOverlay) -> float | None:
    """Return what the overlay adds to the price of a node per hour; None without the annotation.

    Raises:
        BadInputError: the annotation is not a number of at least 0.
    """
    text = overlay.metadata.annotations.get(PRICE_PER_NODE)
    if text is None:
        return None
    try:
        fee = float(text)
    except ValueError:
        fee = -1.0
    if not 0 <= fee < float("inf"):
        raise BadInputError(f'annotation {PRICE_PER_NODE}: "{text}" is not an amount per hour')
    return fee
