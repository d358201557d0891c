"""Turns selector terms into queries of Alibaba Cloud.

Terms are alternatives; all fields of one term must match. Each term is a query of its own, but
those with an id may share one where the API takes several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from karpenter_core.provider.kit.node_class.discovery import ANY_VALUE, tag_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.provider.kit.node_class.discovery import QueryTerm

__all__ = ["DiscoveryQuery", "described", "tag_parameters"]


@dataclass(frozen=True, slots=True)
class DiscoveryQuery:
    """The query of one or more terms, as parameters of a call, sorted by name."""

    parameters: tuple[tuple[str, object], ...]
    """Hashable: lists are tuples, tags are pairs."""
    terms: tuple[QueryTerm, ...]

    def to_api(self) -> dict[str, object]:
        """Return the parameters as a service takes them."""
        given = dict(self.parameters)
        tags = cast("tuple[tuple[tuple[str, str], ...], ...]", given.pop("Tag", ()))
        if tags:
            given["Tag"] = [dict(tag) for tag in tags]
        return given


def tag_parameters(tags: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return tags that must all be there, sorted by key; the value `*` asks for the key alone."""
    return tuple(
        (("Key", key),) if value == ANY_VALUE else (("Key", key), ("Value", value))
        for key, value in sorted(tags.items())
    )


def described(fields: Sequence[tuple[str, str | Mapping[str, str]]]) -> str:
    """Return what a term says, as a condition shows it; fields that it does not have are left out."""
    return ", ".join(
        f'{name} "{value}"' if isinstance(value, str) else f"{name} {tag_text(value)}"
        for name, value in fields
        if value
    )
