"""Checks pods in files for errors that an API server would refuse.

Checks only errors that would silently change a plan: an invalid topology spread, a term that
matches nothing because of a misspelling, a negative amount. Paths are those of the manifest.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.quantities import parse_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.api.records import (
        AffinityTerm,
        LabelSelector,
        NodeSelectorTerm,
        PodShape,
        TopologySpread,
    )

__all__ = ["decoding_error", "quantity_error", "shape_error", "value_error"]

_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists", "Lt", "Gt")
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES: Final = ("Honor", "Ignore")

_PLACE: Final = re.compile(r"^(?P<text>.*) - at `\$\.?(?P<path>.*)`$", re.DOTALL)
_ANY_VALUE: Final = "[...]"
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>.*)`$")
_TYPES: Final = re.compile(r"^Expected `(?P<wanted>.*)`, got `(?P<got>.*)`$")


_TYPE_WORDS: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "object": "an object",
    "array": "an array",
}


def shape_error(shape: PodShape) -> str:
    """Return the first error of a pod; empty if there is none."""
    return next(_shape_errors(shape), "")


def _shape_errors(shape: PodShape) -> Iterator[str]:
    for number, spread in enumerate(shape.topology_spread):
        yield from _spread_errors(spread, f"spec.topologySpreadConstraints[{number}]")
    node = "spec.affinity.nodeAffinity"
    yield from _node_errors(
        shape.required_node_terms,
        f"{node}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
    )
    yield from _node_errors(
        (preferred.term for preferred in shape.preferred_node_terms),
        f"{node}.preferredDuringSchedulingIgnoredDuringExecution",
    )
    for field, required, preferred in (
        ("podAffinity", shape.pod_affinity, shape.preferred_pod_affinity),
        ("podAntiAffinity", shape.pod_anti_affinity, shape.preferred_pod_anti_affinity),
    ):
        path = f"spec.affinity.{field}"
        yield from _pod_term_errors(
            required, f"{path}.requiredDuringSchedulingIgnoredDuringExecution"
        )
        yield from _pod_term_errors(
            (wish.term for wish in preferred),
            f"{path}.preferredDuringSchedulingIgnoredDuringExecution",
        )
    for number, toleration in enumerate(shape.tolerations):
        path = f"spec.tolerations[{number}]"
        yield from _choice(f"{path}.operator", toleration.operator, _TOLERATION_OPERATORS)
        yield from _choice(f"{path}.effect", toleration.effect, _EFFECTS)
        if not toleration.key and toleration.operator != "Exists":
            yield f"{path}.operator: must be Exists when key is empty, which means all taints"


def _spread_errors(spread: TopologySpread, path: str) -> Iterator[str]:
    if spread.max_skew <= 0:
        yield f"{path}.maxSkew: must be above zero, not {spread.max_skew}"
    if not spread.topology_key:
        yield f"{path}.topologyKey: missing"
    if spread.min_domains is not None and spread.min_domains <= 0:
        yield f"{path}.minDomains: must be above zero, not {spread.min_domains}"
    yield from _choice(f"{path}.whenUnsatisfiable", spread.when_unsatisfiable, _UNSATISFIABLE)
    yield from _choice(f"{path}.nodeAffinityPolicy", spread.node_affinity_policy, _POLICIES)
    yield from _choice(f"{path}.nodeTaintsPolicy", spread.node_taints_policy, _POLICIES)
    yield from _selector_errors(spread.selector, f"{path}.labelSelector")


def _node_errors(terms: Iterable[NodeSelectorTerm], path: str) -> Iterator[str]:
    for number, term in enumerate(terms):
        for index, expression in enumerate(term.match_expressions):
            place = f"{path}[{number}].matchExpressions[{index}].operator"
            yield from _choice(place, expression.operator, _NODE_OPERATORS)


def _pod_term_errors(terms: Iterable[AffinityTerm], path: str) -> Iterator[str]:
    for number, term in enumerate(terms):
        if not term.topology_key:
            yield f"{path}[{number}].topologyKey: missing"
        yield from _selector_errors(term.selector, f"{path}[{number}].labelSelector")
        yield from _selector_errors(term.namespace_selector, f"{path}[{number}].namespaceSelector")


def _selector_errors(selector: LabelSelector | None, path: str) -> Iterator[str]:
    if selector is None:
        return
    for index, expression in enumerate(selector.match_expressions):
        place = f"{path}.matchExpressions[{index}]"
        yield from _choice(f"{place}.operator", expression.operator, _LABEL_OPERATORS)


def _choice(path: str, value: str, choices: tuple[str, ...]) -> Iterator[str]:
    if value not in choices:
        yield f'{path}: must be one of {", ".join(filter(None, choices))}, not "{value}"'


# -- where it is -----------------------------------------------------------------------------------


def decoding_error(message: str, manifest: JsonMapping) -> str:
    """Return a message of the JSON decoder with the field first, as in other messages."""
    place = _PLACE.match(message)
    text, path = (place["text"], place["path"]) if place else (message, "")
    missing = _MISSING.match(text)
    if missing:
        return f"{path}.{missing['field']}: missing" if path else f"{missing['field']}: missing"
    if not place:
        return message
    types = _TYPES.match(text)
    if not types:
        return f"{path}: {text}"
    expected_type = types["wanted"].removesuffix(" | null")
    named = _named(path, manifest) if expected_type == "str" else path
    return f"{named}: must be {_words(expected_type)}, not {_words(types['got'])}"


def _words(decoded: str) -> str:
    """Return the decoder's names of types in terms of JSON."""
    return " or ".join(_TYPE_WORDS.get(name, name) for name in decoded.split(" | "))


