"""Validates NodePools beyond the CRD; sets the condition ValidationSucceeded.

It checks lengths of names, label domains, duplicate taints, comparisons, and values that no node can
have. A pool with errors is left out of scheduling until its user corrects it; harmless doubts are
warnings, and the pool stays in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE, TRUE
from karpenter_core.api.labels import (
    ALIASES,
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    DETECT_ONLY,
    DRIFT,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    RESTRICTED_DOMAIN,
    WELL_KNOWN,
    node_class_label,
)
from karpenter_core.api.names import label_value_error, qualified_name_error
from karpenter_core.api.nodepool import NODE_POOL_VALIDATION_FAILED, VALIDATION_SUCCEEDED
from karpenter_core.api.pool_schedules import schedules_error
from karpenter_core.api.returning import return_rule_error
from karpenter_core.api.savings import savings_floor_error
from karpenter_core.api.spot_share import spot_share_error
from karpenter_core.lifecycle.nodepool.status import with_condition
from karpenter_core.scheduling.requirements import parse_integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from karpenter_core.api.nodeclaim import RequirementSpec, TaintSpec
    from karpenter_core.api.nodepool import NodePool

__all__ = [
    "LabelRules",
    "NodePoolFindings",
    "joined_errors",
    "requirement_errors",
    "validate_node_pool",
    "with_validation",
]

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
_COMPARISONS: Final = frozenset({"Gt", "Lt", "Gte", "Lte"})
_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute", ""})
_KNOWN_VALUES: Final = {CAPACITY_TYPE: frozenset(CAPACITY_TYPES)}
_MAX_ANNOTATION_BYTES: Final = 256 * 1024 - 16 * 1024
"""The API server stores 256 KiB of annotations with an object; NodeClaims and Nodes get some of ours."""
_MAX_TEMPLATE_BYTES: Final = 512 * 1024
"""etcd stores objects of 1.5 MiB; a NodeClaim also has names of instance types, and a record of its fields."""
_MAX_REQUIREMENTS: Final = 100
"""Of a NodeClaim (its CRD), which has one for each label and each requirement of its NodePool, and for its
instance types."""
_LONGEST_MESSAGE: Final = 4096
"""Longest message of the condition; the API server rejects far longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRules:
    """The rules on labels of the core and the loaded providers.

    In a restricted domain and its subdomains, users may only set well-known and settable labels.
    """

    well_known: AbstractSet[str] = WELL_KNOWN
    restricted_domains: AbstractSet[str] = frozenset({RESTRICTED_DOMAIN})
    settable: AbstractSet[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=lambda: dict(ALIASES))
    known_values: Mapping[str, AbstractSet[str]] = field(
        default_factory=dict[str, "AbstractSet[str]"]
    )
    """All valid values by label key, beside those of the core's own labels."""

    def restriction(self, key: str) -> str:
        """Return why users may not set a label; empty if they may."""
        if key in self.well_known or key in self.settable:
            return ""
        domain = key.partition("/")[0] if "/" in key else ""
        restricted = key == HOSTNAME or any(
            domain == name or domain.endswith(f".{name}") for name in self.restricted_domains
        )
        if not restricted:
            return ""
        return (
            f"using label {key} is not allowed as it might interfere with the internal "
            f"provisioning logic; specify a well known label: "
            f"[{' '.join(sorted({*self.well_known, *self.settable}))}], "
            f"or a custom label that does not use a "
            f"restricted domain: [{' '.join(sorted(self.restricted_domains))}]"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePoolFindings:
    """The errors and warnings about a pool; each text names its field."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def with_validation(pool: NodePool, *, now: datetime, rules: LabelRules | None) -> NodePool:
    """Return the pool with ValidationSucceeded set; the same object when nothing changed."""
    errors = validate_node_pool(pool, rules=rules).errors
    return with_condition(
        pool,
        type=VALIDATION_SUCCEEDED,
        status=FALSE if errors else TRUE,
        reason=NODE_POOL_VALIDATION_FAILED if errors else VALIDATION_SUCCEEDED,
        message=joined_errors(errors),
        now=now,
    )


def validate_node_pool(pool: NodePool, *, rules: LabelRules | None) -> NodePoolFindings:
    """Check a NodePool's template by the rules that its CRD cannot express."""
    rules = rules or LabelRules()
    template = pool.spec.template
    errors = [*_name_errors(pool), *_size_errors(pool)]
    errors += _label_errors(template.metadata.labels, rules)
    errors += _taint_errors(template.spec.taints, template.spec.startup_taints)
    errors += filter(None, (spot_share_error(pool), schedules_error(pool)))
    warnings = list(_annotation_warnings(pool))
    for index, requirement in enumerate(template.spec.requirements):
        place = f"requirements[{index}]"
        key = rules.aliases.get(requirement.key, requirement.key)
        if key == NODE_POOL:
            errors.append(f'{place}: key "{key}" is restricted')
        problems = requirement_errors(requirement, key, rules)
        errors += (f"{place}: {text}" for text in problems)
        known_values = _KNOWN_VALUES.get(key) or rules.known_values.get(key, frozenset())
        unknown = _unknown_values(requirement, known_values)
        if unknown:
            text = _unknown_text(requirement, key, unknown, known_values)
            (errors if _too_few_known(requirement, unknown) else warnings).append(
                f"{place}: {text}"
            )
    return NodePoolFindings(errors=tuple(errors), warnings=tuple(warnings))


def _name_errors(pool: NodePool) -> Iterator[str]:
    """Refuse names that no label can have: NodeClaims and Nodes get them as labels."""
    names = {"name": pool.name, "nodeClassRef.name": pool.spec.template.spec.node_class_ref.name}
    for field_name, value in names.items():
        if problem := label_value_error(value):
            yield f"{field_name}: is a label of NodeClaims and Nodes: {problem}"


def _size_errors(pool: NodePool) -> Iterator[str]:
    """Refuse a template whose NodeClaims or Nodes the API server would refuse, one after another."""
    template = pool.spec.template
    annotations = template.metadata.annotations
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _MAX_ANNOTATION_BYTES:
        yield f"annotations: they have {size} bytes and may have {_MAX_ANNOTATION_BYTES}"
    size = len(template.model_dump_json(exclude_none=True).encode())
    if size > _MAX_TEMPLATE_BYTES:
        yield f"template: it has {size} bytes and may have {_MAX_TEMPLATE_BYTES}"
    ref = template.spec.node_class_ref
    written = {NODE_POOL, INSTANCE_TYPE, node_class_label(ref.group, ref.kind)}
    keys = {*template.metadata.labels, *(each.key for each in template.spec.requirements)}
    if len(keys | written) > _MAX_REQUIREMENTS:
        most = _MAX_REQUIREMENTS - len(written - keys)
        yield f"labels and requirements: they have {len(keys)} keys together and may have {most}"


def _annotation_warnings(pool: NodePool) -> Iterator[str]:
    value = pool.metadata.annotations.get(DRIFT)
    if value is not None and value != DETECT_ONLY:
        yield f'annotation {DRIFT}: "{value}" is not "{DETECT_ONLY}" and is ignored'
    if problem := savings_floor_error(pool):
        yield f"{problem}; until it is corrected no node is consolidated to save money"
    if problem := return_rule_error(pool):
        yield f"{problem}; until it is corrected no node is replaced by a preferred one"


def _label_errors(labels: Mapping[str, str], rules: LabelRules) -> Iterator[str]:
    for key, value in sorted(labels.items()):
        if key == NODE_POOL:
            yield f'labels: key "{key}" is restricted'
        problem = qualified_name_error(key)
        if problem:
            yield f'labels: invalid key "{key}": {problem}'
        problem = label_value_error(value)
        if problem:
            yield f'labels: invalid value "{value}" of "{key}": {problem}'
        problem = rules.restriction(key)
        if problem:
            yield f'labels: invalid key "{key}": {problem}'


def _taint_errors(
    taints: Sequence[TaintSpec], startup_taints: Sequence[TaintSpec]
) -> Iterator[str]:
    """Check both lists together: they end up on one node."""
    seen: dict[tuple[str, str], str] = {}
    for name, listed in (("taints", taints), ("startupTaints", startup_taints)):
        for index, taint in enumerate(listed):
            place = f"{name}[{index}]"
            problem = qualified_name_error(taint.key)
            if problem:
                yield f'{place}: invalid key "{taint.key}": {problem}'
            problem = qualified_name_error(taint.value) if taint.value else ""
            if problem:
                yield f'{place}: invalid value "{taint.value}": {problem}'
            if taint.effect not in _EFFECTS:
                yield f'{place}: invalid effect "{taint.effect}"'
            first = seen.setdefault((taint.key, taint.effect), place)
            if first != place:
                yield f"{place}: duplicate taint {taint.key}:{taint.effect}, first in {first}"


def requirement_errors(requirement: RequirementSpec, key: str, rules: LabelRules) -> Iterator[str]:
    """Check operator, key and values of a requirement; `key` is the canonical spelling of its key."""
    if requirement.operator not in _OPERATORS:
        supported = ", ".join(_OPERATORS)
        yield f"key {key} has an unsupported operator {requirement.operator} not in {supported}"
    problem = rules.restriction(key)
    if problem:
        yield problem
    problem = qualified_name_error(key)
    if problem:
        yield f"key {key} is not a qualified name: {problem}"
    yield from _value_errors(requirement, key)


def _value_errors(requirement: RequirementSpec, key: str) -> Iterator[str]:
    operator, values = requirement.operator, requirement.values
    for value in values:
        problem = label_value_error(value)
        if problem:
            yield f"invalid value {value} for key {key}: {problem}"
    if operator == "In" and not values:
        yield f"key {key} with operator In must have a value defined"
    elif operator == "In" and len(values) < (requirement.min_values or 0):
        yield (
            f"key {key} with operator In must have at least minValues "
            f"({requirement.min_values}) values, got {len(values)}"
        )
    elif operator in _COMPARISONS:
        number = parse_integer(values[0]) if len(values) == 1 else None
        if number is None or number < 0:
            yield f"key {key} with operator {operator} must have a single positive integer value"


def _unknown_values(requirement: RequirementSpec, known_values: AbstractSet[str]) -> list[str]:
    """Return the values that are not in the label's list of valid values."""
    if not known_values or requirement.operator != "In":
        return []
    return [value for value in requirement.values if value not in known_values]


def _too_few_known(requirement: RequirementSpec, unknown: Sequence[str]) -> bool:
    known_count = len(requirement.values) - len(unknown)
    return known_count < max(1, requirement.min_values or 0)


def _unknown_text(
    requirement: RequirementSpec, key: str, unknown: Sequence[str], known_values: AbstractSet[str]
) -> str:
    required_count = max(1, requirement.min_values or 0)
    return (
        f"unknown values {list(unknown)} for key {key}: known are {sorted(known_values)}, "
        f"of which at least {required_count} must be given"
    )


def joined_errors(errors: Sequence[str]) -> str:
    """Return errors as the message of a condition, cut if they are very long."""
    text = "; ".join(errors)
    if len(text) <= _LONGEST_MESSAGE:
        return text
    return f"{text[:_LONGEST_MESSAGE]}... ({len(errors)} errors in all)"
