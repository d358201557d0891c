"""Security groups: which ones a NodeClass means."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.api.found import SecurityGroup
from karpenter_provider_aws.discovery.calls import calling
from karpenter_provider_aws.discovery.queries import (
    Filter,
    Found,
    Part,
    Query,
    absent_parts,
    tag_filters,
    tag_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.nodeclass import SecurityGroupTerm
    from karpenter_provider_aws.sdk import Clients

__all__ = ["SecurityGroups", "security_group_queries"]

FIELD: Final = "spec.securityGroupSelectorTerms"
PAGE_SIZE: Final = 500
TTL: Final = timedelta(minutes=1)


def security_group_queries(terms: Iterable[SecurityGroupTerm]) -> tuple[Query, ...]:
    """Return one query for each term with tags, one for all ids, and one for all names."""
    queries: list[Query] = []
    ids: list[Part] = []
    names: list[Part] = []
    for index, term in enumerate(terms):
        where = f"{FIELD}[{index}]"
        if term.id:
            ids.append(Part(f'{where}.id "{term.id}"', term.id))
        elif term.name:
            names.append(Part(f'{where}.name "{term.name}"', term.name))
        elif term.tags:
            part = Part(f"{where}.tags {tag_text(term.tags)}")
            queries.append(Query(filters=tag_filters(term.tags), parts=(part,)))
    for filter_name, parts in (("group-id", ids), ("group-name", names)):
        if parts:
            wanted = tuple(dict.fromkeys(part.wanted for part in parts))
            queries.append(Query(filters=(Filter(filter_name, wanted),), parts=tuple(parts)))
    return tuple(queries)


@final
class SecurityGroups:
    """Reads security groups; callable from any thread."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients: Final = clients
        self._cache: Final[TtlCache[tuple[Query, ...], Found[SecurityGroup]]] = TtlCache(clock, TTL)

    def find(self, terms: Sequence[SecurityGroupTerm]) -> Found[SecurityGroup]:
        """Return the groups that the terms mean, by id.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.calls`).
        """
        queries = security_group_queries(terms)
        found = self._cache.get(queries)
        if found is None:
            answers = [self._describe(query) for query in queries]
            unique = {group.id: group for answer in answers for group in answer}
            found = Found(
                items=tuple(unique[key] for key in sorted(unique)),
                absent=absent_parts(queries, answers, keys=lambda group: (group.id, group.name)),
            )
            self._cache.put(queries, found)
        return found

    def _describe(self, query: Query) -> list[SecurityGroup]:
        with calling("ec2:DescribeSecurityGroups"):
            pages = self._clients.ec2.get_paginator("describe_security_groups").paginate(
                Filters=query.filters_to_api(), PaginationConfig={"PageSize": PAGE_SIZE}
            )
            return [
                SecurityGroup(id=item.get("GroupId", ""), name=item.get("GroupName", ""))
                for page in pages
                for item in page["SecurityGroups"]
            ]
