"""An informer reports how many objects it holds, and each outage once with its end."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from karpenter_core.errors import ApiError
from karpenter_core.kube.metrics import KubeMetrics
from tests.kube.scripted import HANG, bookmark, event, node, page
from tests.kube.test_informer import follow

LISTED = [event("ADDED", node("a", 1)), event("ADDED", node("b", 2)), bookmark(3, initial=True)]


def test_objects_of_a_listing_are_counted():
    registry = CollectorRegistry()

    async def script(follower):
        await follower.informer.synced.wait()
        objects = registry.get_sample_value("karpenter_core_informer_objects", {"kind": "Node"})
        assert objects == 2
        invalid = "karpenter_core_informer_invalid_objects"
        assert registry.get_sample_value(invalid, {"kind": "Node"}) == 0

    follow(script, watches=[[*LISTED, HANG]], metrics=KubeMetrics(registry))


def test_an_outage_is_logged_once_and_so_is_its_end():
    async def script(follower):
        await follower.informer.synced.wait()
        await asyncio.sleep(300)

    broken = ApiError("the watch broke", status=0)
    with capture_logs() as logs:
        follow(
            script,
            answers=[page([node("a", 1), node("b", 2)], 30)] * 9,
            watches=[[*LISTED, broken], [broken], [broken], [bookmark(40), HANG]],
        )
    reports = [
        (entry["log_level"], entry["event"]) for entry in logs if "connect" in entry["event"]
    ]
    assert reports == [("warning", "disconnected; retrying"), ("info", "connected again")]
    assert [entry["error"] for entry in logs if "error" in entry] == ["the watch broke"]


def test_an_outage_that_lasts_is_logged_again():
    """Such as a missing permission, without which the process serves nothing."""

    async def script(_follower):
        await asyncio.sleep(1500)

    forbidden = ApiError("pods is forbidden", status=403)
    with capture_logs() as logs:
        follow(script, answers=[forbidden] * 1000, watches=[[forbidden]] * 1000)
    errors = [entry["error"] for entry in logs if entry["event"] == "disconnected; retrying"]
    assert errors == ["pods is forbidden"] * 3


class Refusing:
    """A list that nothing can be added to."""

    times = 0

    def append(self, _item):
        self.times += 1
        raise ValueError("no")


def test_failed_watches_handlers_and_listings_are_counted():
    registry, refused = CollectorRegistry(), Refusing()
    answers = [page([node("a", 1), node("b", 2)], 30)] * 9

    def read(name, **labels):
        return registry.get_sample_value(name, {"kind": "Node", **labels}) or 0

    async def script(follower):
        follower.changes = refused
        await follower.informer.synced.wait()
        await asyncio.sleep(100)

    broken = ApiError("the watch broke", status=0)
    watches = [[*LISTED, broken], [broken], [bookmark(40), event("ADDED", node("c", 41)), HANG]]
    follow(script, answers=answers, watches=watches, metrics=KubeMetrics(registry))

    failures = "karpenter_core_informer_failures_total"
    assert read(failures, step="watch") == 2
    assert read(failures, step="handler") == refused.times > 0
    assert read("karpenter_core_informer_relists_total") == 1
    assert read("karpenter_core_informer_objects") == 3
