"""Converts selectors of v1alpha1 (a map of tags) to selector terms.

All entries of a map must hold together; a value may list alternatives, separated by commas. A term has
one value for each tag, so that alternatives become terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import BadInputError
from karpenter_provider_aws.api.terms import MAX_TERMS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ami_terms", "tag_terms"]

_IDS: Final = frozenset({"aws-ids", "aws::ids"})
_NAME: Final = "aws::name"
_OWNERS: Final = "aws::owners"


def tag_terms(selector: object, *, field: str) -> list[dict[str, object]]:
    """Return the terms of a selector of subnets or security groups."""
    tags, ids = _read(selector, field)
    return _checked([{"tags": each} for each in _combinations(tags)] if tags else ids, field)


def ami_terms(selector: object, *, field: str) -> list[dict[str, object]]:
    """Return the terms of a selector of AMIs, which may also name owners and a name."""
    tags, ids = _read(selector, field)
    names, owners = _words(tags.pop(_NAME, "")), _words(tags.pop(_OWNERS, ""))
    if ids and not tags:
        return _checked(ids, field)
    terms: list[dict[str, object]] = []
    for combination in _combinations(tags):
        for name, owner in product(names or ("",), owners or ("",)):
            term: dict[str, object] = {}
            if combination:
                term["tags"] = combination
            term |= {key: value for key, value in (("name", name), ("owner", owner)) if value}
            terms.append(term)
    return _checked(terms, field)


def _read(selector: object, field: str) -> tuple[dict[str, str], list[dict[str, object]]]:
    """Return the tags of a selector, and the terms of the ids that it lists."""
    if not isinstance(selector, Mapping) or not selector:
        raise BadInputError(f"{field}: is not an object with tags")
    tags = {str(key): str(value) for key, value in cast("Mapping[str, object]", selector).items()}
    ids = [word for key in _IDS & tags.keys() for word in _words(tags.pop(key))]
    if ids and tags.keys() - {_OWNERS}:
        raise BadInputError(f"{field}: ids and tags in one selector cannot be converted to terms")
    if ids:
        tags.clear()
    return tags, [{"id": each} for each in ids]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _combinations(tags: Mapping[str, str]) -> Sequence[dict[str, str]]:
    values = [_words(value) or ("*",) for value in tags.values()]
    return [dict(zip(tags, each, strict=True)) for each in product(*values)]


def _checked(terms: list[dict[str, object]], field: str) -> list[dict[str, object]]:
    if len(terms) > MAX_TERMS:
        message = f"{field}: has {len(terms)} combinations of values; at most {MAX_TERMS} terms are allowed"
        raise BadInputError(message)
    return terms
