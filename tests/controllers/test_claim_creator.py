"""Claims are created once and within limits, whatever answers are lost."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from karpenter_core.api.labels import NODES, SCHEDULES
from karpenter_core.api.nodepool import TemplateMetadata
from karpenter_core.api.quantities import Quantity
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.controllers.provisioning import claim_creator
from karpenter_core.controllers.provisioning.claim_creator import (
    UNWANTED,
    ClaimCreator,
    _type_names,
)
from karpenter_core.controllers.provisioning.creation_outages import CreationOutages
from karpenter_core.controllers.provisioning.new_claims import DecisionRef
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import ApiError, ConflictError, FencedError, TooManyRequestsError
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.solve import solve
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.events import ObjectRemoved, ObjectWritten
from karpenter_core.state.launch_limits import LaunchLimits
from karpenter_core.testing.builders import EPOCH, node_pool, pod, problem
from karpenter_core.testing.state_builders import node_claim, ready_node_pool, synced_state

DECIDED = DecisionRef(id="d-1", cause="a test")


class SlowServer:
    """An API server that answers when a test lets it; what it took is folded, as the writer does."""

    def __init__(self, cluster_state):
        self.asked = 0
        self.refuse: Exception | None = None
        self.answer = asyncio.Event()
        self._cluster_state = cluster_state

    async def create(self, _kind, manifest, **_):
        self.asked += 1
        await self.answer.wait()
        if self.refuse is not None:
            raise self.refuse
        claim = node_claim(manifest["metadata"]["name"])
        bare = claim.status.model_copy(update={"conditions": ()})
        self._cluster_state.fold(ObjectWritten(claim.model_copy(update={"status": bare})))


def desk(**launch_limits):
    pool = ready_node_pool(node_pool())
    metrics, clock = Metrics(), SystemClock()
    cluster_state = ClusterState(synced_state(pool), clock)
    server = SlowServer(cluster_state)
    writer = ObjectWriter(
        kube_writer=server,
        cluster_state=cluster_state,
        publish=print,
        metrics=metrics,
        owns_nodes=True,
    )
    runtime = ControllerRuntime(clock=clock, new_id=map(str, count()).__next__, metrics=metrics)
    creator = ClaimCreator(
        writer=writer, runtime=runtime, launch_limits=LaunchLimits(**launch_limits)
    )
    return creator, server, cluster_state


def planned(*pods):
    """Plan one claim for each pod."""
    plans = [solve(problem([each], pools=[node_pool()])) for each in pods]
    return [plan.claims[0] for plan in plans]


def five(prefix="web"):
    return planned(*(pod(f"{prefix}-{i}", cpu="3") for i in range(5)))


def made(creation):
    return sum(name is not None for name in creation.names)


async def create(creator, claims, pools=None):
    return await creator.create(
        claims, pools=pools or {}, decision_ref=DECIDED, reason="provisioned"
    )


async def test_concurrent_batches_share_a_limit():
    """Neither has heard from the API server yet when the other is granted."""
    creator, server, cluster_state = desk(max_nodes_total=7)
    first = asyncio.create_task(create(creator, five("a")))
    await asyncio.sleep(0)
    second = asyncio.create_task(create(creator, five("b")))
    await asyncio.sleep(0)
    server.answer.set()

    results = await asyncio.gather(first, second)

    assert [made(each) for each in results] == [5, 2]
    assert len(cluster_state.snapshot().node_claims) == 7
    assert sorted(results[1].refused) == [2, 3, 4]
    assert all("--max-nodes-total" in why for why in results[1].refused.values())


@pytest.mark.parametrize("error", [ApiError("no", status=400), FencedError("lost the lease")])
async def test_failed_creation_frees_its_share_of_the_limit(error):
    """A refused write takes no room from the next one."""
    creator, server, _ = desk(max_nodes_total=5)
    server.answer.set()
    server.refuse = error
    try:
        assert made(await create(creator, five("a"))) == 0
    except FencedError:
        await asyncio.sleep(0)
    server.refuse = None

    assert made(await create(creator, five("b"))) == 5


async def test_cancelled_creation_frees_its_share_of_the_limit():
    """Also for claims whose turn had not come."""
    creator, server, _ = desk(max_nodes_total=5)
    order = asyncio.create_task(create(creator, five("a")))
    await asyncio.sleep(0)
    order.cancel()
    with pytest.raises(asyncio.CancelledError):
        await order
    server.answer.set()

    assert made(await create(creator, five("b"))) == 5


async def test_claims_of_the_highest_priority_are_created_first():
    """In every order of the plan."""
    creator, server, _ = desk(max_nodes_total=2)
    server.answer.set()
    claims = planned(*(pod(f"web-{i}", cpu="3", priority=100 * (i % 3)) for i in range(6)))

    creation = await create(creator, claims)

    assert [name is not None for name in creation.names] == [False, False, True] * 2


async def test_a_refusal_is_predicted_before_creation():
    """Asking takes no room."""
    creator, server, _ = desk(launches_per_minute=5)
    server.answer.set()
    assert creator.refusal(five("a"), pools={}) == ""
    assert "has reached its limit" in creator.refusal(five("a") + five("b"), pools={})

    assert made(await create(creator, five("a"))) == 5
    assert "has reached its limit" in creator.refusal(planned(pod("one", cpu="3")), pools={})


async def test_claims_that_a_limit_of_launches_holds_back_are_counted():
    creator, server, _ = desk(max_nodes_total=2)
    server.answer.set()
    assert made(await create(creator, five())) == 2

    held = creator._runtime.metrics.registry.get_sample_value(
        "karpenter_nodeclaims_held_back_total",
        {"nodepool": "default", "reason": "max_nodes_total"},
    )
    assert held == 3


async def test_claims_that_belong_together_are_all_created_or_none():
    creator, server, _ = desk(max_nodes_total=4)
    server.answer.set()

    creation = await creator.create(
        five(),
        pools={},
        decision_ref=DECIDED,
        reason="provisioned",
        annotations=[{"gang": "a"}] * 5,
    )

    assert made(creation) == server.asked == 0
    assert sorted(creation.refused) == [0, 1, 2, 3, 4]
    assert all("--max-nodes-total" in why for why in creation.refused.values())


def changed(cluster_state, **spec):
    """Show the pool with another spec or other metadata."""
    pool = cluster_state.snapshot().node_pools["default"]
    metadata = pool.metadata.model_copy(
        update={"resource_version": "9", **spec.pop("metadata", {})}
    )
    spec = pool.spec.model_copy(update=spec)
    cluster_state.fold(ObjectWritten(pool.model_copy(update={"metadata": metadata, "spec": spec})))


SHUT = '[{"name": "x", "schedule": "0 0 1 1 *", "duration": "8784h", "shutdown": true}]'


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"deletion_timestamp": EPOCH, "finalizers": ("x",)}}, "gone"),
        ({"metadata": {"annotations": {SCHEDULES: SHUT}}}, "is shut down by"),
        ({"metadata": {"annotations": {SCHEDULES: "["}}}, SCHEDULES),
        ({"limits": {"cpu": Quantity("1")}}, "cpu"),
    ],
)
async def test_a_pool_that_has_changed_since_the_plan_gets_no_claims(change, why):
    creator, server, cluster_state = desk()
    server.answer.set()
    changed(cluster_state, **change)

    creation = await create(creator, five())

    assert server.asked == 0
    assert len(creation.refused) == 5
    assert all(why in text for text in creation.refused.values())


RELABELLED = node_pool().spec.template.model_copy(
    update={"metadata": TemplateMetadata(labels={"team": "b"})}
)


async def test_no_claim_is_created_by_a_plan_for_another_template():
    """It would have the labels of the plan and the hash of the new template: no drift would show it."""
    creator, server, cluster_state = desk()
    server.answer.set()
    pools = cluster_state.snapshot().node_pools
    changed(cluster_state, template=RELABELLED)

    assert "template" in creator.refusal(five(), pools=pools)
    creation = await create(creator, five(), pools)

    assert server.asked == 0
    assert all("template" in why for why in creation.refused.values())
    assert len(creation.refused) == 5


async def test_claims_that_wait_for_their_creation_are_not_created_for_another_template(
    monkeypatch,
):
    """Hundreds of claims take seconds."""
    monkeypatch.setattr(claim_creator, "CONCURRENCY", 2)
    creator, server, cluster_state = desk()
    creating = asyncio.create_task(create(creator, five(), cluster_state.snapshot().node_pools))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    changed(cluster_state, template=RELABELLED)
    server.answer.set()
    creation = await creating

    assert made(creation) == server.asked == 2
    assert len(creation.refused) == 3


async def test_another_spec_with_the_same_template_does_not_hold_claims_up():
    creator, server, cluster_state = desk()
    server.answer.set()
    pools = cluster_state.snapshot().node_pools
    changed(cluster_state, weight=7)

    assert made(await create(creator, five(), pools)) == 5


async def test_a_pool_over_its_limits_gets_no_claims_and_says_which():
    creator, server, cluster_state = desk()
    server.answer.set()
    await create(creator, five("a"))
    changed(cluster_state, limits={NODES: Quantity("4")})

    creation = await create(creator, five("b"))

    assert set(creation.refused.values()) == {f"resource usage exceeds limit ({NODES})"}


async def test_a_pool_that_is_gone_gets_no_claims():
    creator, server, cluster_state = desk()
    server.answer.set()
    cluster_state.fold(ObjectRemoved(cluster_state.snapshot().node_pools["default"]))

    assert len((await create(creator, five())).refused) == 5
    assert server.asked == 0


class DoubtfulServer:
    """Answers each creation by the next of some errors, and notes when it was asked."""

    def __init__(self, clock, errors):
        self.errors, self.times, self.read_back = list(errors), [], []
        self.notices = []
        self._clock = clock

    async def create(self, _kind, _manifest, *, answer_seconds):
        self.times.append(self._clock.monotonic())
        if self.errors:
            error = self.errors.pop(0)
            if error is HANG:
                await self._clock.sleep(answer_seconds)
            raise error

    async def patch(self, _kind, name, body):
        self.read_back.append((name, list(body["metadata"]["annotations"])))


def sent(*errors):
    """Create a claim on a server with these errors; return the server and the outcome."""

    async def story():
        clock = LoopClock()
        server = DoubtfulServer(clock, errors)
        cluster_state = ClusterState(synced_state(ready_node_pool(node_pool())), clock)
        metrics = Metrics()
        creator = ClaimCreator(
            writer=ObjectWriter(
                kube_writer=server,
                cluster_state=cluster_state,
                publish=server.notices.append,
                metrics=metrics,
                owns_nodes=True,
            ),
            runtime=ControllerRuntime(
                clock=clock, new_id=map(str, count()).__next__, metrics=metrics
            ),
            launch_limits=LaunchLimits(),
        )
        begun = clock.monotonic()
        creation = await create(creator, planned(pod("web", cpu="3")))
        server.times = [at - begun for at in server.times]
        return server, creation

    outcome = []

    async def keep():
        outcome.append(await story())

    run_virtual(keep())
    return outcome[0]


HANG = ApiError("no answer in time", status=0)
"""A server that never answers."""

DOUBTS = [ApiError("connection reset", status=0), ApiError("internal error", status=500)]


@pytest.mark.parametrize("error", DOUBTS)
def test_a_creation_in_doubt_is_repeated_ever_more_slowly_and_then_given_up(error):
    server, creation = sent(*[error] * 9)
    assert server.times == pytest.approx([0, 0.5, 1.5, 3.5, 7.5, 15.5], abs=0.01)
    assert made(creation) == 0


@pytest.mark.parametrize("error", DOUBTS)
def test_a_claim_that_exists_after_a_lost_answer_is_read_back(error):
    server, creation = sent(error, ConflictError("exists", status=409))
    assert made(creation) == 1
    assert [name for name, _ in server.read_back] == list(creation.names)


@pytest.mark.parametrize(
    "error", [ConflictError("exists", status=409), ApiError("invalid", status=422)]
)
def test_a_creation_that_is_refused_is_not_repeated(error):
    server, creation = sent(error)
    assert (len(server.times), made(creation), server.read_back) == (1, 0, [])


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
def test_a_refusal_by_the_api_server_is_said_on_the_nodepool(status):
    """A policy or a quota refuses the next NodeClaim too: the log alone would tell nobody."""
    server, _ = sent(ApiError("POST nodeclaims: denied by policy", status=status))
    (notice,) = server.notices
    assert (notice.regarding.kind, notice.type, notice.reason) == (
        "NodePool",
        "Warning",
        "NodeClaimRefused",
    )
    assert notice.message == (
        "The API server refuses NodeClaims of this NodePool: POST nodeclaims: denied by policy"
    )


@pytest.mark.parametrize(
    "error", [*DOUBTS, ConflictError("exists", status=409), ApiError("slow down", status=429)]
)
def test_an_error_that_passes_is_not_said_on_the_nodepool(error):
    assert sent(*[error] * 9)[0].notices == []


OUTAGE = ApiError(
    'POST nodeclaims: Internal error occurred: failed calling webhook "claims.example.com": failed to '
    'call webhook: Post "https://claims.example.svc:443/": context deadline exceeded',
    status=500,
)


def test_a_webhook_that_does_not_answer_is_tried_twice_and_said_on_the_nodepool():
    """Each call may take half a minute, and the whole pass waits: it is made again soon."""
    server, creation = sent(*[OUTAGE] * 9)
    assert len(server.times) == 2
    assert creation.rejected == {0: str(OUTAGE)}
    (notice,) = server.notices
    assert notice.reason == "NodeClaimRefused"
    assert "failed calling webhook" in notice.message


async def test_a_webhook_that_does_not_answer_is_not_asked_for_each_claim(monkeypatch):
    """A thousand claims, 32 at a time, would keep the pass for minutes."""
    monkeypatch.setattr(claim_creator, "CONCURRENCY", 2)
    monkeypatch.setattr(claim_creator, "RETRY_SECONDS", 0)
    creator, server, _ = desk()
    server.answer.set()
    server.refuse = OUTAGE

    creation = await create(creator, five())

    assert server.asked == 4
    assert creation.rejected == dict.fromkeys(range(5), str(OUTAGE))


def test_an_api_server_that_does_not_answer_is_waited_for_twice():
    """The client itself waits for a minute, and the whole pass waits: it is made again soon."""
    server, creation = sent(*[HANG] * 9)
    assert server.times == pytest.approx([0, 35.5], abs=0.01)
    assert creation.names == (None,)
    assert creation.rejected == {0: "no answer in time"}


def test_a_claim_that_was_created_without_an_answer_in_time_is_read_back():
    server, creation = sent(HANG, ConflictError("exists", status=409))
    assert made(creation) == 1
    assert [name for name, _ in server.read_back] == list(creation.names)


BUSY = TooManyRequestsError("slow down", status=429)


@pytest.mark.parametrize(("error", "asked"), [*((each, 2 * 6) for each in DOUBTS), (BUSY, 1)])
async def test_an_api_server_without_an_answer_is_not_asked_for_each_claim(
    monkeypatch, error, asked
):
    """An etcd that does not answer, say: a thousand claims would keep the pass for half an hour."""
    monkeypatch.setattr(claim_creator, "CONCURRENCY", 2)
    monkeypatch.setattr(claim_creator, "RETRY_SECONDS", 0)
    creator, server, _ = desk()
    server.answer.set()
    server.refuse = error

    creation = await create(creator, five())

    assert server.asked == asked
    assert creation.rejected == dict.fromkeys(range(5), str(error))


async def test_a_claim_that_the_api_server_refuses_keeps_no_other_from_being_created():
    """A policy may look at anything in it: the answer for one says nothing of the next."""
    creator, server, _ = desk()
    server.answer.set()
    server.refuse = ApiError("denied by policy", status=403)

    creation = await create(creator, five())

    assert server.asked == 5
    assert creation.rejected == dict.fromkeys(range(5), "denied by policy")
    assert creation.refused == {}


async def test_a_claim_that_is_not_wanted_at_its_turn_is_not_created():
    """As replicas of a static pool that is scaled down while its claims wait."""
    creator, server, _ = desk()
    server.answer.set()
    wanted = iter([True, True, False, True, False])

    creation = await creator.create(
        five(), pools={}, decision_ref=DECIDED, reason="provisioned", is_wanted=lambda: next(wanted)
    )

    assert server.asked == made(creation) == 3
    assert creation.refused == {2: UNWANTED, 4: UNWANTED}


async def test_a_server_error_for_one_nodepool_keeps_no_other_from_its_claims():
    """A webhook may fail on what one NodePool has; its claims would come first in each pass."""
    outages = CreationOutages()
    outages.note("broken", DOUBTS[1])
    assert (outages.reason_for("broken"), outages.reason_for("other")) == ("internal error", "")
    outages.note("other", ApiError("denied", status=403))
    assert outages.reason_for("other") == ""


@pytest.mark.parametrize(
    ("names", "text"),
    [("a", "a"), ("abcde", "a, b, c, d, e"), ("abcdefg", "a, b, c, d, e and 2 other(s)")],
)
def test_the_log_names_the_cheapest_types_and_counts_the_others(names, text):
    assert _type_names(tuple(names)) == text
