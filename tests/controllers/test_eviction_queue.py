"""The eviction queue evicts pods (acceptance cases 97-107, and the protection of 108-111).

What one entry and one answer mean is tested in `tests/lifecycle/node/test_termination.py`
(`TestEvictionQueue`), what annotations come to in `tests/state/test_pod_rules.py` and
`tests/disruption/test_candidates.py` (108-113).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, SAFE_TO_EVICT, SURGE_MOVE
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.node.eviction import EvictionQueue
from karpenter_core.controllers.node.surge_moves import SurgeMoves
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import ApiError, ConflictError, NotFoundError, TooManyRequestsError
from karpenter_core.kube.resources import PODS
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.node.drain import Eviction
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.state.events import ObjectObserved, ObjectRemoved
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import disruption_budget, node, node_claim, synced_state
from tests.controllers.contacts import Contacts

REFUSAL = TooManyRequestsError("Cannot evict pod", status=429, causes=("DisruptionBudget",))
THROTTLED = TooManyRequestsError("HTTP status 429", status=429, retry_after=timedelta(seconds=16))
SEVERAL = ApiError("This pod has more than one PodDisruptionBudget", status=500)


class Server:
    """Answers evictions and deletions of pods, and remembers them."""

    def __init__(self, clock, refusal):
        self.refusal, self.deletion = refusal, None
        self.evicted, self.deleted, self.asked = [], [], 0
        self._clock = clock

    async def evict(self, item):
        self.asked += 1
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.evicted.append(item.uid)

    async def delete(self, kind, name, *, namespace, uid, grace_seconds):
        assert (kind.kind, namespace, bool(name)) == ("Pod", "default", True)
        if self.deletion is not None:
            raise self.deletion
        self.deleted.append((uid, grace_seconds, self._clock.now()))


class Scene:
    """A running queue over a state of these objects."""

    def __init__(self, objects, refusal):
        self.clock = LoopClock()
        self.metrics = Metrics()
        self.server = Server(self.clock, refusal)
        self.notices = []
        self.builder = synced_state(*objects, now=self.clock.now())
        self.cluster_state = ClusterState(self.builder, self.clock)
        writer = ObjectWriter(
            kube_writer=self.server,
            cluster_state=self.cluster_state,
            publish=self.notices.append,
            metrics=self.metrics,
            owns_nodes=True,
        )
        runtime = ControllerRuntime(
            clock=self.clock, new_id=SequentialIds("id"), metrics=self.metrics
        )
        self.contacts = Contacts()
        freshness = FreshnessGuard(
            self.contacts, metrics=self.metrics, node_class_groups=frozenset()
        )
        self.queue = EvictionQueue(
            writer=writer, runtime=runtime, freshness=freshness, surge_moves=None
        )

    def running(self, name="a", *, grace=30, start=True, annotations=None):
        """A pod that runs on the node, known to the state."""
        built = pod(name, node_name="web", phase="Running")
        shape = msgspec.structs.replace(
            built.shape,
            termination_grace_period_seconds=grace,
            annotations=annotations or {},
        )
        item = msgspec.structs.replace(
            built, shape=shape, start_time=self.clock.now() if start else None
        )
        self.cluster_state.fold(ObjectObserved(item))
        return item

    def after(self, **delta):
        return self.clock.now() + timedelta(**delta)

    def add(self, *items, deadline=None):
        self.queue.add(Eviction(pod=item, deadline=deadline) for item in items)

    def messages_of(self, reason):
        return [notice.message for notice in self.notices if notice.reason == reason]

    def requests(self, code):
        return self._sample("karpenter_pods_eviction_requests_total", code=code)

    def drained(self, reason):
        return self._sample("karpenter_pods_drained_total", reason=reason)

    def _sample(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def play(scenario, *objects, refusal=None):
    """Run a scenario with a queue, in simulated time."""

    async def run_scenario():
        scene = Scene(objects, refusal)
        task = asyncio.create_task(scene.queue.run())
        try:
            await scenario(scene)
        finally:
            task.cancel()

    run_virtual(run_scenario())


def test_a_pod_that_is_not_there_is_forgotten():
    """Cases 97, 106: also one whose name another pod has now."""

    async def scenario(scene):
        item = scene.running()
        scene.cluster_state.fold(ObjectRemoved(item))
        scene.add(item)
        await scene.clock.sleep(1)
        assert item.uid not in scene.queue

        other = msgspec.structs.replace(scene.running("b"), uid="another")
        scene.cluster_state.fold(ObjectObserved(other))
        gone = msgspec.structs.replace(other, uid="older")
        scene.add(gone)
        await scene.clock.sleep(1)
        assert len(scene.queue) == 0
        assert (scene.server.asked, scene.notices) == (0, [])

    play(scenario)


def test_a_pod_is_evicted_and_counted():
    """Case 98: the reason of an unknown node is empty."""

    async def scenario(scene):
        item = scene.running()
        scene.add(item)
        await scene.clock.sleep(1)
        assert scene.server.evicted == [item.uid]
        assert scene.messages_of("Evicted") == ["Evicted pod: "]
        assert (scene.requests("200"), scene.drained(""), len(scene.queue)) == (1.0, 1.0, 0)

    play(scenario)


def test_the_reason_is_the_claims():
    """Case 99."""
    claim = node_claim("web", stage="Initialized")
    interrupted = with_condition(
        claim, "DisruptionReason", reason="SpotInterruption", now=claim.metadata.creation_timestamp
    )

    async def scenario(scene):
        scene.add(scene.running())
        await scene.clock.sleep(1)
        assert scene.messages_of("Evicted") == ["Evicted pod: SpotInterruption"]
        assert scene.drained("SpotInterruption") == 1.0

    play(scenario, interrupted, node("web", claim=interrupted))


@pytest.mark.parametrize(
    ("refusal", "code", "text"),
    [
        (REFUSAL, "429", "evicting pod violates a PDB (Pod=default/a): PodDisruptionBudget"),
        (SEVERAL, "500", "eviction does not support multiple PDBs (Pod=default/a): Pod"),
    ],
)
def test_refused_eviction_gets_an_event_and_backs_off(refusal, code, text):
    """Cases 100, 101: 100 ms, doubling to 10 s, until the budget allows it."""

    async def scenario(scene):
        item = scene.running()
        scene.add(item)
        await scene.clock.sleep(60)
        assert item.uid in scene.queue
        assert 8 <= scene.requests(code) <= 13
        assert f"Failed to drain node, {text}" in scene.messages_of("FailedDraining")[0]
        assert scene.messages_of("FailedDraining")[0].endswith("default/budget")

        scene.server.refusal = None
        await scene.clock.sleep(11)
        assert (scene.server.evicted, len(scene.queue)) == ([item.uid], 0)

    play(scenario, node("web"), disruption_budget(), refusal=refusal)


def test_an_overloaded_api_server_is_backed_off_without_naming_a_budget():
    """Priority and Fairness says 429 too, with the time to wait and without a cause."""

    async def scenario(scene):
        item = scene.running()
        scene.add(item)
        await scene.clock.sleep(40)
        assert scene.requests("429") == 3.0
        assert scene.messages_of("FailedDraining") == []

        scene.server.refusal = None
        await scene.clock.sleep(10)
        assert (scene.server.evicted, len(scene.queue)) == ([item.uid], 0)

    play(scenario, node("web"), disruption_budget(), refusal=THROTTLED)


def test_the_answer_that_denies_an_eviction_is_an_event_of_the_node():
    """A webhook may refuse it, or the controller lacks the right; it is repeated with a back-off."""

    async def scenario(scene):
        item = scene.running()
        scene.add(item)
        await scene.clock.sleep(60)
        (text,) = set(scene.messages_of("FailedDraining"))
        assert "the API server denies the eviction (Pod=default/a): " in text
        assert text.endswith('admission webhook "guard.example.com" denied the request: not now')

        scene.server.refusal = None
        await scene.clock.sleep(30)
        assert (scene.server.evicted, len(scene.queue)) == ([item.uid], 0)

    denial = 'admission webhook "guard.example.com" denied the request: not now'
    play(scenario, node("web"), disruption_budget(), refusal=ApiError(denial, status=403))


@pytest.mark.parametrize(
    ("error", "code", "counted"),
    [
        (ApiError("connection reset", status=0), "0", False),
        (ApiError("internal error", status=500), "500", True),
        (TooManyRequestsError("slow down", status=429), "429", True),
    ],
)
def test_an_eviction_that_fails_otherwise_is_repeated_with_a_back_off(error, code, counted):
    """Only answers are counted, and no budget is named."""

    async def scenario(scene):
        item = scene.running()
        scene.add(item)
        await scene.clock.sleep(60)
        assert 6 <= scene.server.asked <= 20
        assert scene.requests(code) == counted * scene.server.asked
        assert scene.messages_of("FailedDraining") == []

        scene.server.refusal = None
        await scene.clock.sleep(61)
        assert (scene.server.evicted, len(scene.queue)) == ([item.uid], 0)

    play(scenario, node("web"), disruption_budget(), refusal=error)


def test_a_pod_whose_time_ends_does_not_wait_for_an_api_server_with_too_much_to_do():
    """The deadline is the node's: the pod needs 30 s of the 35 that are left."""

    async def scenario(scene):
        item = scene.running(grace=30)
        scene.add(item, deadline=scene.after(seconds=35))
        started = scene.clock.now()
        await scene.clock.sleep(10)
        [(uid, grace, at)] = scene.server.deleted
        assert (uid, (at - started).seconds) == (item.uid, 5)
        assert 29 <= grace <= 30

    play(scenario, node("web"), refusal=THROTTLED)


