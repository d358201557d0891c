"""Finds the security groups that a NodeClass selects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.discovery.queries import (
    DiscoveryQuery,
    DiscoveryResult,
    absent_terms,
    described,
    tag_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api.nodeclass import SecurityGroupTerm
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["DescribedSecurityGroup", "SecurityGroupReader", "security_group_queries"]

FIELD: Final = "spec.securityGroupSelectorTerms"
PAGE_SIZE: Final = 100
TTL: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSecurityGroup:
    """A security group as ECS describes it."""

    id: str
    name: str
    vpc_id: str
    kind: str
    """`normal` (a basic group) or `enterprise`; an instance can be in groups of one kind only."""


def security_group_queries(terms: Iterable[SecurityGroupTerm]) -> tuple[DiscoveryQuery, ...]:
    """Return one query for each term with tags or a name, and one for all ids."""
    queries: list[DiscoveryQuery] = []
    named: list[tuple[str, str]] = []
    for index, term in enumerate(terms):
        term_text = described((("id", term.id), ("name", term.name), ("tags", term.tags)))
        text = f"{FIELD}[{index}] {term_text}"
        if term.id:
            named.append((text, term.id))
            continue
        parameters: dict[str, object] = {
            "SecurityGroupName": term.name,
            "Tag": tag_parameters(term.tags),
        }
        given = tuple(sorted((name, value) for name, value in parameters.items() if value))
        if given:
            queries.append(DiscoveryQuery(given, ((text, ""),)))
    if named:
        ids = json.dumps(sorted({group_id for _, group_id in named}))
        queries.append(DiscoveryQuery((("SecurityGroupIds", ids),), tuple(named)))
    return tuple(queries)


@final
class SecurityGroupReader:
    """Reads security groups; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        self._cache: Final[
            TtlCache[tuple[DiscoveryQuery, ...], DiscoveryResult[DescribedSecurityGroup]]
        ] = TtlCache(clock, TTL)

    def find(self, terms: Sequence[SecurityGroupTerm]) -> DiscoveryResult[DescribedSecurityGroup]:
        """Return the groups that the terms mean, by id.

        That there are none is not kept: it is looked at again sooner than what was found.

        Raises:
            CloudProviderError: ECS refused or did not answer (`discovery.call_errors`).
        """
        queries = security_group_queries(terms)
        result = self._cache.get(queries)
        if result is None:
            answers = [self._describe(query) for query in queries]
            unique = {group.id: group for answer in answers for group in answer}
            result = DiscoveryResult(
                items=tuple(unique[key] for key in sorted(unique)),
                absent=absent_terms(queries, answers),
            )
            if result.items:
                self._cache.put(queries, result)
        return result

    def _describe(self, query: DiscoveryQuery) -> list[DescribedSecurityGroup]:
        with core_errors_of():
            pages = self._clients.ecs.pages(
                "DescribeSecurityGroups",
                {"RegionId": self._clients.region, "MaxResults": PAGE_SIZE, **query.to_api()},
                items="SecurityGroups.SecurityGroup",
            )
            return [
                DescribedSecurityGroup(
                    id=item.get("SecurityGroupId", ""),
                    name=item.get("SecurityGroupName", ""),
                    vpc_id=item.get("VpcId", ""),
                    kind=item.get("SecurityGroupType", ""),
                )
                for item in pages
            ]
