"""The embedded server's entry applies faults, stops, restarts and counts."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.client import connect
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.transport import ApiRequest
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.kubelets import KubeletTimes
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from tests.sim.objects import node, pod

LIST_PODS = ApiRequest(method="GET", path=PODS.path())
MAKE_NODE = ApiRequest(method="POST", path=NODES.path(), body=json.dumps(node("one")).encode())
WATCH_NODES = ApiRequest(method="GET", path=NODES.path(), query={"watch": "true"})
NEVER = KubeletTimes(node_boot_seconds=1e6)


async def statuses(transport, request, count):
    return [(await transport.request(request)).status for _ in range(count)]


def test_a_fault_refuses_as_often_as_ordered():
    """The second and third list fail, with a hint when to come back; nodes are not touched."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            fault = RequestFault(
                matches=matching("GET", "/pods"),
                after=1,
                times=2,
                status=429,
                retry_after_seconds=3,
            )
            cluster.frontend.faults.add(fault)
            transport = cluster.transport()
            codes = await statuses(transport, LIST_PODS, 2)
            refused = await transport.request(LIST_PODS)
            codes += await statuses(transport, LIST_PODS, 1)
            codes += await statuses(transport, ApiRequest(method="GET", path=NODES.path()), 1)
            return codes, refused

    codes, refused = run_virtual(scenario())

    assert codes == [200, 429, 200, 200]
    assert refused.headers["retry-after"] == "3"
    assert json.loads(refused.body)["reason"] == "TooManyRequests"


def test_latency_takes_time_of_the_loop():
    """Ten simulated seconds."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.frontend.faults.add(RequestFault(matches=matching(), latency_seconds=10))
            before = cluster.clock.monotonic()
            await cluster.transport().request(LIST_PODS)
            return cluster.clock.monotonic() - before

    assert run_virtual(scenario()) == 10


def test_a_late_reply_is_that_of_work_done_at_once():
    """The work is seen before its answer."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster:
            cluster.frontend.faults.add(
                RequestFault(matches=matching("POST"), reply_latency_seconds=10)
            )
            answer = asyncio.create_task(cluster.transport().request(MAKE_NODE))
            await asyncio.sleep(1)
            seen = len(cluster.list(NODES)), answer.done()
            return seen, (await answer).status, cluster.clock.monotonic()

    assert run_virtual(scenario()) == ((1, False), 201, 10)


@pytest.mark.parametrize(("field", "done"), [("drop_reply", True), ("drop_request", False)])
def test_a_lost_reply_leaves_the_work_done_and_a_lost_request_does_not(field, done):
    """The client cannot distinguish the two."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster:
            cluster.frontend.faults.add(RequestFault(matches=matching("POST"), **{field: True}))
            with pytest.raises(ApiError) as caught:
                await cluster.transport().request(MAKE_NODE)
            return caught.value.status, cluster.find(NODES, "one") is not None

    assert run_virtual(scenario()) == (0, done)


def test_a_watch_breaks_after_the_events_ordered():
    """Two of three events arrive, then the stream breaks."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster:
            cluster.apply([node("one"), node("two"), node("three")])
            cluster.frontend.faults.add(
                RequestFault(matches=matching(watch=True), drop_after_events=2)
            )
            async with cluster.transport().stream(WATCH_NODES) as (_, lines):
                seen = [await anext(lines), await anext(lines)]
                with pytest.raises(ApiError):
                    await anext(lines)
            return len(seen)

    assert run_virtual(scenario()) == 2


def test_a_stopped_server_breaks_watches_and_keeps_its_objects():
    """While it is away nothing answers; back again it resumes watches from the old version."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster:
            transport = cluster.transport()
            cluster.apply([node("one")])
            version = json.loads((await transport.request(LIST_PODS)).body)["metadata"]
            async with transport.stream(WATCH_NODES) as (_, lines):
                await anext(lines)
                await cluster.stop_server()
                with pytest.raises(ApiError):
                    await anext(lines)
            with pytest.raises(ApiError):
                await transport.request(LIST_PODS)
            cluster.apply([node("two")])
            await cluster.start_server()
            query = {"watch": "1", "resourceVersion": version["resourceVersion"]}
            resumed = ApiRequest(method="GET", path=NODES.path(), query=query)
            async with transport.stream(resumed) as (_, lines):
                return json.loads(await anext(lines))["object"]["metadata"]["name"]

    assert run_virtual(scenario()) == "two"


def test_a_reader_that_falls_behind_the_history_is_cut_off():
    """Its stream ends; with its old version it gets 410."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER, history_size=4) as cluster:
            transport = cluster.transport()
            async with transport.stream(WATCH_NODES) as (_, lines):
                cluster.apply([node("first")])
                first = json.loads(await anext(lines))["object"]["metadata"]["resourceVersion"]
                cluster.apply([node(f"node-{index}") for index in range(20)])
                rest = [line async for line in lines]
            query = {"watch": "1", "resourceVersion": first}
            again = ApiRequest(method="GET", path=NODES.path(), query=query)
            async with transport.stream(again) as (_, lines):
                return len(rest), json.loads(await anext(lines))["object"]["code"]

    assert run_virtual(scenario()) == (0, 410)