@pytest.mark.parametrize(
    "gone", [NotFoundError("gone", status=404), ConflictError("x", status=409)]
)
def test_a_pod_that_went_by_itself_is_done_silently(gone):
    async def scenario(scene):
        scene.add(scene.running())
        await scene.clock.sleep(1)
        assert (len(scene.queue), scene.notices) == (0, [])

    play(scenario, refusal=gone)


def test_one_refusal_does_not_hold_up_the_others():
    async def scenario(scene):
        scene.add(scene.running("held"))
        await scene.clock.sleep(5)
        scene.server.refusal = None
        others = [scene.running(f"web-{n}") for n in range(50)]
        scene.add(*others)
        await scene.clock.sleep(0.01)
        assert set(scene.server.evicted) >= {item.uid for item in others}

    play(scenario, node("web"), refusal=REFUSAL)


def test_a_thousand_pods_added_while_the_queue_works_are_evicted_once_each():
    """Case 102: each by several drains at once."""

    async def scenario(scene):
        items = [scene.running(f"web-{n:04}") for n in range(1000)]

        async def add(batch):
            for item in batch:
                scene.add(item)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for start in range(0, 1000, 100):
                group.create_task(add(items[start : start + 100]))
                group.create_task(add(items[start : start + 100][::-1]))
        await scene.clock.sleep(5)
        assert len(scene.queue) == 0
        assert sorted(item.uid for item in items) == sorted(scene.server.evicted)

    play(scenario)


