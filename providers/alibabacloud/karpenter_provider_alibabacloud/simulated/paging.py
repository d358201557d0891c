"""Pages of answers: by token, or by number."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar, cast

from karpenter_core.provider.simulated.faults import CloudError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_provider_alibabacloud.simulated.parameters import Parameters

__all__ = ["numbered_page", "tags_match", "token_page"]

_T = TypeVar("_T")
_MOST_TAG_FILTERS: Final = 20
_OF_THE_PAGE: Final = frozenset({"MaxResults", "NextToken", "PageNumber", "PageSize"})


def token_page(
    items: Sequence[_T],
    parameters: Parameters,
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
        position = {key(item): number for number, item in enumerate(items)}
        # The last one shown may be gone: then the page begins where that one was.
        start = position.get(seen["last"], int(seen["shown"]) - 2) + 1
    page = items[start : start + size]
    if not page or start + size >= len(items):
        return page, ""
    following = {"digest": digest, "last": key(page[-1]), "shown": str(start + len(page))}
    return page, urlsafe_b64encode(json.dumps(following).encode()).decode()


def _digest(parameters: Parameters) -> str:
    filters = {name: value for name, value in parameters.items() if name not in _OF_THE_PAGE}
    return sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:16]


def _read_token(token: str, digest: str) -> Mapping[str, str]:
    try:
        seen = cast("dict[str, str]", json.loads(urlsafe_b64decode(token.encode())))
    except ValueError:
        seen = dict[str, str]()
    if seen.get("digest") != digest:
        raise CloudError(
            "InvalidParameter.TokenInvalid", "The specified parameter NextToken is not valid."
        )
    return seen


def numbered_page(
    items: Sequence[_T],
    parameters: Parameters,
    *,
    default: int = 10,
    most: int = 50,
) -> tuple[Sequence[_T], Mapping[str, int]]:
    """Return the page that is asked for, and what the answer says of it."""
    number = max(1, parameters.integer("PageNumber", 1))
    size = parameters.integer("PageSize", default)
    size = default if size <= 0 else min(size, most)
    first = (number - 1) * size
    told = {"PageNumber": number, "PageSize": size, "TotalCount": len(items)}
    return items[first : first + size], told


def tags_match(tags: Mapping[str, str], parameters: Parameters, name: str = "Tag") -> bool:
    """Whether tags have every key that is asked for, with its value where one is given."""
    wanted = parameters.items_of(name, most=_MOST_TAG_FILTERS)
    return all(
        each.required("Key") in tags
        and ("Value" not in each or tags[each.text("Key")] == each.text("Value"))
        for each in wanted
    )
