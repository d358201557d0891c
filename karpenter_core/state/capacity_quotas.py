"""Reads CapacityQuotas, and computes what nodes and claims use of them.

A quota counts all Nodes that its selector selects, those of no NodePool too, until they are gone, and
claims that have no Node yet. A claim whose labels are not all decided counts if it may be selected. A
price counts for nodes of NodePools alone: other nodes have no price that is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.labels import (
    ALIASES,
    HOSTNAME,
    INITIALIZED,
    NODES,
    PRICE_PER_HOUR,
    REGISTERED,
    WELL_KNOWN,
)
from karpenter_core.api.quantities import LARGEST_AMOUNT, parse_amount, parse_quantity
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.offerings import highest_price_amount
from karpenter_core.scheduling.problem import LaunchQuota
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.requirements.requirement import ABSENCE_OPERATORS
from karpenter_core.scheduling.resources import element_max
from karpenter_core.state.node_pool_usage import is_launched, listed_types, node_price_amount
from karpenter_core.state.state_nodes import is_held_by_foreign_finalizer

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from karpenter_core.api.capacity_quota import CapacityQuota
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue, PlannedNodeClaim
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "QuotaReading",
    "launch_quotas",
    "planned_amounts",
    "planned_types",
    "quota_usage",
    "read_quota",
]

_OPERATORS: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Operators of label selectors, and whether they have values."""
_LATER_LABELS: Final = {REGISTERED: "true", INITIALIZED: "true"}
"""Labels that every node of a NodePool gets in time."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuotaReading:
    """A quota as far as it can be read; `problems` name the fields that cannot.

    Without the parts that cannot be read, `requirements` select at least what the quota selects.
    """

    name: str
    requirements: Requirements
    limits: Mapping[str, int]
    problems: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """The reason for which nodes that may be selected are not launched; empty if there is none."""
        return f"{self.name} cannot be read: {'; '.join(self.problems)}" if self.problems else ""


def read_quota(quota: CapacityQuota, *, aliases: Mapping[str, str] = ALIASES) -> QuotaReading:
    """Read the selector and the limits of a quota."""
    problems: list[str] = []
    requirements = _selector(quota.spec.get("selector"), problems, aliases)
    limits = _limits(quota.spec.get("limits"), problems)
    return QuotaReading(
        name=quota.title,
        requirements=requirements,
        limits=limits,
        problems=tuple(problems),
    )


def _selector(value: object, problems: list[str], aliases: Mapping[str, str]) -> Requirements:
    read: list[Requirement] = []
    if value is None:
        return Requirements()
    if not isinstance(value, Mapping):
        problems.append(f"spec.selector must be an object, not {value!r}")
        return Requirements()
    selector = cast("Mapping[str, object]", value)
    labels: object = selector.get("matchLabels") or {}
    if isinstance(labels, Mapping):
        for key, text in cast("Mapping[str, object]", labels).items():
            if isinstance(text, str):
                read.append(Requirement.of(aliases.get(key, key), "In", (text,)))
            else:
                problems.append(f"spec.selector.matchLabels[{key}] must be a string, not {text!r}")
    else:
        problems.append(f"spec.selector.matchLabels must be an object, not {labels!r}")
    expressions = selector.get("matchExpressions") or ()
    if not isinstance(expressions, Sequence) or isinstance(expressions, str):
        problems.append(f"spec.selector.matchExpressions must be a list, not {expressions!r}")
        expressions = ()
    for number, expression in enumerate(cast("Sequence[object]", expressions)):
        where = f"spec.selector.matchExpressions[{number}]"
        try:
            read.append(_expression(expression, aliases))
        except BadInputError as error:
            problems.append(f"{where}: {error}")
    unknown = sorted(set(selector) - {"matchLabels", "matchExpressions"})
    problems += [f"spec.selector.{name} is not known" for name in unknown]
    # Every node has a name, and that of a new node is new.
    return Requirements(one for one in read if (one.key, one.operator) != (HOSTNAME, "Exists"))


def _expression(value: object, aliases: Mapping[str, str]) -> Requirement:
    if not isinstance(value, Mapping):
        raise BadInputError(f"must be an object, not {value!r}")
    expression = cast("Mapping[str, object]", value)
    key, operator = expression.get("key"), expression.get("operator")
    values: object = expression.get("values") or []
    if not isinstance(key, str) or not key:
        raise BadInputError(f"key must be a label, not {key!r}")
    if not isinstance(operator, str) or operator not in _OPERATORS:
        raise BadInputError(f"operator must be one of {', '.join(_OPERATORS)}, not {operator!r}")
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise BadInputError(f"values must be a list, not {values!r}")
    items = cast("Sequence[object]", values)
    texts = tuple(item for item in items if isinstance(item, str))
    if len(texts) < len(items) or bool(texts) != _OPERATORS[operator]:
        raise BadInputError(f"operator {operator} does not go with values {values!r}")
    return Requirement.of(aliases.get(key, key), operator, texts)


def _limits(value: object, problems: list[str]) -> dict[str, int]:
    """Read limits: whole numbers that are not negative, as in the CRD's rule."""
    resources = (
        cast("Mapping[str, object]", value).get("resources") if isinstance(value, Mapping) else None
    )
    if not isinstance(resources, Mapping):
        problems.append(f"spec.limits.resources must be an object, not {resources!r}")
        return {}
    limits: dict[str, int] = {}
    for name, amount in cast("Mapping[str, object]", resources).items():
        where = f"spec.limits.resources[{name}]"
        if isinstance(amount, bool) or not isinstance(amount, str | int):
            problems.append(f"{where} must be a quantity, not {amount!r}")
            continue
        try:
            quantity = parse_quantity(amount)
        except ValueError as error:
            problems.append(f"{where}: {error}")
            continue
        is_whole = quantity == quantity.to_integral_value() and str(amount)[-1:] not in "num"
        if quantity < 0 or not is_whole:
            problems.append(f"{where} must be a whole number that is not negative, not {amount!r}")
            continue
        limits[name] = parse_amount(name, amount)
    return limits