def test_pod_is_evicted_once_while_the_watch_is_behind():
    """The drain runs again and again; a failed eviction is repeated in the end."""

    async def scenario(scene):
        item = scene.running()
        for _ in range(9):
            scene.add(item)
            await scene.clock.sleep(1)
        assert scene.server.evicted == [item.uid]
        await scene.clock.sleep(2)
        scene.add(item)
        await scene.clock.sleep(0.1)
        assert scene.server.evicted == [item.uid, item.uid]
        scene.cluster_state.fold(ObjectRemoved(item))
        scene.cluster_state.fold(ObjectObserved(msgspec.structs.replace(item, uid="next")))
        scene.add(msgspec.structs.replace(item, uid="next"))
        await scene.clock.sleep(0.1)
        assert scene.server.evicted[-1] == "next"

    play(scenario)


def test_a_pod_past_the_deadline_is_deleted_despite_its_budget():
    """Case 103: a grace of 120 s, and a minute left."""

    async def scenario(scene):
        item = scene.running(grace=120, annotations={DO_NOT_DISRUPT: "true"})
        scene.add(item, deadline=scene.after(minutes=1))
        await scene.clock.sleep(0.1)
        assert [result[:2] for result in scene.server.deleted] == [(item.uid, 60)]
        (text,) = scene.messages_of("Disrupted")
        assert "granted 60 seconds of grace-period of its 120" in text
        assert (len(scene.queue), scene.server.asked) == (0, 0)

    play(scenario, refusal=REFUSAL)


@pytest.mark.parametrize("status", [403, 500])
def test_the_answer_that_denies_the_deletion_of_a_pod_is_an_event_of_the_node(status):
    """The node outlives its deadline until the webhook or policy agrees; an error that passes is none."""
    denial = "Deployment web is protected"

    async def scenario(scene):
        item = scene.running(grace=60)
        scene.server.deletion = ApiError(denial, status=status)
        scene.add(item, deadline=scene.after(seconds=20))
        await scene.clock.sleep(60)
        text = f"the API server denies the deletion (Pod=default/a): {denial}"
        expected = {f"Failed to drain node, {text}"} if status == 403 else set()
        assert set(scene.messages_of("FailedDraining")) == expected

        scene.server.deletion = None
        await scene.clock.sleep(11)
        assert [result[:2] for result in scene.server.deleted] == [(item.uid, 1)]
        assert len(scene.queue) == 0

    play(scenario, node("web"))


