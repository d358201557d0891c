"""A cluster is listed whole, however long it takes."""

from __future__ import annotations

import json

import pytest

from karpenter_core.cli.cluster_listing import read_manifests
from karpenter_core.errors import GoneError
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.operator.clock import SystemClock

FIRST = {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]}
LAST = {"metadata": {}, "items": [{"metadata": {"name": "b"}}]}
EMPTY = {"metadata": {}, "items": None}
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


class Server:
    """Answers each list request with the next of its pages."""

    def __init__(self, *pages):
        self.pages = list(pages)

    async def request(self, _request):
        page = self.pages.pop(0)
        return ApiResponse(status=page.get("code", 200), body=json.dumps(page).encode())


async def names(*pages):
    server = Server(*pages)
    listed = await read_manifests(ClusterApis(KubeApi(server, clock=SystemClock())), DEPLOYMENTS)
    assert server.pages == []
    return [each["metadata"]["name"] for each in listed]


async def test_the_objects_of_all_pages_are_listed():
    assert await names(FIRST, LAST) == ["a", "b"]


async def test_a_page_without_items_is_empty():
    assert await names(EMPTY) == []


async def test_a_listing_whose_page_expired_begins_anew_and_repeats_nothing():
    assert await names(FIRST, EXPIRED, FIRST, LAST) == ["a", "b"]


async def test_a_listing_that_expires_again_is_reported():
    with pytest.raises(GoneError, match="too old"):
        await names(FIRST, EXPIRED, FIRST, EXPIRED)
