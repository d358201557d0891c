"""Finds the security groups that a NodeClass selects."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryReader,
    DiscoveryResult,
    QueryTerm,
    tag_text,
    unique_by_id,
)
from karpenter_provider_aws.api.node_class_status import SecurityGroup
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.discovery.queries import DescribeFilter, DiscoveryQuery, tag_filters
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.nodeclass import SecurityGroupTerm
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["SecurityGroupReader", "security_group_queries"]

FIELD: Final = "spec.securityGroupSelectorTerms"
PAGE_SIZE: Final = 500
TTL: Final = timedelta(minutes=1)


def security_group_queries(terms: Iterable[SecurityGroupTerm]) -> tuple[DiscoveryQuery, ...]:
    """Return one query for each term with tags, one for all ids, and one for all names."""
    queries: list[DiscoveryQuery] = []
    ids: list[QueryTerm] = []
    names: list[QueryTerm] = []
    for index, term in enumerate(terms):
        where = f"{FIELD}[{index}]"
        if term.id:
            ids.append(QueryTerm(f'{where}.id "{term.id}"', term.id))
        elif term.name:
            names.append(QueryTerm(f'{where}.name "{term.name}"', term.name))
        elif term.tags:
            part = QueryTerm(f"{where}.tags {tag_text(term.tags)}")
            queries.append(DiscoveryQuery(filters=tag_filters(term.tags), terms=(part,)))
    for filter_name, parts in (("group-id", ids), ("group-name", names)):
        if parts:
            patterns = tuple(dict.fromkeys(part.pattern for part in parts))
            queries.append(
                DiscoveryQuery(filters=(DescribeFilter(filter_name, patterns),), terms=tuple(parts))
            )
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
            keys=lambda group: (group.id, group.name),
            order=unique_by_id,
        )

    def find(self, terms: Sequence[SecurityGroupTerm]) -> DiscoveryResult[SecurityGroup]:
        """Return the groups that the terms mean, by id.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        return self._reader.find(security_group_queries(terms))

    def _describe(self, query: DiscoveryQuery) -> list[SecurityGroup]:
        with core_errors_of("ec2:DescribeSecurityGroups"):
            pages = self._clients.ec2.get_paginator("describe_security_groups").paginate(
                Filters=query.filters_to_api(), PaginationConfig={"PageSize": PAGE_SIZE}
            )
            return [
                SecurityGroup(id=item.get("GroupId", ""), name=item.get("GroupName", ""))
                for page in ending_pages(pages)
                for item in page["SecurityGroups"]
            ]
