"""Label selectors (as text and as objects) and field selectors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.sim.fields import entries, labels_of, section
from karpenter_core.sim.status import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["field_predicate", "label_predicate", "matches_selector"]

_SET: Final = re.compile(r"\s*(?P<key>[^\s!=(),]+)\s+(?P<verb>in|notin)\s*\((?P<values>[^)]*)\)\s*")
_EQUALS: Final = re.compile(
    r"\s*(?P<key>[^\s!=(),]+)\s*(?P<verb>==|=|!=)\s*(?P<value>[^\s,()]*)\s*"
)
_EXISTS: Final = re.compile(r"\s*(?P<bang>!?)\s*(?P<key>[^\s!=(),]+)\s*")


def matches_selector(selector: JsonMapping | None, labels: Mapping[str, str]) -> bool:
    """Tell whether a LabelSelector object matches; none matches nothing, empty everything."""
    if selector is None:
        return False
    for key, value in section(selector, "matchLabels").items():
        if labels.get(key) != value:
            return False
    return all(
        _holds(labels, each["key"], each["operator"], each.get("values") or ())
        for each in entries(selector, "matchExpressions")
    )


def label_predicate(text: str) -> Callable[[JsonMapping], bool] | None:
    """Read a `labelSelector` query into a test of objects; None when it selects everything.

    Raises:
        StatusError: 400, the text is not a selector.
    """
    if not text.strip():
        return None
    terms = [_parse_term(term) for term in _split(text)]

    def matches(obj: JsonMapping) -> bool:
        labels = labels_of(obj)
        return all(_holds(labels, *term) for term in terms)

    return matches


def field_predicate(text: str, supported: frozenset[str]) -> Callable[[JsonMapping], bool] | None:
    """Read a `fieldSelector` query into a test of objects; None when it selects everything.

    Raises:
        StatusError: 400, malformed, or a field that this kind cannot be selected by.
    """
    if not text.strip():
        return None
    terms: list[tuple[list[str], bool, str]] = []
    for part in text.split(","):
        match = _EQUALS.fullmatch(part)
        if match is None:
            raise bad_request(f'invalid field selector "{part}"')
        if match["key"] not in supported:
            raise bad_request(f"field label not supported: {match['key']}")
        terms.append((match["key"].split("."), match["verb"] != "!=", match["value"]))

    def matches(obj: JsonMapping) -> bool:
        return all((_text_at(obj, path) == value) is is_equal for path, is_equal, value in terms)

    return matches


def _split(text: str) -> list[str]:
    return re.split(r",(?![^(]*\))", text)


def _parse_term(term: str) -> tuple[str, str, tuple[str, ...]]:
    if match := _SET.fullmatch(term):
        values = tuple(value.strip() for value in match["values"].split(","))
        return match["key"], "In" if match["verb"] == "in" else "NotIn", values
    if match := _EQUALS.fullmatch(term):
        return match["key"], "NotIn" if match["verb"] == "!=" else "In", (match["value"],)
    if match := _EXISTS.fullmatch(term):
        return match["key"], "DoesNotExist" if match["bang"] else "Exists", ()
    raise bad_request(f'unable to parse requirement "{term}"')


def _holds(labels: Mapping[str, str], key: str, operator: str, values: Container[str]) -> bool:
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def _text_at(obj: JsonMapping, path: list[str]) -> str:
    *above, last = path
    for step in above:
        obj = obj.get(step) or {}
    value: object = obj.get(last)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
