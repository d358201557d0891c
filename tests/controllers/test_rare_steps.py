"""Steps of controllers that whole runs seldom take."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from karpenter_core.controllers.capacity_buffer import controller as buffers
from karpenter_core.controllers.capacity_buffer.controller import CapacityBufferController
from karpenter_core.controllers.disruption.controller import DisruptionController
from karpenter_core.controllers.interruption import controller as interruption
from karpenter_core.controllers.interruption.controller import _add_new, _remember_first
from karpenter_core.controllers.node.health import NodeHealthController
from karpenter_core.controllers.node.surge_moves import SurgeMoves
from karpenter_core.controllers.nodeclaim import termination as terminator
from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
from karpenter_core.controllers.provisioning.provisioner import Provisioner
from karpenter_core.controllers.reconciling.reconciler import ReconcileResult
from karpenter_core.errors import ApiError, ConflictError, NotFoundError
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.events import EventRecorder
from karpenter_core.kube.informers import Informers
from karpenter_core.kube.login import Login
from karpenter_core.kube.transport import ApiRequest
from karpenter_core.state.capacity_buffers import BufferFailure
from karpenter_core.testing.builders import pod
from karpenter_core.tracing import NO_TRACER
from tests.controllers.clocks import TwoClocks


def test_only_the_newest_messages_are_remembered(monkeypatch):
    monkeypatch.setattr(interruption, "_REMEMBERED", 2)
    memory = OrderedDict()
    assert [_remember_first(memory, key, n) for n, key in enumerate("abac")] == [0, 1, 0, 3]
    assert list(memory) == ["b", "c"]
    seen = OrderedDict()
    assert [_add_new(seen, key) for key in "abaca"] == [True, True, False, True, True]
    assert list(seen) == ["c", "a"]


async def test_a_pod_that_does_not_ask_for_a_surge_has_no_move():
    moves = SurgeMoves(writer=None, runtime=SimpleNamespace(clock=TwoClocks()), read_rollout=None)
    assert await moves.holds(pod("web"), None) is False
    assert not moves._moves


async def test_a_pass_over_its_time_limit_is_told_so():
    effort = SimpleNamespace(is_reached=False)

    async def run_steps(steps, *, limit_seconds, overtime):
        assert limit_seconds > 0
        if steps == "long":
            overtime()
        return steps

    controller = SimpleNamespace(_planner=SimpleNamespace(run_steps=run_steps))
    assert await DisruptionController._compute(controller, "short", effort) == "short"
    assert effort.is_reached is False
    assert await DisruptionController._compute(controller, "long", effort) == "long"
    assert effort.is_reached is True


@pytest.mark.parametrize(
    ("error", "is_found"),
    [
        (None, True),
        (NotFoundError("gone", status=404, reason="NotFound"), False),
        (ConflictError("busy", status=409, reason="Conflict"), True),
    ],
)
async def test_a_kind_counts_as_served_unless_the_api_server_says_that_it_is_not(error, is_found):
    async def list_page(_kind, *, limit):
        assert limit == 1
        if error is not None:
            raise error

    api = SimpleNamespace(list_page=list_page)
    informers = SimpleNamespace(_apis=SimpleNamespace(api_for=lambda _kind: api))
    assert await Informers._find(informers, "pods") is is_found


async def test_any_other_request_waits_for_its_turn():
    done = []

    class Limiter:
        async def acquire(self):
            done.append("turn")

    class Transport:
        async def request(self, request):
            done.append(request.path)
            return "answer"

    asked = ApiRequest(method="GET", path="/version")
    assert (
        await KubeApi(Transport(), clock=TwoClocks(), limiter=Limiter()).request(asked) == "answer"
    )
    assert await KubeApi(Transport(), clock=TwoClocks()).request(asked) == "answer"
    assert done == ["turn", "/version", "/version"]


async def test_fixed_credentials_that_are_refused_are_not_renewed():
    refused = ("token", None)
    login = SimpleNamespace(credentials=refused, token_file=None, loader=None)
    assert await Login.renew(login, refused) is False
    assert await Login.renew(login, ("older", None)) is True


async def test_a_pass_plans_once_the_types_of_all_pools_are_listed():
    done = []

    async def next_batch():
        return ("pod",)

    async def wait_until(is_ready, *, seconds):
        done.append(("waits", is_ready(None), seconds > 0))

    async def plan_pods(triggers):
        done.append(("plans", *triggers))

    provisioner = SimpleNamespace(
        _batcher=SimpleNamespace(next_batch=next_batch, discard=lambda _rule: done.append("ends")),
        _cluster_state=SimpleNamespace(wait_until=wait_until, snapshot=lambda: None),
        _unevaluated_pools=lambda: frozenset({"web"}),
        _runtime=SimpleNamespace(tracer=NO_TRACER),
        _planning_turn=asyncio.Lock(),
        _plan_pods=plan_pods,
    )
    assert await Provisioner._run_pass(provisioner) == 0.0
    assert done == [("waits", False, True), ("plans", "pod"), "ends"]


@pytest.mark.parametrize(("is_retried", "backs_off"), [(None, False), (False, False), (True, True)])
async def test_a_buffer_whose_pods_cannot_be_read_is_tried_again(
    monkeypatch, is_retried, backs_off
):
    """One that waits for another object is woken when this one comes."""
    resolution = "resolved"
    if is_retried is not None:
        resolution = BufferFailure(reason="r", message="m", is_retried=is_retried)
    buffer = SimpleNamespace(is_deleting=False, key="default/web")
    monkeypatch.setattr(buffers, "is_active", lambda _buffer: True)
    monkeypatch.setattr(buffers, "resolve_buffer", lambda *_, burst_replicas: resolution)
    monkeypatch.setattr(buffers, "buffer_source", lambda _buffer: "source")
    for name in ("with_resolution", "with_provisioning"):
        monkeypatch.setattr(buffers, name, lambda found, *_, **__: found, raising=False)
    monkeypatch.setattr(buffers, "buffer_status_patch", lambda *_: None)

    async def observe(found, _snapshot):
        return found, SimpleNamespace(replicas=None, again_after=None, note="")

    snapshot = SimpleNamespace(capacity_buffers={"default/web": buffer}, virtual_placements={})
    controller = SimpleNamespace(
        _cluster_state=SimpleNamespace(snapshot=lambda: snapshot),
        _bursts=SimpleNamespace(observe=observe),
        _declare=lambda *_: None,
        _show_placement=lambda _buffer: None,
        _runtime=SimpleNamespace(clock=TwoClocks()),
    )
    result = await CapacityBufferController.reconcile(controller, "default/web")
    assert result.back_off is backs_off


@pytest.mark.parametrize(
    ("is_without", "provider_id", "is_stale", "done"),
    [
        (True, "", False, ["finish"]),
        (False, "", False, ["finish"]),
        (False, "kwok://web", False, ["write", "terminate"]),
        (False, "kwok://web", True, []),
    ],
)
async def test_a_claim_without_an_instance_is_finished_once_none_is_found(
    monkeypatch, is_without, provider_id, is_stale, done
):
    monkeypatch.setattr(terminator, "with_instance", lambda claim, _id: claim)
    seen = []

    async def find(_claim):
        return provider_id

    async def write(claim, _changed):
        seen.append("write")
        return claim

    async def terminate(_claim):
        seen.append("terminate")

    async def finish(_claim):
        seen.append("finish")

    owner = SimpleNamespace(
        _launcher=SimpleNamespace(is_without_instance=lambda _uid: is_without),
        _lookup=SimpleNamespace(provider_id=find),
        _is_state_stale=lambda _claim: is_stale,
        _writer=SimpleNamespace(write_claim=write),
        terminate=terminate,
        _finish=finish,
    )
    await terminator.ClaimTerminator._finish_without_instance(owner, SimpleNamespace(uid="u"))
    assert seen == done


async def test_a_claim_of_a_pool_that_is_gone_is_not_created():
    failed = []
    creator = SimpleNamespace(
        _cluster_state=SimpleNamespace(snapshot=lambda: SimpleNamespace(node_pools={})),
        _report_failed=lambda _planned, why: failed.append(why),
    )
    planned = SimpleNamespace(pool="web")
    created = await ClaimCreator._create_one(
        creator, planned, decision_ref=None, reason="", annotations={}, slot=""
    )
    assert created is None
    assert len(failed) == 1


async def test_a_foreign_claim_is_not_repaired():
    claim = SimpleNamespace(spec=SimpleNamespace(node_class_ref="foreign"))
    for claims in ((), (claim,), (claim, claim)):
        snapshot = SimpleNamespace(
            nodes={"n": "node"},
            claims_of=lambda _node, claims=claims: claims,
            manages=lambda _ref: False,
        )
        controller = SimpleNamespace(_cluster_state=SimpleNamespace(snapshot=lambda s=snapshot: s))
        for name in ("n", "gone"):
            assert await NodeHealthController.reconcile(controller, name) == ReconcileResult()


@pytest.mark.parametrize(("error", "reason"), [("api", "500"), ("other", "failed"), (None, None)])
async def test_an_event_that_cannot_be_posted_is_dropped(error, reason):
    dropped, ended = [], []

    class Queue:
        async def get(self):
            if ended:
                raise asyncio.CancelledError
            return SimpleNamespace(notice="notice")

        def task_done(self):
            ended.append(1)

    async def post(_entry):
        if error == "api":
            raise ApiError("no", status=500, reason="r")
        if error == "other":
            raise ValueError("bug")

    recorder = SimpleNamespace(
        _queue=Queue(), _post=post, _drop=lambda why, _notice, _error: dropped.append(why)
    )
    with pytest.raises(asyncio.CancelledError):
        await EventRecorder._work(recorder)
    assert (dropped, ended) == ([] if reason is None else [reason], [1])