def test_a_pod_that_went_before_it_could_be_deleted_is_done_silently():
    """No disruption event is sent, and it is not counted."""

    async def scenario(scene):
        scene.server.deletion = NotFoundError("gone", status=404)
        scene.add(scene.running(), deadline=scene.after(seconds=20))
        await scene.clock.sleep(60)
        assert scene.server.deleted == []
        assert (len(scene.queue), scene.notices) == (0, [])

    play(scenario)


def test_a_deadline_that_comes_later_counts():
    """Case 104: the pod was queued without one."""

    async def scenario(scene):
        item = scene.running(grace=120)
        scene.add(item)
        await scene.clock.sleep(5)
        scene.add(item, deadline=scene.after(minutes=1))
        await scene.clock.sleep(0.1)
        assert [result[:2] for result in scene.server.deleted] == [(item.uid, 60)]

    play(scenario, refusal=REFUSAL)


def test_the_tighter_of_two_deadlines_counts():
    """Case 105: whichever came first; no deadline never loosens one."""

    async def scenario(scene):
        item = scene.running(grace=60)
        tight = scene.after(minutes=2)
        scene.add(item, deadline=tight)
        scene.add(item, deadline=scene.after(minutes=30))
        scene.add(item)
        await scene.clock.sleep(61)
        assert [result[0] for result in scene.server.deleted] == [item.uid]

    play(scenario, refusal=REFUSAL)


def test_a_deadline_long_past_still_leaves_a_second():
    """Case 107: a grace of zero would take the pod out of the cluster while it runs."""

    async def scenario(scene):
        item = scene.running(grace=30)
        scene.add(item, deadline=scene.after(hours=-1))
        await scene.clock.sleep(0.1)
        assert [result[:2] for result in scene.server.deleted] == [(item.uid, 1)]
        assert "granted 1 seconds" in scene.messages_of("Disrupted")[0]

    play(scenario)


@pytest.mark.parametrize(
    ("granted", "deleted"), [(None, [1]), (30, [1]), (2, [1]), (1, []), (0, [])]
)
def test_a_pod_of_a_dead_node_is_deleted_once(granted, deleted):
    """It stays for a minute, and its node asks every second; the API server only shortens a grace."""

    async def scenario(scene):
        item = msgspec.structs.replace(
            scene.running(),
            deletion_timestamp=scene.after(seconds=granted or 0),
            deletion_grace_period_seconds=granted,
        )
        scene.cluster_state.fold(ObjectObserved(item))
        deadline = scene.after(seconds=-1)
        scene.add(item, deadline=deadline)
        await scene.clock.sleep(0.5)
        assert [result[1] for result in scene.server.deleted] == deleted

        ending = msgspec.structs.replace(
            item,
            deletion_timestamp=scene.after(seconds=1),
            deletion_grace_period_seconds=1,
            resource_version=item.resource_version + 1,
        )
        scene.cluster_state.fold(ObjectObserved(ending))
        for _ in range(60):
            scene.add(ending, deadline=deadline)
            await scene.clock.sleep(1)
        assert [result[1] for result in scene.server.deleted] == deleted
        assert scene.drained("") == len(deleted)
        assert len(scene.queue) == 0

    play(scenario)


@pytest.mark.parametrize("annotations", [{}, {DO_NOT_DISRUPT: "true"}, {SAFE_TO_EVICT: "false"}])
def test_a_pod_that_may_not_leave_has_all_of_its_grace_period_at_the_end(annotations):
    """Case 89: by then its back-off is ten seconds, which are not taken from the pod."""

    async def scenario(scene):
        item = scene.running(grace=60, annotations=annotations)
        due = scene.after(seconds=240)
        scene.add(item, deadline=scene.after(seconds=300))
        await scene.clock.sleep(300)
        ((uid, grace, at),) = scene.server.deleted
        assert (uid, grace) == (item.uid, 59)
        assert due < at < due + timedelta(seconds=0.1)

    play(scenario, node("web"), refusal=REFUSAL)


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError('admission webhook "guard.example.com" denied the request: no', status=403),
        ApiError("internal error", status=500),
        ApiError("connection reset", status=0),
    ],
)
def test_a_failing_eviction_takes_nothing_from_the_grace_period_at_the_end(refusal):
    """As for a budget: an eviction that never succeeds is given up in time for a deletion."""

    async def scenario(scene):
        item = scene.running(grace=60)
        due = scene.after(seconds=240)
        scene.add(item, deadline=scene.after(seconds=300))
        await scene.clock.sleep(300)
        ((uid, grace, at),) = scene.server.deleted
        assert (uid, grace) == (item.uid, 59)
        assert due < at < due + timedelta(seconds=0.1)

    play(scenario, node("web"), refusal=refusal)


