"""Evaluates label selectors as Kubernetes does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import LabelSelector, LabelSelectorRequirement

__all__ = ["selects"]


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether a selector matches; none matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(expression, labels) for expression in selector.match_expressions
    )


def _holds(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
