"""Tests queries of Resource Graph."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.arm import graph

from .values import SUBSCRIPTION


def test_rows_of_all_pages_are_returned(client, server):
    """# case 120"""
    server.reply(200, {"data": [{"name": "a"}], "$skipToken": "two", "resultTruncated": "true"})
    server.reply(200, {"data": [{"name": "b"}], "resultTruncated": "false"})

    rows = graph.query(client, "Resources | take 2")

    assert [row["name"] for row in rows] == ["a", "b"]
    first, second = (request.body for request in server.received)
    assert first == {
        "subscriptions": [SUBSCRIPTION],
        "query": "Resources | take 2",
        "options": {"resultFormat": "objectArray"},
    }
    assert second["options"]["$skipToken"] == "two"


@pytest.mark.parametrize(
    "page",
    [
        {},
        {"data": None},
        {"data": [1]},
        {"data": [], "resultTruncated": "true"},
        {"data": [], "$skipToken": "again"},
    ],
)
def test_rows_that_are_not_all_there_are_refused(client, server, page):
    server.reply(200, page)
    with pytest.raises(CloudProviderError, match="resources:query"):
        graph.query(client, "Resources")
