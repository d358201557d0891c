"""Finds the security groups that a NodeClass selects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryReader,
    DiscoveryResult,
    QueryTerm,
    unique_by_id,
)
from karpenter_provider_alibabacloud.api_answers import text_of
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.discovery.queries import (
    DiscoveryQuery,
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
    named: list[QueryTerm] = []
    for index, term in enumerate(terms):
        term_text = described((("id", term.id), ("name", term.name), ("tags", term.tags)))
        text = f"{FIELD}[{index}] {term_text}"
        if term.id:
            named.append(QueryTerm(text, term.id))
            continue
        parameters: dict[str, object] = {
            "SecurityGroupName": term.name,
            "Tag": tag_parameters(term.tags),
        }
        given = tuple(sorted((name, value) for name, value in parameters.items() if value))
        if given:
            queries.append(DiscoveryQuery(given, (QueryTerm(text),)))
    if named:
        ids = json.dumps(sorted({each.pattern for each in named}))
        queries.append(DiscoveryQuery((("SecurityGroupIds", ids),), tuple(named)))
    return tuple(queries)


@final
class SecurityGroupReader:
    """Reads security groups; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        self._reader: Final = DiscoveryReader(
            clock,
            TTL,
            describe=self._describe,
            keys=lambda group: (group.id,),
            order=unique_by_id,
            caches_nothing=False,
        )

    def find(self, terms: Sequence[SecurityGroupTerm]) -> DiscoveryResult[DescribedSecurityGroup]:
        """Return the groups that the terms mean, by id.

        That there are none is not kept: it is looked at again sooner than what was found.

        Raises:
            CloudProviderError: ECS refused or did not answer (`discovery.call_errors`).
        """
        return self._reader.find(security_group_queries(terms))

    def _describe(self, query: DiscoveryQuery) -> list[DescribedSecurityGroup]:
        with core_errors_of():
            pages = self._clients.ecs.pages(
                "DescribeSecurityGroups",
                {"RegionId": self._clients.region, "MaxResults": PAGE_SIZE, **query.to_api()},
                items="SecurityGroups.SecurityGroup",
            )
            return [
                DescribedSecurityGroup(
                    id=text_of(item, "SecurityGroupId"),
                    name=text_of(item, "SecurityGroupName"),
                    vpc_id=text_of(item, "VpcId"),
                    kind=text_of(item, "SecurityGroupType"),
                )
                for item in pages
            ]
