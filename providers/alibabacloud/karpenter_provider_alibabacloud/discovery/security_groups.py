"""Security groups: which ones a NodeClass means."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.discovery.calls import calling
from karpenter_provider_alibabacloud.discovery.terms import (
    Found,
    Query,
    absent_of,
    described,
    tag_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api.nodeclass import SecurityGroupTerm
    from karpenter_provider_alibabacloud.sdk import Clients

__all__ = ["FoundSecurityGroup", "SecurityGroups", "security_group_queries"]

FIELD: Final = "spec.securityGroupSelectorTerms"
PAGE_SIZE: Final = 100
TTL: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSecurityGroup:
    """A security group as ECS describes it."""

    id: str
    name: str
    vpc_id: str
    kind: str
    """`normal` (a basic group) or `enterprise`; an instance can be in groups of one kind only."""


def security_group_queries(terms: Iterable[SecurityGroupTerm]) -> tuple[Query, ...]:
    """Return one query for each term with tags or a name, and one for all ids."""
    queries: list[Query] = []
    named: list[tuple[str, str]] = []
    for index, term in enumerate(terms):
        said = described((("id", term.id), ("name", term.name), ("tags", term.tags)))
        text = f"{FIELD}[{index}] {said}"
        if term.id:
            named.append((text, term.id))
            continue
        parameters: dict[str, object] = {
            "SecurityGroupName": term.name,
            "Tag": tag_parameters(term.tags),
        }
        given = tuple(sorted((name, value) for name, value in parameters.items() if value))
        if given:
            queries.append(Query(given, ((text, ""),)))
    if named:
        ids = json.dumps(sorted({wanted for _, wanted in named}))
        queries.append(Query((("SecurityGroupIds", ids),), tuple(named)))
    return tuple(queries)


@final
class SecurityGroups:
    """Reads security groups; callable from any thread."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients: Final = clients
        self._cache: Final[TtlCache[tuple[Query, ...], Found[FoundSecurityGroup]]] = TtlCache(
            clock, TTL
        )

    def find(self, terms: Sequence[SecurityGroupTerm]) -> Found[FoundSecurityGroup]:
        """Return the groups that the terms mean, by id.

        That there are none is not kept: it is looked at again sooner than what was found.

        Raises:
            CloudProviderError: ECS refused or did not answer (`discovery.calls`).
        """
        queries = security_group_queries(terms)
        found = self._cache.get(queries)
        if found is None:
            answers = [self._describe(query) for query in queries]
            unique = {group.id: group for answer in answers for group in answer}
            found = Found(
                items=tuple(unique[key] for key in sorted(unique)),
                absent=absent_of(queries, answers),
            )
            if found.items:
                self._cache.put(queries, found)
        return found

    def _describe(self, query: Query) -> list[FoundSecurityGroup]:
        with calling():
            pages = self._clients.ecs.pages(
                "DescribeSecurityGroups",
                {"RegionId": self._clients.region, "MaxResults": PAGE_SIZE, **query.to_api()},
                items="SecurityGroups.SecurityGroup",
            )
            return [
                FoundSecurityGroup(
                    id=item.get("SecurityGroupId", ""),
                    name=item.get("SecurityGroupName", ""),
                    vpc_id=item.get("VpcId", ""),
                    kind=item.get("SecurityGroupType", ""),
                )
                for item in pages
            ]
