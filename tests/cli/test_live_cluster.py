"""Planning and explaining against a live cluster only reads."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web

from karpenter_core.api.crd import core_models, render_crd
from karpenter_core.kube.resources import custom_kind
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.testing.cluster import ClusterClient
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.cli.inputs import NODE_CLASS_REF, POOL, node, pod, pool, write
from tests.cli.test_explain_node import CONSOLIDATING, claim_with_node
from tests.support.kubeconfig import write_kubeconfig

NODE_POOLS, *_ = (
    custom_kind(model.resource) for model in core_models() if model.__name__ == "NodePool"
)
NODE_CLASS = {
    "apiVersion": KWOKNodeClass.resource.api_version,
    "kind": "KWOKNodeClass",
    "metadata": {"name": NODE_CLASS_REF["name"]},
    "spec": {},
}


class ReadOnlyTransport:
    """The way in for a role that may get and list, watch if it is allowed, and nothing else."""

    def __init__(self, url):
        self._url = url
        self.requests = []
        self.watches = []
        self.forbidden = set()
        self.watched = set()
        """Plurals that may be watched; `*` is all."""
        self.unwatched = set()
        self.delayed = set()
        """Plurals whose lists are answered once they are no longer here; one object is answered at once."""
        self.is_cut = False
        self._streams = {}

    def cut(self):
        """Break all watches, and answer nothing until `is_cut` is False."""
        self.is_cut = True
        for request, task in list(self._streams.values()):
            if request.transport is not None:
                request.transport.abort()
            task.cancel()

    async def handle(self, request):
        plural = request.path.rpartition("/")[2]
        if self.is_cut:
            request.transport.abort()
            raise ConnectionResetError
        may_watch = self.watched & {plural, "*"} and plural not in self.unwatched
        if "watch" in request.query and may_watch:
            self.watches.append(plural)
            return await self._stream(request)
        self.requests.append((request.method, plural))
        while plural in self.delayed and request.query.get("limit") != "1":  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(0.05)
        allowed = request.method == "GET" and "watch" not in request.query
        if not allowed or plural in self.forbidden:
            message = f'{plural} is forbidden: User "reader" cannot {request.method} it'
            status = {"kind": "Status", "reason": "Forbidden", "message": message, "code": 403}
            return web.json_response(status, status=HTTPStatus.FORBIDDEN)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self._url}{request.path_qs}") as answer,
        ):
            body = await answer.read()
            return web.Response(body=body, status=answer.status, content_type=answer.content_type)

    async def _stream(self, request):
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.get(f"{self._url}{request.path_qs}") as answer,
        ):
            response = web.StreamResponse(status=answer.status)
            await response.prepare(request)
            self._streams[id(request)] = (request, asyncio.current_task())
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            finally:
                self._streams.pop(id(request), None)
            return response


@asynccontextmanager
async def serving(door):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", door.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


class World:
    """An embedded cluster in a thread of its own, seen through a read-only proxy."""

    def __init__(self, folder):
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self.kubeconfig = folder / "kubeconfig"
        self.door = None
        self._cluster = None

    async def live(self):
        async with EmbeddedCluster(http=True) as cluster:
            self._cluster = cluster
            self.door = ReadOnlyTransport(cluster.url)
            async with serving(self.door) as url:
                write_kubeconfig(self.kubeconfig, url)
                self._ready.set()
                await self._stop.wait()
                self.door.cut()
                await asyncio.sleep(0.05)

    @contextmanager
    def open(self):
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self.live(),))
        thread.start()
        assert self._ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            self._loop.close()

    @property
    def direct_kubeconfig(self):
        """The kubeconfig without the proxy, for commands that ask for permissions."""
        return self._cluster.kubeconfig_path

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def install(self):
        """Apply the definitions of our kinds."""

        async def work():
            self._cluster.apply(render_crd(model) for model in (*core_models(), KWOKNodeClass))
            self._cluster.apply(
                [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}]
            )

        self.do(work())

    def apply(self, *manifests):
        async def work():
            self._cluster.apply(manifests)

        self.do(work())

    def delete(self, kind, name, namespace=""):
        async def work():
            async with ClusterClient(self._cluster.kubeconfig_path) as client:
                await client.delete(kind, name, namespace=namespace)

        self.do(work())

    def set_status(self, kind, name, status):
        async def work():
            async with ClusterClient(self._cluster.kubeconfig_path) as client:
                await client.patch(kind, name, {"status": status}, subresource="status")

        self.do(work())

    def make_ready(self, name):
        ready = {
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }  # fmt: skip
        self.set_status(NODE_POOLS, name, {"conditions": [ready]})

    def settle(self, names):
        """Wait until the scheduler has given up on these pods."""

        async def work():
            async with (
                asyncio.timeout(10),
                ClusterClient(self._cluster.kubeconfig_path) as client,
            ):
                while True:
                    answer = await client.request("GET", "/api/v1/pods")
                    given_up = {
                        item["metadata"]["name"]
                        for item in answer["items"]
                        for condition in item.get("status", {}).get("conditions", [])
                        if condition.get("reason") == "Unschedulable"
                    }
                    if given_up >= set(names):
                        return
                    await asyncio.sleep(0.02)

        self.do(work())


@pytest.fixture
def world(tmp_path):
    with World(tmp_path).open() as opened:
        opened.install()
        yield opened


@pytest.fixture
def ask(program, world, types_file):
    """Run a command against the world."""

    def run(*arguments, code=0):
        return program(
            *arguments, "--kubeconfig", world.kubeconfig, "--instance-types-file", types_file,
            code=code,
        )  # fmt: skip

    return run


@pytest.fixture
def two_waiting(world):
    """A ready pool and two pods that wait: one fits, one is too large for anything."""
    world.apply(NODE_CLASS, POOL, pod("a", cpu="3"), pod("huge", cpu="100"))
    world.make_ready("general")
    world.settle(["a", "huge"])
    return world


def test_a_live_frame_of_top_sends_only_lists(ask, two_waiting):
    """Each kind is listed once; pods without a node have their reasons."""
    document = json.loads(ask("top", "-o", "json").out)

    waiting = {pod["pod"]: pod["state"] for pod in document["pendingPods"]}
    assert waiting == {"shop/a": "launch", "shop/huge": "unschedulable"}
    requests = two_waiting.door.requests
    assert {method for method, _ in requests} == {"GET"}
    assert len(requests) == len(set(requests))


def decision_event(name, *, component="karpenter"):
    return {
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "old"},
        "reason": "DisruptionTerminating", "message": f"{name}: Empty", "type": "Normal", "count": 2,
        "lastTimestamp": "2024-01-01T00:00:00Z",
        "reportingComponent": component, "source": {"component": component},
    }  # fmt: skip


def test_top_shows_the_decisions_of_the_controller_only(ask, two_waiting):
    two_waiting.apply(decision_event("ours"), decision_event("other", component="kubelet"))

    document = json.loads(ask("top", "-o", "json").out)

    assert document["decisions"] == [
        {
            "at": "2024-01-01T00:00:00Z", "objects": ["Node/old"],
            "reason": "DisruptionTerminating", "message": "ours: Empty", "warning": False, "count": 2,
        }
    ]  # fmt: skip
    assert "ours: Empty" in ask("top", "--once").out


def test_top_works_without_the_permission_to_list_events(ask, two_waiting):
    two_waiting.door.forbidden.add("events")

    document = json.loads(ask("top", "-o", "json").out)

    assert document["decisions"] == []
    assert any("events cannot be listed" in note for note in document["notes"])


def test_a_pod_without_a_namespace_is_looked_for_in_that_of_the_context(ask, two_waiting):
    config = json.loads(two_waiting.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = "shop"
    two_waiting.kubeconfig.write_text(json.dumps(config))

    assert json.loads(ask("explain", "pod", "a", "-o", "json").out)["pod"] == "shop/a"
    missing = ask("explain", "pod", "a", "-n", "default", code=2)
    assert missing.err.strip() == 'karpenter: no pod "default/a"; near: shop/a'


def test_a_live_plan_sends_only_lists(ask, two_waiting):
    """Every kind once, no watch, no write; the answer has the form of offline plans."""
    document = json.loads(ask("plan", "-o", "json").out)

    assert [claim["pods"] for claim in document["nodeClaims"]] == [["shop/a"]]
    assert document["nodeClaims"][0]["cheapest"]["instanceType"] == "medium"
    assert document["unschedulable"]["shop/huge"]["pools"]["general"]["constraint"] == "resource"
    requests = two_waiting.door.requests
    assert {method for method, _ in requests} == {"GET"}
    assert len(requests) == len(set(requests))
    assert {"pods", "nodes", "nodepools", "nodeclaims", "kwoknodeclasses"} <= {
        plural for _, plural in requests
    }


def test_files_override_objects_of_the_cluster(ask, two_waiting, tmp_path):
    """The plan shows the effect of a change; the cluster is not changed."""
    limited = write(tmp_path / "limited.yaml", pool(limits={"cpu": "1"}), pod("b", cpu="1"))

    shown = ask("plan", limited).out
    document = json.loads(ask("plan", limited, "-o", "json").out)

    assert "\nno node to launch; 3 pods stay pending\n" in shown
    assert "without the files: 1 node to launch for 1 pod at 0.1800 per hour" in shown
    assert set(document["unschedulable"]) == {"shop/a", "shop/b", "shop/huge"}
    assert document["unschedulable"]["shop/a"]["pools"]["general"]["constraint"] == "limit"
    assert json.loads(ask("plan", "-o", "json").out)["nodeClaims"]


def test_a_file_replaces_the_object_of_its_name(ask, world, tmp_path):
    """Pods on a node stay there when a file describes the node anew."""
    world.apply(NODE_CLASS, POOL, node("old", cpu="2"), pod("runs", cpu="1", nodeName="old"))
    world.make_ready("general")
    larger = write(tmp_path / "larger.yaml", node("old", cpu="4"), pod("b", cpu="3"))

    document = json.loads(ask("plan", larger, "-o", "json").out)

    assert document["existingNodes"] == {"old": ["shop/b"]}


def test_pods_and_pools_that_wait_for_others_are_listed(ask, world):
    """A pool that is not ready is not used; a gated pod is not the planner's."""
    world.apply(
        NODE_CLASS, POOL, pod("gated", schedulingGates=[{"name": "example.com/hold"}]), pod("a")
    )
    world.settle(["a"])

    shown = ask("plan", "-o", "json")

    document = json.loads(shown.out)
    assert "example.com/hold" in document["unschedulable"]["shop/gated"]["message"]
    assert 'NodePool "general" is not used: it has no condition Ready yet' in shown.err
    explained = ask("explain", "pod", "shop/a").out
    assert "it has no condition Ready yet" in explained