def quota_usage(
    snapshot: Snapshot,
    reading: QuotaReading,
    rates: Mapping[str, float],
    *,
    well_known: Container[str],
    aliases: Mapping[str, str],
) -> dict[str, int]:
    """Return what is used of the limits of a quota, `LARGEST_AMOUNT` of a price if it is unknown."""
    used = dict.fromkeys(reading.limits, 0)
    for state_node in snapshot.counted_nodes:
        claim = state_node.claim
        if state_node.node is None and claim is not None and is_held_by_foreign_finalizer(claim):
            continue
        for name, amount in _node_amounts(
            snapshot, state_node, reading, rates, well_known=well_known, aliases=aliases
        ).items():
            if name in used:
                used[name] = min(used[name] + amount, LARGEST_AMOUNT)
    return used


def _node_amounts(
    snapshot: Snapshot,
    state_node: StateNode,
    reading: QuotaReading,
    rates: Mapping[str, float],
    *,
    well_known: Container[str],
    aliases: Mapping[str, str],
) -> Mapping[str, int]:
    claim = state_node.claim
    if claim is None or state_node.registered:
        if not _selects(reading.requirements, state_node.labels, aliases):
            return {}
    else:
        catalogue = snapshot.catalogues.get(state_node.pool)
        types = listed_types(claim, catalogue)
        requirements = Requirements.from_specs(claim.spec.requirements, aliases=aliases).merge(
            Requirements.from_labels({**state_node.labels, **_LATER_LABELS}, aliases=aliases)
        )
        selected = _selected_types(types, requirements, reading.requirements, well_known)
        if not is_launched(state_node):
            return {} if types and not selected else _amounts(selected, requirements, rates)
        if not requirements.compatible(
            reading.requirements,
            allow_undefined=_undecided(types, reading.requirements, well_known),
        ):
            return {}
    amounts = dict(state_node.capacity)
    if PRICE_PER_HOUR in reading.limits and state_node.pool:
        amounts[PRICE_PER_HOUR] = node_price_amount(snapshot, state_node, rates)
    return amounts


