"""Nodes of one plan are admitted together, and pods are nominated for them first."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, ON_DEMAND
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.api.records import AffinityTerm, LabelSelector
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclaim import admission
from karpenter_core.controllers.nodeclaim.admission import (
    IDLE_SECONDS,
    MAX_NOMINATIONS_PER_POD,
    MAXIMUM_SECONDS,
    NOMINATION_SECONDS,
    POLL_SECONDS,
    RENEWAL_SECONDS,
    NodeAdmission,
)
from karpenter_core.controllers.provisioning.new_claims import DECISION
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import ConflictError, FencedError
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.nodeclaim.nomination import choose_nominations
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.state.events import ObjectObserved, PodsDecided
from karpenter_core.testing.builders import EPOCH, pod, pod_shape
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.controllers.clocks import StoryClock

AT_ONCE = pytest.approx(POLL_SECONDS, abs=0.11)
APART = AffinityTerm(topology_key=HOSTNAME, selector=LabelSelector(match_labels={"app": "apart"}))


def plain(name):
    return pod_shape(labels={"app": name}, cpu=f"{len(name)}00m")


def picky(name):
    return msgspec.structs.replace(plain(name), pod_anti_affinity=(APART,))


def with_priority(shape, priority):
    return msgspec.structs.replace(shape, priority=priority)


class Admissions:
    """An admission over a state of claims `web-0`, ..., with a pod planned for each."""

    def __init__(self, *shapes, plan=lambda number: "plan"):
        self.clock = StoryClock()
        self.pods = [
            msgspec.structs.replace(pod(f"pod-{n}", shape=shape), resource_version=n + 1)
            for n, shape in enumerate(shapes)
        ]
        self.claims = [
            node_claim(
                f"web-{n}", stage="Launched", annotations={DECISION: plan(n)} if plan(n) else {}
            )
            for n in range(len(shapes))
        ]
        self.nodes = [node(f"node-{n}", claim=claim) for n, claim in enumerate(self.claims)]
        builder = synced_state(*self.pods, *self.claims, *self.nodes, now=EPOCH)
        self.state = ClusterState(builder, self.clock)
        placed = {each.uid: f"web-{n}" for n, each in enumerate(self.pods)}
        self.state.fold(PodsDecided(placed=placed, at=EPOCH))
        self.error = None
        self.nominated = []
        self.answer_seconds = 0.0
        self.under_way = self.most_under_way = 0
        self.admission = NodeAdmission(
            kube_writer=self,
            cluster_state=self.state,
            runtime=ControllerRuntime(
                clock=self.clock, new_id=SequentialIds("id"), metrics=Metrics()
            ),
        )

    async def patch(self, kind, name, body, *, namespace, subresource):
        assert (kind.kind, namespace, subresource) == ("Pod", "default", "status")
        if self.error is not None:
            raise self.error
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.answer_seconds)
        self.under_way -= 1
        self.nominated.append((name, body["status"]["nominatedNodeName"]))
        number = int(name.rpartition("-")[2])
        assert body["metadata"] == {"uid": self.pods[number].uid}
        self.show(number, nominated_node_name=body["status"]["nominatedNodeName"])

    def show(self, number, **changes):
        """Show a pod with a newer version."""
        version = self.pods[number].resource_version + 100
        changed = msgspec.structs.replace(self.pods[number], resource_version=version, **changes)
        self.pods[number] = changed
        self.state.fold(ObjectObserved(changed))

    def play(self, *arrivals, refusals=(), others=()):
        """Let nodes arrive at these seconds; return when each was admitted, or the error.

        The scheduler takes the nomination of `pod-0` back at each of the seconds in `refusals`.
        `others` are coroutines that run beside them.
        """
        ended = {}

        async def arrive(number, at):
            await asyncio.sleep(at)
            try:
                await self.admission.admit(self.claims[number], self.nodes[number])
            except FencedError as error:
                ended[number] = error
            else:
                ended[number] = self.clock.monotonic() - at

        async def refuse(at):
            await asyncio.sleep(at)
            self.show(0, nominated_node_name="")

        async def story():
            running = asyncio.create_task(self.admission.run())
            arriving = [arrive(number, at) for number, at in enumerate(arrivals)]
            parts = (*arriving, *map(refuse, refusals), *others)
            tasks = [asyncio.create_task(each) for each in parts]
            await asyncio.sleep(60)
            for task in (running, *tasks):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

        run_virtual(story())
        return [ended.get(number) for number in range(len(arrivals))]


def test_nodes_of_one_plan_wait_for_each_other_and_their_pods_are_nominated_once():
    scene = Admissions(picky("a"), picky("bb"))
    waits = scene.play(0.0, 1.0)

    assert waits == [pytest.approx(1.1, abs=0.11), AT_ONCE]
    assert sorted(scene.nominated) == [("pod-0", "node-0"), ("pod-1", "node-1")]


def test_nodes_of_pods_with_the_highest_priority_are_opened_first():
    """The scheduler reserves nothing against them: while their nodes are closed they take others."""
    shapes = map(picky, ("a", "bb", "ccc"))
    priorities = (-5, 1000, 0)
    scene = Admissions(*map(with_priority, shapes, priorities))
    opened = []

    async def arrive(number):
        await scene.admission.admit(scene.claims[number], scene.nodes[number])
        opened.append(number)

    scene.play(others=[arrive(number) for number in range(3)])
    assert opened == [1, 2, 0]


def test_a_node_of_plain_pods_waits_for_nodes_of_pods_that_depend_on_others():
    """The first admitted node wakes those pods too: they would take it, or lose their nomination."""
    scene = Admissions(plain("a"), picky("bb"))
    assert scene.play(0.0, 1.0) == [pytest.approx(1.1, abs=0.11), AT_ONCE]


def test_a_node_waits_no_longer_than_the_idle_time_for_the_next():
    scene = Admissions(picky("a"), picky("bb"))
    (wait,) = scene.play(0.0)
    assert wait == pytest.approx(IDLE_SECONDS, abs=0.11)


def test_a_node_waits_no_longer_than_the_maximum_while_others_arrive():
    shapes = [picky("a" * (n + 1)) for n in range(8)]
    waits = Admissions(*shapes).play(*(2.0 * n for n in range(7)))
    assert waits[0] == pytest.approx(MAXIMUM_SECONDS, abs=0.11)


@pytest.mark.parametrize(
    ("shapes", "plan"),
    [
        ([plain("a"), plain("bb")], lambda _: "plan"),
        ([picky("a"), picky("bb")], lambda number: f"plan-{number}"),
        ([picky("a"), picky("bb")], lambda _: ""),
    ],
    ids=["pods that do not mind each other", "another plan", "claims of no plan"],
)
def test_a_node_does_not_wait_for_nodes_that_matter_nothing_to_its_pods(shapes, plan):
    scene = Admissions(*shapes, plan=plan)
    assert scene.play(0.0) == [AT_ONCE]
    assert scene.nominated == [("pod-0", "node-0")]


def test_equal_pods_need_no_nomination():
    shape = picky("a")
    scene = Admissions(shape, shape)
    assert scene.play(0.0) == [0.0]
    assert scene.nominated == []


@pytest.mark.parametrize("state", ["registered", "deleting"])
def test_a_node_does_not_wait_for_claims_that_bring_none(state):
    scene = Admissions(picky("a"), picky("bb"))
    other = scene.claims[1]
    if state == "registered":
        changed = with_condition(other, REGISTERED, now=EPOCH)
    else:
        metadata = other.metadata.model_copy(update={"deletion_timestamp": EPOCH})
        changed = other.model_copy(update={"metadata": metadata})
    scene.state.fold(ObjectObserved(changed))
    assert scene.play(0.0) == [AT_ONCE]


def test_with_too_many_waiting_pods_no_node_waits(monkeypatch):
    monkeypatch.setattr(admission, "MAX_WAITING_PODS", 1)
    assert Admissions(picky("a"), picky("bb")).play(0.0) == [AT_ONCE]


@pytest.mark.parametrize("limit", ["NOMINATION_BURST", "MOST_NOMINATED_PODS"])
def test_nodes_wait_for_each_other_though_not_all_pods_can_be_nominated(monkeypatch, limit):
    """One after another, each would have all pods refused once more that find no room on it."""
    monkeypatch.setattr(admission, limit, 1)
    waits = Admissions(picky("a"), picky("bb")).play(0.0, 1.0)
    assert waits == [pytest.approx(1.1, abs=0.11), AT_ONCE]


def test_pods_that_the_scheduler_has_not_tried_count_among_too_many(monkeypatch):
    """Plans are made for them too, and they wait for the node like those that it has refused."""
    monkeypatch.setattr(admission, "MAX_WAITING_PODS", 2)
    scene = Admissions(picky("a"), picky("bb"), picky("ccc"))
    scene.show(2, unschedulable=False)
    assert scene.play(0.0) == [AT_ONCE]


def test_a_planned_pod_that_the_scheduler_has_not_tried_is_nominated_too():
    """Else it is bound where it fits, and the pods planned for that node are left over."""
    scene = Admissions(plain("a"), plain("bb"), plain("ccc"))
    scene.show(0, unschedulable=False)
    scene.play(0.0)
    assert scene.nominated == [("pod-0", "node-0")]


def test_with_too_many_pending_pods_none_is_nominated(monkeypatch):
    monkeypatch.setattr(admission, "MOST_NOMINATED_PODS", 1)
    scene = Admissions(plain("a"), plain("bb"))
    assert scene.play(0.0) == [AT_ONCE]
    assert scene.nominated == []


@pytest.mark.parametrize(("most", "nominated"), [(3, [0, 1, 2]), (1, [1])])
def test_with_too_many_pending_pods_those_are_nominated_that_few_nodes_take(
    monkeypatch, most, nominated
):
    monkeypatch.setattr(admission, "MOST_NOMINATED_PODS", most)
    on_demand = pod_shape(labels={"app": "paid"}, node_selector={CAPACITY_TYPE: ON_DEMAND})
    scene = Admissions(plain("a"), on_demand, plain("ccc"))
    scene.play(0.0, 0.0, 0.0)
    assert sorted(scene.nominated) == [(f"pod-{n}", f"node-{n}") for n in nominated]


def test_a_pod_that_cannot_be_written_holds_up_no_node():
    scene = Admissions(plain("a"), plain("bb"))
    scene.error = ConflictError("changed", status=409)
    assert scene.play(0.0) == [AT_ONCE]


def test_an_api_server_that_does_not_answer_nominations_holds_up_nodes_for_seconds():
    """A webhook for pods may time out, and a busy API server asks to wait: nodes must be admitted."""
    scene = Admissions(plain("a"), plain("bb"))
    scene.answer_seconds = 50.0
    assert scene.play(0.0) == [pytest.approx(NOMINATION_SECONDS, abs=0.21)]


def test_a_renewal_that_is_not_answered_holds_up_the_next_node_for_seconds():
    scene = Admissions(plain("a"), plain("bb"))

    async def story():
        running = asyncio.create_task(scene.admission.run())
        await scene.admission.admit(scene.claims[0], scene.nodes[0])
        scene.answer_seconds = 50.0
        scene.show(0, nominated_node_name="")
        await asyncio.sleep(2 * POLL_SECONDS)
        begun = scene.clock.monotonic()
        scene.answer_seconds = 0.0
        await scene.admission.admit(scene.claims[1], scene.nodes[1])
        running.cancel()
        assert scene.clock.monotonic() - begun == pytest.approx(NOMINATION_SECONDS, abs=0.31)

    run_virtual(story())


def test_few_nominations_are_under_way_at_once(monkeypatch):
    """Each needs a connection of its own, and hundreds of those cost time and memory."""
    monkeypatch.setattr(admission, "CONCURRENCY", 3)
    scene = Admissions(*(plain("a" * n) for n in range(1, 9)))
    scene.answer_seconds = 0.01
    scene.play(*[0.0] * 8)
    assert len(scene.nominated) == 8
    assert scene.most_under_way == 3


def test_a_pod_that_is_bound_before_its_turn_is_not_nominated(monkeypatch):
    """The API server would refuse it."""
    monkeypatch.setattr(admission, "CONCURRENCY", 1)
    scene = Admissions(plain("a"), plain("bb"), plain("ccc"))
    scene.answer_seconds = 1.0

    async def story():
        running = asyncio.create_task(scene.admission.run())
        arrivals = [
            asyncio.create_task(scene.admission.admit(*each))
            for each in zip(scene.claims, scene.nodes, strict=True)
        ]
        await asyncio.sleep(POLL_SECONDS + 0.5)
        scene.show(1, node_name="node-1")
        await asyncio.gather(*arrivals)
        running.cancel()

    run_virtual(story())
    assert [name for name, _ in scene.nominated] == ["pod-0", "pod-2"]


def test_a_lost_lease_wakes_every_waiter():
    scene = Admissions(picky("a"), picky("bb"))
    scene.error = FencedError("not the leader")
    assert [type(end) for end in scene.play(0.0, 1.0)] == [FencedError, FencedError]


def test_a_refused_pod_is_nominated_again_for_a_while():
    """The scheduler takes a nomination back when it finds no place for the pod."""
    scene = Admissions(plain("a"), plain("bb"))
    scene.play(0.0, refusals=[1.0, 2.0, RENEWAL_SECONDS - 1, RENEWAL_SECONDS + 1])
    assert scene.nominated == [("pod-0", "node-0")] * 4


def test_a_refused_pod_is_nominated_again_while_others_of_its_plan_are_bound():
    """A busy scheduler binds the pods of one plan over more seconds than its longest back-off."""
    scene = Admissions(*map(plain, ("a", "bb", "ccc", "dddd")))
    last = 2 * RENEWAL_SECONDS
    refusals = [RENEWAL_SECONDS + 1, last - 1, last + 2]

    async def bind(number, at):
        await asyncio.sleep(at)
        scene.show(number, node_name=f"node-{number}", phase="Running")

    scene.play(0.0, 0.0, 0.0, refusals=refusals, others=[bind(1, 5.0), bind(2, RENEWAL_SECONDS)])
    assert scene.nominated.count(("pod-0", "node-0")) == 3


def test_a_refused_pod_is_nominated_again_for_a_while_after_slow_nominations():
    """Nodes are admitted only when all nominations are answered."""
    scene = Admissions(plain("a"), plain("bb"))
    scene.answer_seconds = slow = 0.8 * NOMINATION_SECONDS

    async def hasten():
        await asyncio.sleep(slow + 1.0)
        scene.answer_seconds = 0.0

    refusals = [slow + RENEWAL_SECONDS - 1, slow + RENEWAL_SECONDS + 1]
    scene.play(0.0, refusals=refusals, others=[hasten()])
    assert scene.nominated == [("pod-0", "node-0")] * 2


def test_a_pod_is_nominated_a_bounded_number_of_times():
    scene = Admissions(plain("a"), plain("bb"))
    scene.play(0.0, refusals=[0.5 * n for n in range(1, 19)])
    assert len(scene.nominated) == MAX_NOMINATIONS_PER_POD


def test_nominations_are_considered_once_for_each_state_of_the_cluster(monkeypatch):
    """Ten times a second they would be read from all pods, for nothing."""
    versions = []

    def counted(snapshot, planned):
        versions.append(snapshot.version)
        return choose_nominations(snapshot, planned)

    monkeypatch.setattr(admission, "choose_nominations", counted)
    scene = Admissions(plain("a"), plain("bb"))
    scene.play(0.0, refusals=[1.0, 2.0])
    assert 3 <= len(versions) <= 2 * len(set(versions)), "an admission has two rounds"
    assert max(versions) > min(versions)


def test_pods_may_be_nominated_again_when_none_of_an_admission_waits_any_more():
    """A pod that has had all its nominations may have another node later."""
    scene = Admissions(plain("a"), plain("bb"))

    async def story():
        running = asyncio.create_task(scene.admission.run())
        await scene.admission.admit(scene.claims[0], scene.nodes[0])
        for _ in range(MAX_NOMINATIONS_PER_POD + 2):
            await asyncio.sleep(0.5)
            scene.show(0, nominated_node_name="")
        await asyncio.sleep(RENEWAL_SECONDS)
        scene.show(1)
        await asyncio.sleep(2 * POLL_SECONDS)
        await scene.admission.admit(scene.claims[0], scene.nodes[0])
        running.cancel()

    run_virtual(story())
    assert len(scene.nominated) == MAX_NOMINATIONS_PER_POD + 1


def test_a_pod_that_is_bound_is_not_nominated_again():
    scene = Admissions(plain("a"), plain("bb"))

    async def story():
        running = asyncio.create_task(scene.admission.run())
        await scene.admission.admit(scene.claims[0], scene.nodes[0])
        scene.show(0, node_name="node-0", phase="Running")
        for _ in range(3):
            await asyncio.sleep(1)
            scene.show(1)
        running.cancel()

    run_virtual(story())
    assert scene.nominated == [("pod-0", "node-0")]