def test_an_unlistable_kind_is_left_out_or_ends_the_plan(ask, two_waiting):
    """Without budgets a plan can be made, without pods it cannot."""
    two_waiting.door.forbidden = {"poddisruptionbudgets"}
    note = ask("plan").err
    two_waiting.door.forbidden = {"pods"}
    refusal = ask("plan", code=2).err

    assert "poddisruptionbudgets is forbidden" in note
    assert "planned as if there were none" in note
    assert refusal.strip() == (
        'karpenter: list pods: pods is forbidden: User "reader" cannot GET it; '
        "ask for the right to get, list and watch it: `karpenter rbac` prints a role"
    )


def test_explain_names_the_node_of_a_pod_and_its_wait(ask, two_waiting):
    """A pod to launch for, a pod that fits nowhere, a pod that is not there."""
    placed = json.loads(ask("explain", "pod", "shop/a", "-o", "json").out)
    left = json.loads(ask("explain", "pod", "shop/huge", "-o", "json").out)
    unknown = ask("explain", "pod", "a", code=2).err

    assert placed["state"] == "launch"
    assert placed["placement"]["cheapest"]["instanceType"] == "medium"
    assert "No NodeClaim has been made yet" in placed["message"]
    assert left["state"] == "unschedulable"
    assert left["pools"]["general"]["closest"] == "large"
    assert 'no pod "default/a"; near: shop/a' in unknown
    assert {method for method, _ in two_waiting.door.requests} == {"GET"}


