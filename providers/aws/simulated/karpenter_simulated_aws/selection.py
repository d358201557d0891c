"""Filters, pages and tags that all listings of EC2 share."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cache
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, cast

from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "RequestFilter",
    "Tag",
    "TagSpecification",
    "check_tags",
    "check_token",
    "filter_items",
    "list_page",
    "slice_page",
    "tag_list",
    "tags_for",
]

T = TypeVar("T")

# Limits of the API.
_FILTER_VALUES: Final = 200
_TAGS: Final = 50
_KEY_LENGTH: Final = 128
_VALUE_LENGTH: Final = 256
_TOKEN_LENGTH: Final = 64


class RequestFilter(TypedDict, total=False):
    """One filter of a Describe call; its values are alternatives."""

    Name: str
    Values: Sequence[str]


class Tag(TypedDict, total=False):
    """One tag."""

    Key: str
    Value: str


class TagSpecification(TypedDict, total=False):
    """Tags for what is made of one kind (`instance`, `volume`, `fleet`)."""

    ResourceType: str
    Tags: Sequence[Tag]


def list_page(
    request: Mapping[str, object],
    items: Iterable[T],
    *,
    values: Callable[[T, str], Sequence[str] | None],
    tags: Callable[[T], Mapping[str, str]],
    maximum: int,
    minimum: int = 1,
) -> tuple[Sequence[T], str | None]:
    """Return the page that a request asks for of what passes its filters, and the next one's token."""
    filters = cast("Sequence[RequestFilter]", request.get("Filters", ()))
    return slice_page(
        filter_items(items, filters, values=values, tags=tags),
        size=cast("int | None", request.get("MaxResults")),
        token=cast("str | None", request.get("NextToken")),
        maximum=maximum,
        minimum=minimum,
    )


def filter_items(
    items: Iterable[T],
    filters: Sequence[RequestFilter],
    *,
    values: Callable[[T, str], Sequence[str] | None],
    tags: Callable[[T], Mapping[str, str]],
) -> list[T]:
    """Return the items that pass every filter.

    `values` returns what an item has under a filter's name, and None when there is no such filter:
    then the call is refused. Filters on tags are answered here.
    """
    for one in filters:
        if len(one.get("Values", ())) > _FILTER_VALUES:
            raise AwsError(
                "FilterLimitExceeded",
                f"The maximum number of filter values specified on a single call is {_FILTER_VALUES}",
            )
    return [
        item
        for item in items
        if all(_passes(item, one, values=values, tags=tags) for one in filters)
    ]


def _passes(
    item: T,
    one: RequestFilter,
    *,
    values: Callable[[T, str], Sequence[str] | None],
    tags: Callable[[T], Mapping[str, str]],
) -> bool:
    name = one.get("Name", "")
    if name.startswith("tag:"):
        value = tags(item).get(name.removeprefix("tag:"))
        has: Sequence[str] | None = () if value is None else (value,)
    elif name == "tag-key":
        has = tuple(tags(item))
    else:
        has = values(item, name)
    if has is None:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return any(
        _pattern(wanted).fullmatch(value) for wanted in one.get("Values", ()) for value in has
    )


@cache
def _pattern(wanted: str) -> re.Pattern[str]:
    """`*` stands for any text, `?` for one character; a backslash takes that away."""
    parts: list[str] = []
    escaped = False
    for character in wanted:
        if escaped or character not in "*?\\":
            parts.append(re.escape(character))
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            parts.append(".*" if character == "*" else ".")
    return re.compile("".join(parts), re.DOTALL)


def slice_page(
    items: Sequence[T],
    *,
    size: int | None,
    token: str | None,
    maximum: int,
    minimum: int = 1,
    given: int | None = None,
) -> tuple[Sequence[T], str | None]:
    """Return one page, and the token of the next one; without a size, as much as `maximum`.

    At most as much as is `given`: a page may be smaller than what was asked for, even empty.
    """
    if size is not None and not minimum <= size <= maximum:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between"
            f" {minimum} and {maximum}.",
        )
    first = _position(token) if token else 0
    following = first + min(size or maximum, maximum if given is None else given)
    return items[first:following], _token(following) if following < len(items) else None


def _token(position: int) -> str:
    return urlsafe_b64encode(f"from:{position}".encode()).decode()


def _position(token: str) -> int:
    try:
        marker, _, position = urlsafe_b64decode(token.encode()).decode().partition(":")
        if marker == "from":
            return int(position)
    except ValueError:
        pass
    raise AwsError("InvalidNextToken", f"The token '{token}' is invalid")


def tag_list(tags: Mapping[str, str]) -> list[Tag]:
    """Write tags as the API does."""
    return [Tag(Key=key, Value=value) for key, value in sorted(tags.items())]


def tags_for(kind: str, *specifications: Sequence[TagSpecification]) -> dict[str, str]:
    """Return the tags for what is made of a kind; later specifications win."""
    return {
        tag.get("Key", ""): tag.get("Value", "")
        for group in specifications
        for specification in group
        if specification.get("ResourceType") == kind
        for tag in specification.get("Tags", ())
    }


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse what the API refuses: too many tags, too long ones, keys of AWS itself."""
    if sum(not key.startswith("aws:") for key in tags) > _TAGS:
        raise AwsError("TagLimitExceeded", f"The maximum number of Tags is {_TAGS}.")
    for key, value in tags.items():
        if not 0 < len(key) <= _KEY_LENGTH:
            raise AwsError(
                "InvalidParameterValue",
                f"Tag key has to be between 1 and {_KEY_LENGTH} characters: '{key}'",
            )
        if len(value) > _VALUE_LENGTH:
            raise AwsError(
                "InvalidParameterValue",
                f"Tag value exceeds the maximum length of {_VALUE_LENGTH} characters: '{value}'",
            )
        if key.lower().startswith("aws:"):
            raise AwsError(
                "InvalidParameterValue",
                f"Tag keys starting with 'aws:' are reserved for internal use: '{key}'",
            )


def check_token(token: str) -> None:
    """Refuse a token of idempotence that is too long."""
    if len(token) > _TOKEN_LENGTH:
        raise AwsError(
            "InvalidParameterValue",
            f"The client token has {len(token)} characters; the maximum is {_TOKEN_LENGTH}.",
        )
