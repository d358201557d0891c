"""Creating claims: limits and brakes hold for all who order, whatever happens to the answers."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from karpenter_core.controllers.apply import Hands
from karpenter_core.controllers.feed import Feed
from karpenter_core.controllers.metrics import Metrics
from karpenter_core.controllers.provisioning.claims import Decided
from karpenter_core.controllers.provisioning.creation import ClaimCreator
from karpenter_core.controllers.reconciler import Runtime
from karpenter_core.errors import ApiError, FencedError
from karpenter_core.operator.clock import SystemClock
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.brakes import Brakes
from karpenter_core.state.events import Wrote
from karpenter_core.testing.builders import node_pool, pod, problem
from karpenter_core.testing.machines import node_claim, ready, state

DECIDED = Decided(id="d-1", cause="a test")


class SlowServer:
    """An API server that answers when a test lets it; what it took is folded, as the writer does."""

    def __init__(self, feed):
        self.asked = 0
        self.refuse: Exception | None = None
        self.answer = asyncio.Event()
        self._feed = feed

    async def create(self, _kind, manifest):
        self.asked += 1
        await self.answer.wait()
        if self.refuse is not None:
            raise self.refuse
        claim = node_claim(manifest["metadata"]["name"])
        bare = claim.status.model_copy(update={"conditions": ()})
        self._feed.fold(Wrote(claim.model_copy(update={"status": bare})))


def desk(**brakes):
    pool = ready(node_pool())
    metrics, clock = Metrics(), SystemClock()
    feed = Feed(state(pool), clock)
    server = SlowServer(feed)
    hands = Hands(writer=server, feed=feed, publish=print, metrics=metrics)
    runtime = Runtime(clock=clock, new_id=map(str, count()).__next__, metrics=metrics)
    creator = ClaimCreator(hands=hands, runtime=runtime, brakes=Brakes(**brakes))
    return creator, server, feed


def planned(*pods):
    """One machine for each pod."""
    plans = [solve(problem([each], pools=[node_pool()])) for each in pods]
    return [plan.claims[0] for plan in plans]


def five(prefix="web"):
    return planned(*(pod(f"{prefix}-{i}", cpu="3") for i in range(5)))


def made(creation):
    return sum(name is not None for name in creation.names)


async def create(creator, claims):
    return await creator.create(claims, decided=DECIDED, reason="provisioned")


async def test_two_who_order_at_once_share_a_limit():
    """Neither has heard from the API server yet when the other is granted."""
    creator, server, feed = desk(max_nodes_total=7)
    first = asyncio.create_task(create(creator, five("a")))
    await asyncio.sleep(0)
    second = asyncio.create_task(create(creator, five("b")))
    await asyncio.sleep(0)
    server.answer.set()

    results = await asyncio.gather(first, second)

    assert [made(each) for each in results] == [5, 2]
    assert len(feed.snapshot().node_claims) == 7
    assert sorted(results[1].refused) == [2, 3, 4]
    assert all("--max-nodes-total" in why for why in results[1].refused.values())


@pytest.mark.parametrize("error", [ApiError("no", status=400), FencedError("lost the lease")])
async def test_what_was_not_created_is_given_back(error):
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


async def test_an_order_that_is_cancelled_gives_its_room_back():
    """Also for claims whose turn had not come."""
    creator, server, _ = desk(max_nodes_total=5)
    order = asyncio.create_task(create(creator, five("a")))
    await asyncio.sleep(0)
    order.cancel()
    with pytest.raises(asyncio.CancelledError):
        await order
    server.answer.set()

    assert made(await create(creator, five("b"))) == 5


async def test_of_too_many_those_with_the_highest_priority_are_created():
    """Whatever their place in the plan."""
    creator, server, _ = desk(max_nodes_total=2)
    server.answer.set()
    claims = planned(*(pod(f"web-{i}", cpu="3", priority=100 * (i % 3)) for i in range(6)))

    creation = await create(creator, claims)

    assert [name is not None for name in creation.names] == [False, False, True] * 2


async def test_whoever_needs_all_can_ask_before():
    """Asking takes no room."""
    creator, server, _ = desk(launches_per_minute=5)
    server.answer.set()
    assert creator.refusal(five("a")) == ""
    assert "waits for its turn" in creator.refusal(five("a") + five("b"))

    assert made(await create(creator, five("a"))) == 5
    assert "waits for its turn" in creator.refusal(planned(pod("one", cpu="3")))