def test_explain_node_shows_the_decision_of_disruption(ask, world, tmp_path):
    """Of a node that is there, and of one that a file lays over the cluster; only GET is sent."""
    world.apply(NODE_CLASS, CONSOLIDATING, node("mine"))
    world.make_ready("general")
    file = write(tmp_path / "a.yaml", *claim_with_node("a"))

    alone = json.loads(ask("explain", "node", "mine", "-o", "json").out)
    empty = json.loads(ask("explain", "node", "a", file, "-o", "json").out)

    assert alone["state"] == "unmanaged"
    assert (empty["state"], empty["nodeClaim"]) == ("disrupted", "general-a")
    assert {method for method, _ in world.door.requests} == {"GET"}


def test_doctor_compares_commitments_with_what_the_nodepools_sell(program, world):
    """With requests that read only, through a door that lets no other pass."""
    world.apply(NODE_CLASS, POOL)
    world.make_ready("general")
    rows = [
        {"name": name, "resource": "cpu", "amount": 8, "price": 0.0001, "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": operator, "values": ["gone"]}
        ]}
        for name, operator in (("used", "NotIn"), ("lost", "In"))
    ]  # fmt: skip

    document = json.loads(
        program(
            "doctor", "--output=json", "--kubeconfig", world.kubeconfig, "--providers=kwok",
            f"--commitments={json.dumps(rows)}", code=None,
        ).out
    )  # fmt: skip

    found = [each for each in document if each["about"] == "commitments"]
    assert [(each["severity"], each["message"]) for each in found] == [
        ("ok", 'commitment "used" covers 8 of cpu, of which nodes use 0'),
        (
            "warning",
            'commitment "lost" covers no on-demand instance type that a NodePool may launch',
        ),
    ]