def test_temporary_protection_is_reported_until_it_expires():
    """Cases 108, 110: the pod is evicted once it has run for so long."""

    async def scenario(scene):
        item = scene.running(annotations={DO_NOT_DISRUPT: "5m"})
        scene.add(item)
        await scene.clock.sleep(240)
        assert (scene.server.evicted, item.uid in scene.queue) == ([], True)
        until = f"{item.start_time + timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"
        text = f"The {DO_NOT_DISRUPT} grace period will elapse at {until}"
        assert set(scene.messages_of("DoNotDisruptUntil")) == {text}
        await scene.clock.sleep(75)
        assert scene.server.evicted == [item.uid]
        assert scene.messages_of("DoNotDisruptGracePeriodElapsed")

    play(scenario)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            "invalid-format",
            (
                'failed to parse "invalid-format" as a duration: '
                'time: invalid duration "invalid-format"'
            ),
        ),
        ("0s", 'duration "0s" must be positive'),
        ("-5m", 'duration "-5m" must be positive'),
    ],
)
def test_an_unreadable_protection_is_reported_and_has_no_effect(value, why):
    """Case 109."""

    async def scenario(scene):
        item = scene.running(annotations={DO_NOT_DISRUPT: value})
        scene.add(item)
        await scene.clock.sleep(1)
        assert scene.server.evicted == [item.uid]
        assert scene.messages_of("InvalidDoNotDisruptAnnotation") == [
            f"Invalid {DO_NOT_DISRUPT} annotation: {why}, ignoring annotation"
        ]

    play(scenario)


def test_a_pod_that_has_not_started_is_protected():
    """Case 111."""

    async def scenario(scene):
        item = scene.running(start=False, annotations={DO_NOT_DISRUPT: "5m"})
        scene.add(item)
        await scene.clock.sleep(600)
        assert (scene.server.evicted, item.uid in scene.queue) == ([], True)

    play(scenario)


def test_nothing_is_evicted_while_the_pods_are_not_shown():
    """Queued pods wait, and are evicted later without a new request."""

    async def scenario(scene):
        item = scene.running()
        scene.contacts.lose(PODS)
        scene.add(item)
        await scene.clock.sleep(300)
        assert scene.server.asked == 0
        scene.contacts.regain(PODS)
        await scene.clock.sleep(1)
        assert scene.server.evicted == [item.uid]

    play(scenario)


class TestPodsThatAskToBeReplacedFirst:
    """Failures to read or restart a Deployment; whole moves are in `test_surge_moves.py`."""

    def play(self, scenario, error):
        """Run a scenario with a queue that reads Deployments, and gets this error."""

        async def run_scenario():
            scene = Scene((), None)
            reads = []

            async def read_rollout(namespace, name):
                reads.append((namespace, name, scene.clock.monotonic()))
                raise error

            writer = scene.queue._writer
            runtime = scene.queue._runtime
            scene.queue._surge_moves = SurgeMoves(
                writer=writer, runtime=runtime, read_rollout=read_rollout
            )
            task = asyncio.create_task(scene.queue.run())
            try:
                await scenario(scene, reads)
            finally:
                task.cancel()

        run_virtual(run_scenario())

    def asking(self, scene):
        item = scene.running("web-5d-a", annotations={SURGE_MOVE: "true"})
        labels = {"pod-template-hash": "5d"}
        shape = msgspec.structs.replace(item.shape, labels=labels)
        item = msgspec.structs.replace(item, shape=shape, owner_name="web-5d", ready=True)
        scene.cluster_state.fold(ObjectObserved(item))
        return item

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (ApiError("deployments is forbidden", status=403), "is forbidden"),
            (NotFoundError("gone", status=404), "there is no Deployment default/web"),
        ],
        ids=["forbidden", "gone"],
    )
    def test_a_deployment_that_cannot_be_had_does_not_hold_the_drain(self, error, text):
        async def scenario(scene, reads):
            item = self.asking(scene)
            scene.add(item)
            await scene.clock.sleep(1)
            assert [read[:2] for read in reads] == [("default", "web")]
            assert scene.server.evicted == [item.uid]
            (message,) = scene.messages_of("RolloutRestartRefused")
            assert text in message

        self.play(scenario, error)

    def test_an_unresponsive_api_server_is_retried_for_ten_minutes(self):
        async def scenario(scene, reads):
            item = self.asking(scene)
            scene.add(item)
            await scene.clock.sleep(590)
            assert len(reads) > 10
            assert scene.server.evicted == []
            await scene.clock.sleep(30)
            assert scene.server.evicted == [item.uid]

        self.play(scenario, ApiError("no answer", status=0))
