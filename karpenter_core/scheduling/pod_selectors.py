"""Checks the node selectors and node affinity of pods.

Asked twice: by the state, which leaves such a pod out of a pass with an event, and by the solver,
which is also handed pods that no state has seen (offline planning).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    NODE_POOL,
    RESTRICTED_DOMAIN,
    WELL_KNOWN,
)
from karpenter_core.scheduling.requirements import is_restricted_label, parse_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.records import NodeSelectorRequirement, PodShape

__all__ = ["opts_out", "selector_error"]

_COMPARISONS: Final = frozenset({"Gt", "Lt", "Gte", "Lte"})


def opts_out(shape: PodShape, *, aliases: Mapping[str, str]) -> bool:
    """Tell whether pods of a shape want a node of no pool: `karpenter.sh/nodepool DoesNotExist`.

    Read like placement does: the first required term and the heaviest preferred one.
    """
    preferred = max(shape.preferred_node_terms, key=lambda item: item.weight, default=None)
    terms = [*shape.required_node_terms[:1], *([preferred.term] if preferred else [])]
    return any(
        aliases.get(item.key, item.key) == NODE_POOL and item.operator == "DoesNotExist"
        for term in terms
        for item in term.match_expressions
    )


def selector_error(
    shape: PodShape,
    *,
    well_known: AbstractSet[str],
    aliases: Mapping[str, str],
) -> str:
    """Say what is wrong with a shape's node selector and required affinity; empty when nothing."""
    if any(term.match_fields for term in shape.required_node_terms):
        return "node selector term with matchFields is not supported"
    well_known_labels = WELL_KNOWN | well_known
    for key, operator, values in _expressions(shape, aliases):
        error = _label_error(key, well_known_labels) or _value_error(key, operator, values)
        if error:
            return error
    return ""


def _expressions(
    shape: PodShape, aliases: Mapping[str, str]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for key, value in shape.node_selector.items():
        yield aliases.get(key, key), "In", (value,)
    for term in shape.required_node_terms:
        yield from _of_term(term.match_expressions, aliases)


def _of_term(
    expressions: Iterable[NodeSelectorRequirement], aliases: Mapping[str, str]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for item in expressions:
        yield aliases.get(item.key, item.key), item.operator, item.values


def _label_error(key: str, well_known_labels: AbstractSet[str]) -> str:
    if key in well_known_labels or not is_restricted_label(key):
        return ""
    return (
        f"using label {key} is not allowed as it might interfere with the internal provisioning "
        f"logic; specify a well known label: [{' '.join(sorted(well_known_labels))}], or a custom label that "
        f"does not use a restricted domain: [{RESTRICTED_DOMAIN}]"
    )


def _value_error(key: str, operator: str, values: tuple[str, ...]) -> str:
    if operator == "In" and not values:
        return f"key {key} with operator In must have a value defined"
    if operator in _COMPARISONS:
        number = parse_integer(values[0]) if len(values) == 1 else None
        if number is None or number < 0:
            return f"key {key} with operator {operator} must have a single positive integer value"
    if key == CAPACITY_TYPE and operator == "In" and not set(values) & set(CAPACITY_TYPES):
        return f"invalid values {sorted(values)} for key {key}, must be one of {CAPACITY_TYPES}"
    return ""
