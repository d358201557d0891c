"""Declared objects are fetched, kept through outages and read by providers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.errors import ApiError, CloudProviderError, PluginError
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.declared_reads import RETRY_SECONDS, DeclaredReads
from karpenter_core.provider.contract import ObjectRead
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

SECRET = ObjectRead(resource="secrets", namespace="kube-system", name="bootstrap")
DAEMONS = ObjectRead(resource="daemonsets", group="apps")
REFRESH_SECONDS = SECRET.period.total_seconds()


class Server:
    """Answers requests by path; what is not there is not found."""

    def __init__(self, **_):
        self.objects, self.outage, self.requests, self.queries = {}, None, [], []

    async def request(self, request):
        self.requests.append(request.path)
        self.queries.append(dict(request.query))
        if self.outage is not None:
            raise self.outage
        found = self.objects.get(request.path)
        status, body = (404, {"reason": "NotFound"}) if found is None else (200, found)
        return ApiResponse(status=status, headers={}, body=json.dumps(body).encode())


def reads_of(server, *declared):
    return DeclaredReads(server, declared, clock=LoopClock())


def test_named_object_and_collection_are_read():
    server = Server()
    server.objects["/api/v1/namespaces/kube-system/secrets/bootstrap"] = {"data": {"token": "x"}}
    server.objects["/apis/apps/v1/daemonsets"] = {"items": [{"kind": "DaemonSet"}]}

    async def story():
        reads = reads_of(server, SECRET, DAEMONS)
        await reads.fetch()
        assert reads.objects(SECRET) == ({"data": {"token": "x"}},)
        assert reads.objects(DAEMONS) == ({"kind": "DaemonSet"},)

    run_virtual(story())


def test_no_more_objects_are_read_than_the_limit():
    server = Server()

    async def story():
        await reads_of(server, DAEMONS, replace(DAEMONS, limit=2)).fetch()
        assert sorted(server.queries, key=len) == [{}, {"limit": "2"}]

    run_virtual(story())


def test_object_that_does_not_exist_is_no_object():
    async def story():
        reads = reads_of(Server(), SECRET)
        await reads.fetch()
        assert reads.objects(SECRET) == ()

    run_virtual(story())


def test_rotated_object_is_read_again_and_an_outage_keeps_the_last():
    server = Server()
    path = "/api/v1/namespaces/kube-system/secrets/bootstrap"
    server.objects[path] = {"token": 1}

    async def story():
        reads, clock = reads_of(server, SECRET), LoopClock()
        await reads.fetch()
        running = asyncio.create_task(reads.run())
        server.objects[path] = {"token": 2}
        await clock.sleep(REFRESH_SECONDS + 1)
        assert reads.objects(SECRET) == ({"token": 2},)
        server.outage = ApiError("connection refused", status=0)
        await clock.sleep(REFRESH_SECONDS)
        assert reads.objects(SECRET) == ({"token": 2},)
        server.outage, server.objects[path] = None, {"token": 3}
        await clock.sleep(RETRY_SECONDS)
        assert reads.objects(SECRET) == ({"token": 3},)
        running.cancel()

    run_virtual(story())


def test_each_read_has_a_period_of_its_own():
    server = Server()
    rare = replace(DAEMONS, period=timedelta(minutes=5))

    async def story():
        reads = reads_of(server, SECRET, rare)
        await reads.fetch()
        running = asyncio.create_task(reads.run())
        await LoopClock().sleep(3601)
        running.cancel()

    run_virtual(story())
    counts = Counter(path.rpartition("/")[2] for path in server.requests)
    assert counts == {"bootstrap": 61, "daemonsets": 13}


def test_read_before_the_first_answer_raises_the_reason():
    server = Server()
    server.outage = ApiError("secrets is forbidden", status=403)

    async def story():
        reads = reads_of(server, SECRET)
        with pytest.raises(CloudProviderError, match="not requested yet"):
            reads.objects(SECRET)
        await reads.fetch()
        with pytest.raises(CloudProviderError, match=r"secrets/bootstrap.*is forbidden"):
            reads.objects(SECRET)

    run_virtual(story())


def test_undeclared_read_is_refused():
    reads = DeclaredReads(Server(), [SECRET], clock=SystemClock())
    with pytest.raises(PluginError, match=r"daemonsets\.apps is not declared in ProviderInfo"):
        reads.objects(DAEMONS)


class ReadsDaemonSets(KwokProvider):
    """Declares a read, and keeps its context."""

    @hookimpl
    def karpenter_provider_info(self):
        return replace(KwokProvider.karpenter_provider_info(self), reads=(DAEMONS,))

    @hookimpl
    def karpenter_start(self, context):
        self.at_start = context.read_objects(DAEMONS)
        KwokProvider.karpenter_start(self, context)


def test_provider_reads_declared_objects_of_a_cluster_from_its_start(tmp_path):
    provider = ReadsDaemonSets()

    async def scenario(scene):
        agent = deployment("agent", 1)
        daemons = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "default"},
            "spec": {key: agent["spec"][key] for key in ("selector", "template")},
        }
        scene.cluster.apply([NODE_CLASS, node_pool(), daemons])
        scene.start("--disable-leader-election")
        await scene.settle(lambda: hasattr(provider, "at_start"), seconds=20)
        assert [each["metadata"]["name"] for each in provider.at_start] == ["agent"]

    run_controller(tmp_path, scenario, plugins={"kwok": provider})


def test_cluster_without_declared_reads_gets_no_request():
    server = Server()

    async def story():
        reads = reads_of(server)
        await reads.fetch()
        await reads.run()

    run_virtual(story())
    assert server.requests == []
