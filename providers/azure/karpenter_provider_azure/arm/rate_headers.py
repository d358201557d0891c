"""Reads how many more requests Azure permits, from the headers of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["remaining_requests"]

_PREFIX: Final = "x-ms-ratelimit-remaining-"
_RESOURCE: Final = f"{_PREFIX}resource"
_TENANT_QUOTA: Final = "x-ms-user-quota-remaining"
"""Of Resource Graph."""


def remaining_requests(headers: Mapping[str, str]) -> dict[str, int]:
    """Return the number of remaining requests by limit, such as `subscription-writes`.

    `headers` are by name in lower case. Limits of a resource provider have its name:
    `Microsoft.Compute/PutVM3Min`. What cannot be read is left out.
    """
    found: dict[str, int] = {}
    for name, value in headers.items():
        if name == _RESOURCE:
            for entry in value.split(","):
                limit, _, count = entry.strip().rpartition(";")
                _put(found, limit, count)
        elif name == _TENANT_QUOTA:
            _put(found, "graph", value)
        elif name.startswith(_PREFIX):
            _put(found, name.removeprefix(_PREFIX), value)
    return found


def _put(found: dict[str, int], limit: str, count: str) -> None:
    text = count.strip()
    if limit and text.isdecimal():
        found[limit] = int(text)
