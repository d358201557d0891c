"""The writer sends, fences, counts and folds every write."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.errors import (
    ApiError,
    ConflictError,
    FencedError,
    NotFoundError,
    TooManyRequestsError,
)
from karpenter_core.kube import resources
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.fence import AlwaysLeaderFence, LeaseFence
from karpenter_core.kube.objects import view_from_manifest
from karpenter_core.kube.rate_limits import AsyncTokenBucket
from karpenter_core.kube.transport import NO_ANSWER, UNREACHABLE, ApiResponse
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, Codecs
from karpenter_core.kube.writer import KubeWriter, ProviderNodeWriter
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.direct import DirectTransport
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from tests.kube.scripted import ScriptedTransport, answer, node, refusal

LOST = ApiError("the reply was lost", status=0)
REFUSED = ApiError("connection refused", status=0, reason=UNREACHABLE)


class WriterFixture:
    """A writer over a scripted or embedded server, and what it folded."""

    def __init__(self, transport, *, fence=None, faults=None):
        self.clock = LoopClock()
        self.transport = transport
        self.folded = []
        self.noted = []
        self.writer = KubeWriter(
            ClusterApis(KubeApi(transport, clock=self.clock)),
            Codecs(),
            clock=self.clock,
            fence=fence or AlwaysLeaderFence(),
            sink=lambda event: self.folded.append(event.object),
            faults=faults,
            jitter=lambda: 1.0,
            metrics=None,
            on_written=lambda kind, written: self.noted.append((kind, written)),
        )


def write(script, *answers, **options):
    async def scenario():
        desk = WriterFixture(ScriptedTransport(answers), **options)
        desk.result = await script(desk.writer)
        return desk

    return run_virtual(scenario())


def create(writer):
    return writer.create(resources.NODES, {"metadata": {"name": "a"}})


def patch(writer):
    return writer.patch(resources.NODES, "a", {"metadata": {"labels": {"x": "y"}}})


def test_the_answer_to_a_write_is_folded_at_once():
    """Read-your-writes: no watch has to bring it."""
    desk = write(create, answer(node("a", 7), 201))
    assert (desk.result.name, desk.result.resource_version) == ("a", 7)
    assert desk.folded == [desk.result]
    assert desk.noted == [(resources.NODES, desk.result)]  # informers: it may vanish unseen
    assert desk.writer.counts == {("create", "Node", ""): 1}


def test_a_patch_is_sent_to_its_subresource_with_its_resource_version():
    """And is counted as such."""

    async def script(writer):
        return await writer.patch(
            resources.NODES, "a", {"status": {}}, subresource="status", resource_version="6"
        )

    desk = write(script, answer(node("a", 7)))
    (request,) = desk.transport.requests
    assert request.path == "/api/v1/nodes/a/status"
    assert msgspec.json.decode(request.body)["metadata"] == {"resourceVersion": "6"}
    assert desk.writer.counts == {("patch", "Node", "status"): 1}


def test_a_creation_without_an_answer_in_time_is_in_doubt():
    """The client itself would wait for a minute. Its answer after that time changes nothing."""
    begun = []

    async def scenario():
        clock = LoopClock()

        class Silent:
            async def request(self, _request):
                begun.append(clock.monotonic())
                await clock.sleep(3600)

        desk = WriterFixture(Silent())
        with pytest.raises(ApiError, match="create nodes: no answer within 35 s") as raised:
            await desk.writer.create(
                resources.NODES, {"metadata": {"name": "a"}}, answer_seconds=35
            )
        assert (raised.value.status, raised.value.reason) == (0, NO_ANSWER)
        assert clock.monotonic() - begun[0] == pytest.approx(35)
        assert len(begun) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("failure", [REFUSED, refusal(429, **{"retry-after": "3"})])
@pytest.mark.parametrize("verb", [create, patch])
def test_write_that_was_never_carried_out_is_sent_again(verb, failure):
    """A refused connection, and a server that asks for patience."""
    desk = write(verb, failure, failure, answer(node("a", 7)))
    assert [view.resource_version for view in desk.folded] == [7]
    assert sum(desk.writer.counts.values()) == 3


@pytest.mark.parametrize("failure", [LOST, refusal(500), refusal(503)])
def test_only_idempotent_requests_are_repeated_after_an_unknown_outcome(failure):
    """A patch is idempotent, a creation is not."""
    desk = write(patch, failure, answer(node("a", 7)))
    assert len(desk.folded) == 1
    with pytest.raises(ApiError):
        write(create, failure)


def test_a_deletion_is_repeated_only_under_its_uid():
    """Without it, another object of that name could be hit."""
    gone = answer({"kind": "Status", "status": "Success"})
    desk = write(lambda writer: writer.delete(resources.NODES, "a", uid="u"), LOST, gone)
    assert desk.result is None
    with pytest.raises(ApiError):
        write(lambda writer: writer.delete(resources.NODES, "a"), LOST)


@pytest.mark.parametrize("status", [404, 409, 422, 403])
def test_the_servers_no_is_raised_at_once(status):
    """Nothing to gain by asking again."""
    with pytest.raises(ApiError) as caught:
        write(patch, refusal(status))
    assert caught.value.status == status


def test_a_webhooks_no_is_raised_at_once():
    """Whatever its status: nothing was written."""
    with pytest.raises(ApiError, match="no team"):
        write(patch, refusal(500, 'admission webhook "w" denied the request: no team'))


def test_retries_end_at_the_time_limit():
    """After a handful of attempts, each after twice the time, the caller hears of it."""
    assert write(patch, *[REFUSED] * 4, answer(node("a", 7))).clock.monotonic() == (
        pytest.approx(0.2 + 0.4 + 0.8 + 1.6)
    )
    with pytest.raises(ApiError):
        write(patch, *[REFUSED] * 5)


@pytest.mark.parametrize(("asked", "waited"), [("3", 3.0), ("10", 10.0), ("60", 10.0)])
def test_a_server_that_has_too_much_to_do_names_the_wait_up_to_ten_seconds(asked, waited):
    busy = refusal(429, **{"retry-after": asked})
    assert write(patch, busy, answer(node("a", 7))).clock.monotonic() == pytest.approx(waited)


def test_a_refused_eviction_is_raised_to_the_caller():
    """429 is a disruption budget's word, not the server's load."""
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "uid": "u"}}
    pod = view_from_manifest(manifest | {"spec": {}})
    desk = write(lambda writer: writer.evict(pod), answer({"kind": "Status"}, 201))
    body = msgspec.json.decode(desk.transport.requests[0].body)
    assert body["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert desk.writer.counts == {("evict", "Pod", "eviction"): 1}
    with pytest.raises(TooManyRequestsError):
        write(lambda writer: writer.evict(pod), refusal(429, **{"retry-after": "10"}))


class Fence:
    """Open for so many checks."""

    def __init__(self, checks):
        self.checks = checks

    def check(self):
        self.checks -= 1
        if self.checks < 0:
            raise FencedError("not the leader")


def test_no_write_is_sent_without_the_lease():
    """Neither the first attempt nor a later one."""
    for verb in (create, patch, lambda writer: writer.delete(resources.NODES, "a")):
        with pytest.raises(FencedError):
            write(verb, fence=Fence(0))

    async def scenario():
        desk = WriterFixture(ScriptedTransport([REFUSED]), fence=Fence(2))
        with pytest.raises(FencedError):
            await create(desk.writer)
        assert len(desk.transport.requests) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("verb", ["create", "patch", "delete", "evict"])
def test_a_write_that_waited_for_its_turn_too_long_is_not_sent(verb):
    """The lease ran out while the write stood in the token bucket, or the process was stopped."""

    async def scenario():
        fence = LeaseFence(clock := LoopClock())
        fence.open_until(clock.monotonic() + 10)
        transport = ScriptedTransport([answer(node("a", 1))] * 2)
        bucket = AsyncTokenBucket(clock, rate=1 / 30, burst=1)
        writer = KubeWriter(
            ClusterApis(KubeApi(transport, clock=clock, limiter=bucket)),
            Codecs(),
            clock=clock,
            fence=fence,
            sink=lambda _event: None,
            faults=None,
            jitter=None,
            metrics=None,
            on_written=None,
        )
        metadata = {"name": "web", "uid": "u"}
        pod = view_from_manifest(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
        )
        ask = {
            "create": lambda: create(writer),
            "patch": lambda: patch(writer),
            "delete": lambda: writer.delete(resources.NODES, "a"),
            "evict": lambda: writer.evict(pod),
        }[verb]
        await patch(writer)
        with pytest.raises(FencedError):
            await ask()
        assert len(transport.requests) == 1

    run_virtual(scenario())


def test_a_test_can_lose_a_request_or_its_reply():
    """The request before it is sent, the reply after it was done."""
    stages = []

    def losing(stage):
        async def faults(op):
            stages.append((op.stage, op.verb, op.kind.kind, op.name))
            if op.stage == stage:
                raise ApiError("lost on purpose", status=0)

        return faults

    async def scenario(stage):
        frontend = ServerFrontend(ApiServer(LoopClock()))
        desk = WriterFixture(DirectTransport(frontend), faults=losing(stage))
        with pytest.raises(ApiError, match="lost on purpose"):
            await create(desk.writer)
        assert desk.folded == []
        return len(frontend.server.registry.objects(resources.NODES))

    assert run_virtual(scenario("request")) == 0
    assert run_virtual(scenario("reply")) == 1
    assert stages == [
        ("request", "create", "Node", "a"),
        ("request", "create", "Node", "a"),
        ("reply", "create", "Node", "a"),
    ]


def test_a_deletion_that_finalizers_hold_back_is_folded():
    """The object with its deletion timestamp; one that is gone is left to the watch."""

    async def scenario():
        desk = WriterFixture(DirectTransport(ServerFrontend(ApiServer(LoopClock()))))
        manifest = {"metadata": {"name": "a", "finalizers": ["karpenter.sh/termination"]}}
        held = await desk.writer.create(resources.NODES, manifest)
        deleting = await desk.writer.delete(resources.NODES, "a", uid=held.uid)
        assert deleting.is_deleting
        assert desk.folded[-1] is deleting
        with pytest.raises(ConflictError):
            await desk.writer.delete(resources.NODES, "a", uid="another")
        await desk.writer.patch(resources.NODES, "a", {"metadata": {"finalizers": None}})
        with pytest.raises(NotFoundError):
            await desk.writer.delete(resources.NODES, "a")

    run_virtual(scenario())


def test_providers_write_nodes_through_the_same_writer():
    """A Node that is gone already is fine."""

    async def scenario():
        desk = WriterFixture(DirectTransport(ServerFrontend(ApiServer(LoopClock()))))
        nodes = ProviderNodeWriter(desk.writer)
        assert (await nodes.create({"metadata": {"name": "a"}})).name == "a"
        with pytest.raises(ConflictError):
            await nodes.create({"metadata": {"name": "a"}})
        patched = await nodes.patch("a", {"metadata": {"labels": {"x": "y"}}})
        status = await nodes.patch_status("a", {"status": {"capacity": {"cpu": "2"}}})
        assert (patched.labels, status.capacity) == ({"x": "y"}, {"cpu": 2000})
        await nodes.delete("a")
        await nodes.delete("a")
        assert desk.writer.counts["delete", "Node", ""] == 2

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("found", "is_gone"),
    [
        (refusal(404, 'nodes "a" not found', "NotFound"), True),
        (ApiResponse(status=404, body=b"404 page not found\n"), False),
    ],
    ids=["server", "proxy"],
)
def test_a_node_that_a_provider_deletes_may_be_gone_already(found, is_gone):
    """A proxy does not know."""

    async def script(writer):
        return await ProviderNodeWriter(writer).delete("a")

    if is_gone:
        assert write(script, found).result is None
        return
    with pytest.raises(ApiError, match="HTTP status 404"):
        write(script, found)


def test_kinds_go_to_their_cluster():
    """Claims to the one, nodes to the other."""

    async def scenario():
        clock = LoopClock()
        ref = {"group": "g", "kind": "K", "name": "n"}
        claim = {"metadata": {"name": "c", "uid": "u"}, "spec": {"nodeClassRef": ref}}
        objects, workload = (
            ScriptedTransport([answer(claim)]),
            ScriptedTransport([answer(node("a"))]),
        )
        writer = KubeWriter(
            ClusterApis(KubeApi(objects, clock=clock), KubeApi(workload, clock=clock)),
            Codecs(),
            clock=clock,
            fence=AlwaysLeaderFence(),
            sink=lambda _: None,
            faults=None,
            jitter=None,
            metrics=None,
            on_written=None,
        )
        await writer.create(NODE_CLAIMS, claim)
        await create(writer)
        assert [request.path for request in objects.requests] == [
            "/apis/karpenter.sh/v1/nodeclaims"
        ]
        assert [request.path for request in workload.requests] == ["/api/v1/nodes"]

    run_virtual(scenario())
