"""Turns selector terms into queries of EC2.

Terms are alternatives; all fields of one term must match. A term with tags becomes a query of its
own; all terms with an id share one query, as do those with a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.provider.kit.node_class.discovery import ANY_VALUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from types_boto3_ec2.type_defs import FilterTypeDef

    from karpenter_core.provider.kit.node_class.discovery import QueryTerm

__all__ = ["DescribeFilter", "DiscoveryQuery", "tag_filters"]


@dataclass(frozen=True, slots=True)
class DescribeFilter:
    """A filter of a `Describe…` call; any of its values does."""

    name: str
    values: tuple[str, ...]

    def to_api(self) -> FilterTypeDef:
        """Return it as EC2 takes it."""
        return {"Name": self.name, "Values": list(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryQuery:
    """One call, with as many pages as it takes."""

    filters: tuple[DescribeFilter, ...]
    owners: tuple[str, ...] = ()
    """Of images only: whose; any if empty."""
    terms: tuple[QueryTerm, ...]

    def filters_to_api(self) -> list[FilterTypeDef]:
        """Return the filters as EC2 takes them."""
        return [item.to_api() for item in self.filters]


def tag_filters(tags: Mapping[str, str]) -> tuple[DescribeFilter, ...]:
    """Return filters that all must hold, sorted by key; the value `*` asks for the key alone."""
    return tuple(
        DescribeFilter("tag-key", (key,))
        if value == ANY_VALUE
        else DescribeFilter(f"tag:{key}", (value,))
        for key, value in sorted(tags.items())
    )
