"""Keeps resources by id without regard to case; checks ETags; pages lists."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final
from urllib.parse import quote, urlencode

from karpenter_simulated_azure.arm_api import ArmFault, ArmReply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_simulated_azure.arm_api import ArmCall

__all__ = ["ResourceTable", "check_etag", "not_found", "page", "page_of", "skip_token"]

Item = TypeVar("Item")

_NOT_FOUND: Final = 404
_PRECONDITION_FAILED: Final = 412


@final
class ResourceTable(Generic[Item]):
    """Resources by id, in the order in which they were added."""

    def __init__(self) -> None:
        self._items: Final[dict[str, Item]] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, resource_id: str) -> bool:
        return resource_id.lower() in self._items

    def get(self, resource_id: str) -> Item | None:
        """Return a resource; None if there is none with this id."""
        return self._items.get(resource_id.lower())

    def put(self, resource_id: str, item: Item) -> None:
        """Add a resource, or replace it at its place."""
        self._items[resource_id.lower()] = item

    def remove(self, resource_id: str) -> Item | None:
        """Remove a resource and return it; None if there is none with this id."""
        return self._items.pop(resource_id.lower(), None)

    def below(self, prefix: str) -> Sequence[Item]:
        """Return the resources whose ids are in a group or a subscription."""
        start = f"{prefix.lower().rstrip('/')}/"
        return [each for key, each in self._items.items() if key.startswith(start)]

    def clear(self) -> None:
        """Remove all resources."""
        self._items.clear()


def not_found(call: ArmCall) -> ArmFault:
    """Return the refusal of a call whose resource does not exist."""
    kind = call.resource_type.partition("/")[2]
    namespace = call.resource_type.partition("/")[0]
    name = f"{namespace}/{'/'.join(_interleaved(kind.split('/'), call.names))}"
    return ArmFault(
        "ResourceNotFound",
        f"The Resource '{name}' under resource group '{call.resource_group}' was not found. For more"
        " details please go to https://aka.ms/ARMResourceNotFoundFix",
        status=_NOT_FOUND,
    )


def _interleaved(kinds: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for kind, name in zip(kinds, names, strict=False):
        yield kind
        yield name


def check_etag(call: ArmCall, etag: str | None) -> None:
    """Check the conditions of a call that writes; `etag` is None if the resource does not exist.

    Raises:
        ArmFault: 412 `PreconditionFailed`.
    """
    wanted, unwanted = call.headers.get("if-match"), call.headers.get("if-none-match")
    if wanted is not None and (etag is None or wanted not in {"*", etag}):
        raise ArmFault(
            "PreconditionFailed",
            f"The condition 'If-Match' of the request is not met by {call.path}.",
            status=_PRECONDITION_FAILED,
        )
    if unwanted is not None and etag is not None and unwanted in {"*", etag}:
        raise ArmFault(
            "PreconditionFailed",
            f"The condition 'If-None-Match' of the request is not met by {call.path}.",
            status=_PRECONDITION_FAILED,
        )


def page(call: ArmCall, items: Sequence[JsonMapping], *, size: int) -> ArmReply:
    """Return the page that is asked for, with an absolute `nextLink` unless it is the last.

    Raises:
        ArmFault: the `$skiptoken` was not given out by this cloud.
    """
    token = skip_token(call)
    try:
        start = int(token or "0")
    except ValueError:
        raise ArmFault("InvalidParameter", f"The $skiptoken '{token}' is not valid.") from None
    following = str(start + size) if start + size < len(items) else ""
    return page_of(call, items[start : start + size], following)


def page_of(call: ArmCall, items: Sequence[JsonMapping], following: str) -> ArmReply:
    """Return a page whose `nextLink` has a token for the following one; none if that is empty."""
    body: dict[str, object] = {"value": list(items)}
    if following:
        token = urlsafe_b64encode(following.encode()).decode()
        kept = {key: value for key, value in call.query.items() if key != "$skiptoken"}
        query = urlencode({**kept, "$skiptoken": token})
        body["nextLink"] = f"{call.base_url}{quote(call.path)}?{query}"
    return ArmReply(body=body)


def skip_token(call: ArmCall) -> str:
    """Return the token that a `nextLink` was given; empty for the first page.

    Raises:
        ArmFault: it is none of this cloud.
    """
    token = call.query.get("$skiptoken", "")
    try:
        return b64decode(token, altchars=b"-_", validate=True).decode()
    except (Base64Error, ValueError):
        raise ArmFault("InvalidParameter", f"The $skiptoken '{token}' is not valid.") from None
