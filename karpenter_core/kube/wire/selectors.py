"""Converts selectors, affinity terms and taints from raw JSON to records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.records import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.kube.wire.raw import RawExpression, RawNodeTerm, RawSelector

__all__ = ["label_selector", "node_requirements", "node_terms"]


def label_selector(raw: RawSelector | None) -> LabelSelector | None:
    """Read a label selector; an absent one matches nothing and stays None."""
    if raw is None:
        return None
    return LabelSelector(
        match_labels=raw.match_labels or {},
        match_expressions=tuple(
            LabelSelectorRequirement(
                key=expression.key,
                operator=expression.operator,
                values=tuple(expression.values or ()),
            )
            for expression in raw.match_expressions or ()
        ),
    )


def node_requirements(
    raw: Iterable[RawExpression] | None,
) -> tuple[NodeSelectorRequirement, ...]:
    """Read match expressions over node labels."""
    return tuple(
        NodeSelectorRequirement(
            key=expression.key,
            operator=expression.operator,
            values=tuple(expression.values or ()),
        )
        for expression in raw or ()
    )


def node_terms(raw: Iterable[RawNodeTerm] | None) -> tuple[NodeSelectorTerm, ...]:
    """Read node selector terms, of which one must match."""
    return tuple(
        NodeSelectorTerm(
            match_expressions=node_requirements(term.match_expressions),
            match_fields=node_requirements(term.match_fields),
        )
        for term in raw or ()
    )
