"""Answers Azure Resource Graph queries, some seconds behind the resources.

It interprets pipelines of `where` alone: equality of columns, and keys of tags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.permissions import Permissions
    from karpenter_simulated_azure.world import AzureWorld

    Condition = Callable[[JsonMapping], bool]

__all__ = ["GRAPH_TYPE", "GraphResource", "ResourceGraph"]

GRAPH_TYPE: Final = "Microsoft.ResourceGraph/resources"

_LAG_SECONDS: Final = 2.0
_PAGE: Final = 1000
_EQUAL: Final = re.compile(
    r"(type|resourceGroup|location|name)\s*(==|=~)\s*(['\"])(.*?)\3", re.IGNORECASE
)
_HAS_TAG: Final = re.compile(r"tags\s+has_cs\s+(['\"])(.*?)\1", re.IGNORECASE)
_TAG_VALUE: Final = re.compile(r"tags\[(['\"])(.*?)\1\]\s*(==|=~)\s*(['\"])(.*?)\4", re.IGNORECASE)
_NOT: Final = re.compile(r"not\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_TABLE: Final = re.compile(r"resources", re.IGNORECASE)
_WHERE: Final = re.compile(r"where\s+(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphResource:
    """A resource, with the times that its visibility follows from."""

    body: JsonMapping
    """As the API of its type answers: `id`, `type`, `name`, `properties`, `tags`."""
    created_at: datetime
    gone_at: datetime | None = None

    def seen(self, at: datetime) -> bool:
        """Return whether it existed at a time."""
        return self.created_at <= at and (self.gone_at is None or at < self.gone_at)


@final
class ResourceGraph:
    """Azure Resource Graph: its answer shows the resources that existed `lag_seconds` ago.

    Only their existence lags; the properties of a resource are those of now. Resources that the caller
    may not read are left out: no query is forbidden.
    """

    def __init__(
        self, world: AzureWorld, clock: Callable[[], datetime], permissions: Permissions
    ) -> None:
        self._world: Final = world
        self._clock: Final = clock
        self._permissions: Final = permissions
        self._sources: Final[list[Callable[[], Iterable[GraphResource]]]] = []
        self.lag_seconds = _LAG_SECONDS
        self.page_size = _PAGE
        self.spell_id: Callable[[str], str] = str
        """Writes ids; the casing of real ones differs from that of other APIs."""

    def clear(self) -> None:
        """Restore the defaults; the sources stay."""
        self.lag_seconds = _LAG_SECONDS
        self.page_size = _PAGE
        self.spell_id = str

    def add_source(self, source: Callable[[], Iterable[GraphResource]]) -> None:
        """Add resources: a function that returns those that exist, and those that are just gone."""
        self._sources.append(source)

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the route."""
        routes.add(
            "POST",
            GRAPH_TYPE,
            self._answer,
            api_versions=ApiVersions(earliest="2021-03-01", latest="2024-04-01"),
            action="resources:query",
        )

    def _answer(self, call: ArmCall) -> ArmReply:
        subscriptions = call.body.get("subscriptions") or [self._world.subscription_id]
        query = call.body.get("query")
        if not isinstance(query, str):
            raise _invalid("The query is missing.")
        here = self._world.subscription_id in {str(each).lower() for each in subscriptions}
        rows = self.query(query) if here else []
        return ArmReply(body=self._page(call, rows))

    def query(self, text: str) -> list[JsonObject]:
        """Return all rows of a query.

        Raises:
            ArmFault: the query has something that is not interpreted.
        """
        conditions = _read_query(text)
        at = self._clock() - timedelta(seconds=self.lag_seconds)
        return [
            row
            for source in self._sources
            for each in source()
            if each.seen(at) and self._is_readable(each.body)
            for row in (self._row(each.body),)
            if all(holds(row) for holds in conditions)
        ]

    def _is_readable(self, body: JsonMapping) -> bool:
        return self._permissions.allow(f"{body['type']}/read", body["id"])

    def _page(self, call: ArmCall, rows: list[JsonObject]) -> JsonObject:
        options = cast("JsonObject", call.body.get("options") or {})
        token = options.get("$skipToken")
        try:
            start = int(token) if token else 0
            size = min(int(options.get("$top") or _PAGE), self.page_size)
        except (TypeError, ValueError):
            raise _invalid(f"The $skipToken '{token}' or the $top is not valid.") from None
        shown = rows[start : start + size]
        body: JsonObject = {
            "totalRecords": len(rows),
            "count": len(shown),
            "data": shown,
            "facets": [],
            "resultTruncated": "false",
        }
        if start + size < len(rows):
            body["$skipToken"] = str(start + size)
        return body

    def _row(self, body: JsonMapping) -> JsonObject:
        group = body["id"].split("/")[4]
        return {
            **body,
            "id": self.spell_id(body["id"]),
            "type": body["type"].lower(),
            "tenantId": self._world.tenant_id,
            "subscriptionId": self._world.subscription_id,
            "resourceGroup": group.lower(),
        }


def _read_query(query: str) -> list[Condition]:
    """Return the conditions of a pipeline of `where` on the table of resources.

    Raises:
        ArmFault: the pipeline has something else.
    """
    table, *steps = [each.strip() for each in query.split("|")]
    if _TABLE.fullmatch(table) is None:
        raise _invalid(f"Table {table} is unknown.")
    found: list[Condition] = []
    for step in steps:
        clause = _WHERE.fullmatch(step)
        if clause is None:
            raise _invalid(f"The operator of '{step}' is not interpreted.")
        found.append(_condition(clause[1].strip()))
    return found


def _condition(text: str) -> Condition:
    if found := _NOT.fullmatch(text):
        inner = _condition(found[1].strip())
        return lambda row: not inner(row)
    if found := _EQUAL.fullmatch(text):
        column = {"resourcegroup": "resourceGroup"}.get(found[1].lower(), found[1].lower())
        return _equality(found[2], found[4], lambda row: row.get(column))
    if found := _HAS_TAG.fullmatch(text):
        key = found[2]
        return lambda row: key in _tags(row)
    if found := _TAG_VALUE.fullmatch(text):
        key = found[2]
        return _equality(found[3], found[5], lambda row: _tags(row).get(key))
    raise _invalid(f"The condition '{text}' is not interpreted.")


def _equality(operator: str, wanted: str, read: Callable[[JsonMapping], object]) -> Condition:
    if operator == "=~":
        return lambda row: str(read(row) or "").lower() == wanted.lower()
    return lambda row: read(row) == wanted


def _tags(row: JsonMapping) -> JsonMapping:
    return cast("JsonMapping", row.get("tags") or {})


def _invalid(message: str) -> ArmFault:
    return ArmFault(
        "BadRequest",
        "Please provide below info when asking for support: timestamp, correlationId.",
        details=[{"code": "InvalidQuery", "message": message}],
    )