def _selects(selector: Requirements, labels: Mapping[str, str], aliases: Mapping[str, str]) -> bool:
    """Tell whether a selector selects a node with these labels, all of them decided."""
    for requirement in selector.values():
        value = labels.get(requirement.key)
        if value is None:
            value = next(
                (
                    labels[old]
                    for old, key in aliases.items()
                    if key == requirement.key and old in labels
                ),
                None,
            )
        if value is None:
            if requirement.operator not in ABSENCE_OPERATORS:
                return False
        elif not requirement.has(value):
            return False
    return True


def planned_amounts(
    planned: PlannedNodeClaim,
    selector: Requirements,
    catalogue: Catalogue | None,
    rates: Mapping[str, float],
    *,
    well_known: Container[str],
    aliases: Mapping[str, str],
) -> dict[str, int]:
    """Return the most that a quota with a selector may count of a planned claim; empty: nothing."""
    types = planned_types(planned, catalogue)
    requirements = Requirements(planned.requirements).merge(
        Requirements.from_labels({**planned.labels, **_LATER_LABELS}, aliases=aliases)
    )
    selected = _selected_types(types, requirements, selector, well_known)
    return _amounts(selected, requirements, rates) if selected else {}


def planned_types(
    planned: PlannedNodeClaim, catalogue: Catalogue | None
) -> tuple[InstanceType, ...]:
    """Return the types that a planned claim lists; all that it allows if it lists none."""
    if catalogue is None:
        return ()
    if planned.instance_types:
        listed = frozenset(planned.instance_types)
        return tuple(item for item in catalogue.instance_types if item.name in listed)
    requirements = Requirements(planned.requirements)
    return tuple(
        item for item in catalogue.instance_types if item.requirements.intersects(requirements)
    )


def _undecided(
    types: Iterable[InstanceType], selector: Requirements, well_known: Container[str]
) -> frozenset[str]:
    """Return the labels of the selector that a node may get though nothing is said of them."""
    listed = tuple(types)
    return frozenset(
        key
        for key in selector
        if key in well_known or any(key in item.requirements for item in listed)
    )


def _selected_types(
    types: tuple[InstanceType, ...],
    requirements: Requirements,
    selector: Requirements,
    well_known: Container[str],
) -> tuple[InstanceType, ...]:
    """Return the types as which a node may be selected, whatever is not decided yet."""
    undecided = _undecided(types, selector, well_known)
    if not requirements.compatible(selector, allow_undefined=undecided):
        return ()
    merged = requirements.merge(selector)
    return tuple(
        item
        for item in types
        if item.requirements.intersects(merged)
        and any(merged.intersects(offering.requirements) for offering in item.offerings)
    )


def _amounts(
    types: tuple[InstanceType, ...], requirements: Requirements, rates: Mapping[str, float]
) -> dict[str, int]:
    known = WELL_KNOWN.union(*(item.requirements.keys() for item in types))
    price = highest_price_amount(types, requirements, rates, well_known=known)
    return {**element_max(item.capacity for item in types), NODES: 1, PRICE_PER_HOUR: price}


def launch_quotas(
    snapshot: Snapshot,
    rates: Mapping[str, float],
    *,
    well_known: Container[str],
    aliases: Mapping[str, str],
) -> tuple[LaunchQuota, ...]:
    """Return the quotas of a cluster for the solver, by name."""
    quotas: list[LaunchQuota] = []
    for _, quota in sorted(snapshot.capacity_quotas.items()):
        reading = read_quota(quota, aliases=aliases)
        used = quota_usage(snapshot, reading, rates, well_known=well_known, aliases=aliases)
        refusal = reading.refusal
        if not refusal and used.get(PRICE_PER_HOUR, 0) >= LARGEST_AMOUNT:
            refusal = f"{reading.name}: the price of a node that it counts is not known"
        quotas.append(
            LaunchQuota(
                name=reading.name,
                requirements=reading.requirements,
                limits=reading.limits,
                used=used,
                refusal=refusal,
            )
        )
    return tuple(quotas)