def test_a_cluster_that_does_not_answer_is_named(program, tmp_path):
    """One line, exit code 2."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")

    shown = program("plan", "--kubeconfig", kubeconfig, code=2)

    (line,) = shown.err.strip().splitlines()
    assert "no answer from http://127.0.0.1:9" in line


def test_a_cluster_without_our_kinds_is_planned_with_those_of_files(program, tmp_path, types_file):
    """The plan is that of an installed controller."""
    file = write(tmp_path / "pool.yaml", POOL, pod("a"))
    with World(tmp_path).open() as bare:
        shown = program(
            "plan", file, "--kubeconfig", bare.kubeconfig, "--instance-types-file", types_file
        )

    assert "the cluster does not know nodepools (karpenter.sh/v1)" in shown.err
    assert "1 node to launch for 1 pod" in shown.out


def test_exclusive_options_are_refused(program, tmp_path):
    """Before anything is read."""
    config = tmp_path / "config"

    assert "omit --kubeconfig" in program(
        "plan", "--offline", tmp_path, "--kubeconfig", config, code=2
    ).err  # fmt: skip
    assert "--offline needs at least one FILE" in program("plan", "--offline", code=2).err
    assert 'no context "nowhere"; there are: test' in program(
        "plan", "--context", "nowhere", "--kubeconfig",
        write_kubeconfig(config, "http://127.0.0.1:9"), code=2,
    ).err  # fmt: skip


PLANTED = ("planted-token", "planted-variable", "planted-argument", "planted-proxy")


def planted_pod(name, cpu):
    """A pod whose secrets stand in its spec and in the annotation that `kubectl apply` writes."""
    made = pod(name, cpu=cpu)
    (container,) = made["spec"]["containers"]
    container["env"] = [{"name": "PASSWORD", "value": "planted-variable"}]
    container["args"] = ["--password=planted-argument"]
    applied = json.dumps(made)
    made["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    return made


@pytest.mark.parametrize("refused", [False, True])
def test_no_command_shows_secrets_of_pods_or_of_the_kubeconfig(
    program, world, types_file, monkeypatch, refused
):
    """Neither in answers, as text and JSON, nor in errors of a proxy or server that is not there."""
    world.apply(NODE_CLASS, POOL, planted_pod("a", "3"), planted_pod("huge", "100"))
    world.make_ready("general")
    world.settle(["a", "huge"])
    config = json.loads(world.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "planted-token"}
    if refused:
        config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
        config["clusters"][0]["cluster"]["proxy-url"] = "http://user:planted-proxy@127.0.0.1:9"
    world.kubeconfig.write_text(json.dumps(config))
    monkeypatch.setenv("HTTPS_PROXY", "http://user:planted-proxy@127.0.0.1:9")
    options = ["--kubeconfig", world.kubeconfig]
    types = ["--instance-types-file", types_file]

    shown = [
        program(*command, code=None)
        for command in (
            ["plan", *options, *types],
            ["plan", "-o", "json", *options, *types],
            ["explain", "pod", "shop/a", *options, *types],
            ["explain", "pod", "shop/huge", "-o", "json", *options, *types],
            ["doctor", *options],
            ["doctor", "--output=json", *options],
        )
    ]

    texts = "".join(each.out + each.err for each in shown)
    assert ("shop/huge" in texts) is not refused
    assert [secret for secret in PLANTED if secret in texts] == []