def _named(path: str, manifest: JsonMapping) -> str:
    """Insert the key into a path that ends with any value of a map of strings."""
    if not path.endswith(_ANY_VALUE):
        return path
    value_at: object = manifest
    for name, index in _STEP.findall(path.removesuffix(_ANY_VALUE)):
        if index:
            value_at = cast("list[object]", value_at)[int(index)]
        else:
            value_at = cast("JsonObject", value_at)[name]
    for key, value in cast("JsonObject", value_at).items():
        if not isinstance(value, str):
            return f'{path.removesuffix(_ANY_VALUE)}["{key}"]'
    return path


def value_error(manifest: JsonMapping) -> str:
    """Return the first value in a manifest that no API server can store, with its path."""
    return next(_value_errors(manifest, ""), "")


def _value_errors(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in cast("JsonObject", value).items():
            written = ascii(name)[1:-1] if _is_broken(name) else name
            place = f"{path}.{written}" if path else written
            if _is_broken(name):
                yield f"{place}: is no text"
            yield from _value_errors(inner, place)
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[object]", value)):
            yield from _value_errors(item, f"{path}[{number}]")
    elif isinstance(value, str) and _is_broken(value):
        yield f"{path}: {json.dumps(value)} is no text"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield f"{path}: {value} is too large a number"


def _is_broken(text: str) -> bool:
    """Return whether a string has an unpaired surrogate, as JSON escapes can produce."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def quantity_error(manifest: JsonMapping) -> str:
    """Return the first amount in a manifest that is invalid or negative, with its path."""
    return next(_quantity_errors(manifest, ""), "")


def _quantity_errors(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in cast("JsonObject", value).items():
            place = f"{path}.{name}" if path else name
            if name in _AMOUNTS and isinstance(inner, dict):
                yield from _amount_errors(cast("JsonObject", inner), place)
            else:
                yield from _quantity_errors(inner, place)
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[object]", value)):
            yield from _quantity_errors(item, f"{path}[{number}]")


_AMOUNTS: Final = frozenset({"requests", "limits", "overhead", "capacity", "allocatable"})


def _amount_errors(amounts: JsonMapping, path: str) -> Iterator[str]:
    for name, written in amounts.items():
        try:
            amount = parse_amount(name, written)
        except (ValueError, TypeError):
            yield f"{path}.{name}: {json.dumps(written)} is no quantity"
            continue
        if amount < 0:
            yield f"{path}.{name}: must be zero or more, not {written}"