def test_an_expired_continue_token_is_gone():
    """410, as after etcd's compaction."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster:
            cluster.apply([node("one"), node("two")])
            transport = cluster.transport()
            query = {"limit": "1"}
            page = await transport.request(ApiRequest(method="GET", path=NODES.path(), query=query))
            metadata = json.loads(page.body)["metadata"]
            cluster.server.compact()
            query["continue"] = metadata["continue"]
            late = await transport.request(ApiRequest(method="GET", path=NODES.path(), query=query))
            return metadata["remainingItemCount"], late.status

    assert run_virtual(scenario()) == (1, 410)


@asynccontextmanager
async def idle_watch(cluster, seconds):
    """Watch the Nodes of a cluster, with bookmarks."""
    query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
    request = ApiRequest(method="GET", path=NODES.path(), query=query)
    async with cluster.transport().stream(request) as (_, lines):
        yield lines


def test_an_idle_watch_gets_a_bookmark_every_minute():
    """An idle hour is sixty bookmarks, and then the watch ends."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster, idle_watch(cluster, 3600) as lines:
            return {json.loads(line)["type"] async for line in lines}, cluster.clock.monotonic()

    assert run_virtual(scenario()) == ({"BOOKMARK"}, 3600)


def test_a_bookmark_never_has_the_version_of_a_change_that_comes_after_it():
    """The change happens in the moment in which the bookmark is due."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster, idle_watch(cluster, 90) as lines:
            loop = asyncio.get_running_loop()
            loop.call_at(loop.time() + 60, cluster.apply, [node("one")])
            events = [json.loads(line) async for line in lines]
            versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
            return [event["type"] for event in events], versions == sorted(versions)

    assert run_virtual(scenario()) == (["ADDED", "BOOKMARK", "BOOKMARK"], True)


def test_requests_are_counted_by_verb_and_kind():
    """Subresources apart."""

    async def scenario():
        async with EmbeddedCluster(times=NEVER) as cluster:
            transport = cluster.transport()
            await transport.request(MAKE_NODE)
            await transport.request(LIST_PODS)
            path = PODS.path(namespace="default", name="x", subresource="eviction")
            await transport.request(ApiRequest(method="POST", path=path, body=b"{}"))
            return dict(cluster.frontend.requests)

    assert run_virtual(scenario()) == {
        ("post", "nodes"): 1,
        ("list", "pods"): 1,
        ("post", "pods/eviction"): 1,
    }


async def test_http_face_survives_a_restart_on_its_port():
    """Open watches break, new connections fail, then the same address answers again."""
    async with EmbeddedCluster(http=True, times=NEVER) as cluster:
        transport = await connect(kubeconfig=str(cluster.kubeconfig_path), clock=LoopClock())
        cluster.apply([node("one")])
        async with transport.stream(WATCH_NODES) as (_, lines):
            await anext(lines)
            await cluster.stop_server()
            with pytest.raises(ApiError):
                await anext(lines)
        with pytest.raises(ApiError):
            await transport.request(LIST_PODS)
        await cluster.start_server()

        assert (await transport.request(LIST_PODS)).status == 200
        await transport.close()


async def test_http_face_loses_replies_to_order():
    """The connection is cut: no status ever arrives."""
    async with EmbeddedCluster(http=True, times=NEVER) as cluster:
        transport = await connect(kubeconfig=str(cluster.kubeconfig_path), clock=LoopClock())
        cluster.frontend.faults.add(
            RequestFault(matches=matching("POST"), drop_reply=True, times=None)
        )

        with pytest.raises(ApiError) as caught:
            await transport.request(MAKE_NODE)

        assert caught.value.status == 0
        assert cluster.find(NODES, "one") is not None
        await transport.close()


async def test_the_http_frontend_streams_thousands_of_events():
    """A watch over HTTP keeps up with a burst."""
    async with EmbeddedCluster(http=True, times=NEVER) as cluster:
        transport = await connect(kubeconfig=str(cluster.kubeconfig_path), clock=LoopClock())
        request = ApiRequest(method="GET", path=PODS.path(), query={"watch": "1"})
        async with asyncio.timeout(30), transport.stream(request) as (_, lines):
            cluster.apply([bare(f"pod-{index}") for index in range(2000)])
            names = set()
            async for line in lines:
                names.add(json.loads(line)["object"]["metadata"]["name"])
                if len(names) == 2000:
                    break
        await transport.close()


def bare(name: str):
    made = pod(name, schedulerName="nobody")
    return made | {"metadata": {"name": name}}
