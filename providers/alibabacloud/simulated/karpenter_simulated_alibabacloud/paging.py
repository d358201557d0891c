"""Slices answers into pages, by token or by number."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar

from karpenter_core.provider.kit.simulated.faults import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["numbered_page", "tags_match", "token_page"]

_T = TypeVar("_T")
_MOST_TAG_FILTERS: Final = 20
_OF_THE_PAGE: Final = frozenset({"MaxResults", "NextToken", "PageNumber", "PageSize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _PageToken:
    """The content of a page token."""

    digest: str
    """Of the filters."""
    last: list[str]
    """The keys of the page before."""
    shown: int
    """Number of items shown, that page included."""


def token_page(
    items: Sequence[_T],
    parameters: RequestParameters,
    *,
    key: Callable[[_T], str],
    default: int,
    most: int,
    least: int = 1,
) -> tuple[Sequence[_T], str]:
    """Return the page that is asked for and the token of the next, empty after the last.

    Items are in a lasting order and have keys of their own; one that comes or goes between two pages
    moves no other out of them. A size out of bounds is brought within, as the API does it.
    """
    size = parameters.integer("MaxResults", default)
    size = default if size <= 0 else min(max(size, least), most)
    start = 0
    digest = _digest(parameters)
    if token := parameters.text("NextToken"):
        seen = _read_token(token, digest)
        # Items of the last page may be gone: the page begins after the last that still exists.
        position = {key(item): number for number, item in enumerate(items)}
        left = [position[each] for each in seen.last if each in position]
        start = left[-1] + 1 if left else max(0, seen.shown - len(seen.last))
    page = items[start : start + size]
    if start + size >= len(items):
        return page, ""
    following = _PageToken(
        digest=digest, last=[key(item) for item in page], shown=start + len(page)
    )
    return page, urlsafe_b64encode(json.dumps(asdict(following)).encode()).decode()


def _digest(parameters: RequestParameters) -> str:
    filters = {name: value for name, value in parameters.items() if name not in _OF_THE_PAGE}
    return sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:16]


def _read_token(token: str, digest: str) -> _PageToken:
    invalid = CloudError(
        "InvalidParameter.TokenInvalid", "The specified parameter NextToken is not valid."
    )
    try:
        seen = _PageToken(**json.loads(urlsafe_b64decode(token.encode())))
    except (TypeError, ValueError):
        raise invalid from None
    if seen.digest != digest:
        raise invalid
    return seen


def numbered_page(
    items: Sequence[_T],
    parameters: RequestParameters,
    *,
    default: int = 10,
    most: int = 50,
) -> tuple[Sequence[_T], Mapping[str, int]]:
    """Return the page that is asked for, and what the answer says of it."""
    number = max(1, parameters.integer("PageNumber", 1))
    size = parameters.integer("PageSize", default)
    size = default if size <= 0 else min(size, most)
    first = (number - 1) * size
    page_fields = {"PageNumber": number, "PageSize": size, "TotalCount": len(items)}
    return items[first : first + size], page_fields


def tags_match(tags: Mapping[str, str], parameters: RequestParameters, name: str = "Tag") -> bool:
    """Whether tags have every key that is asked for, with its value where one is given."""
    wanted = parameters.items_of(name, most=_MOST_TAG_FILTERS)
    return all(
        each.required("Key") in tags
        and ("Value" not in each or tags[each.text("Key")] == each.text("Value"))
        for each in wanted
    )
