"""Garbage collection waits, drains and ends by the right clock and state."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
import structlog

from karpenter_core.api.labels import REGISTERED, TERMINATION_FINALIZER
from karpenter_core.api.records import Toleration
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclaim import garbage_collection
from karpenter_core.controllers.nodeclaim.garbage_collection import GarbageCollectionController
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.resources import PODS
from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    DRAIN_LIMIT,
    ORPHAN_GRACE,
    SURPLUS_GRACE,
    SURPLUS_PER_PASS,
)
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.provider.contract import (
    Instance,
    InstanceListing,
    PollingPeriods,
    TerminationStatus,
)
from karpenter_core.state.events import ObjectObserved, ObjectRemoved
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import (
    KWOK,
    node,
    node_and_claim,
    node_claim,
    synced_state,
)
from tests.controllers.clocks import TwoClocks
from tests.controllers.contacts import Contacts

ORPHAN = "kwok://orphan"
ONE = (Instance(provider_id=ORPHAN),)


class Cloud:
    """One provider of the instances that a test puts there."""

    names = ("kwok",)

    def __init__(self, *there):
        self.there = {each.provider_id: each for each in there}
        self.ended = []
        self.while_listing = lambda: None
        self.as_of = lambda: None
        self.period = timedelta(minutes=2)

    def infos(self):
        resource = SimpleNamespace(group=KWOK.group, kind=KWOK.kind)
        return {"kwok": SimpleNamespace(node_classes=[SimpleNamespace(resource=resource)])}

    def polling_periods(self, _provider):
        return PollingPeriods(instances=self.period)

    async def list_instances(self, _provider):
        self.while_listing()
        return InstanceListing(instances=tuple(self.there.values()), as_of=self.as_of())

    async def terminate_leaked(self, _provider, provider_id):
        self.ended.append(provider_id)
        del self.there[provider_id]
        return TerminationStatus.GONE


class Server:
    """Answers what is asked past the watches as the state has it; remembers what is deleted."""

    def __init__(self, cluster_state):
        self._cluster_state = cluster_state
        self.deleted, self.refusal = [], None

    async def read_all(self):
        return list(self._cluster_state.snapshot().node_claims.values()), []

    async def read_now(self, _selector):
        return [], []

    async def delete(self, kind, name, *, uid):
        assert uid
        if self.refusal is not None:
            raise self.refusal
        self.deleted.append((kind.kind, name))


class Scene:
    """The controller over a state of these objects and a cloud of these instances."""

    def __init__(self, *objects, instances=ONE):
        self.clock, self.contacts, metrics = TwoClocks(), Contacts(), Metrics()
        self.metrics = metrics
        self.cluster_state = ClusterState(synced_state(*objects), self.clock)
        self.cloud, self.server = Cloud(*instances), Server(self.cluster_state)
        self.controller = GarbageCollectionController(
            writer=ObjectWriter(
                kube_writer=self.server,
                cluster_state=self.cluster_state,
                publish=lambda _: None,
                metrics=metrics,
                owns_nodes=True,
            ),
            providers=self.cloud,
            runtime=ControllerRuntime(
                clock=self.clock, new_id=SequentialIds("id"), metrics=metrics
            ),
            freshness=FreshnessGuard(self.contacts, metrics=metrics, node_class_groups=frozenset()),
            claims=self.server,
            pods=self.server,
        )

    async def run_pass(self, *, after=timedelta()):
        self.clock.passes(after.total_seconds())
        return await self.controller.step("kwok")


def orphan(*, labels=None, finalizers=()):
    """A Node of an instance that no claim stands for."""
    return node("orphan", provider_id=ORPHAN, labels=labels, finalizers=finalizers)


def on_it(name="web", **options):
    return pod(name, node_name="orphan", phase="Running", **options)


STAYING = Toleration(operator="Exists", effect="NoExecute")
LET_IN = {
    "by its label and finalizer": {
        "labels": {REGISTERED: "true"},
        "finalizers": (TERMINATION_FINALIZER,),
    },
    "by its finalizer": {"finalizers": (TERMINATION_FINALIZER,)},
    "by its label": {"labels": {REGISTERED: "true"}},
}


class TestPodsOfAnInstanceWithoutAClaim:
    @pytest.mark.parametrize("owner", ["DaemonSet", "ReplicaSet"])
    async def test_pods_of_an_unregistered_node_keep_no_instance(self, owner):
        """They tolerate the taint of a Node that has not registered, which is not drained."""
        scene = Scene(orphan(), on_it(tolerations=[STAYING], owner_kind=owner))
        await scene.run_pass()
        await scene.run_pass(after=ORPHAN_GRACE)
        assert scene.cloud.ended == [ORPHAN]
        assert scene.server.deleted == []

    @pytest.mark.parametrize("let_in", LET_IN.values(), ids=LET_IN)
    async def test_daemons_keep_no_instance(self, let_in):
        scene = Scene(orphan(**let_in), on_it(owner_kind="DaemonSet"))
        await scene.run_pass()
        await scene.run_pass(after=ORPHAN_GRACE)
        assert scene.cloud.ended == [ORPHAN]

    @pytest.mark.parametrize("let_in", LET_IN.values(), ids=LET_IN)
    @pytest.mark.parametrize("hours", [0, 6, -6])
    async def test_other_pods_keep_an_instance_for_an_hour_at_most(self, let_in, hours):
        """A budget or an annotation may hold them for ever; the wall clock shortens nothing."""
        scene = Scene(orphan(**let_in), on_it())
        await scene.run_pass()
        await scene.run_pass(after=ORPHAN_GRACE)
        scene.clock.is_set(hours=hours)
        await scene.run_pass(after=DRAIN_LIMIT - timedelta(seconds=1))
        assert scene.cloud.ended == []

        with structlog.testing.capture_logs() as logs:
            await scene.run_pass(after=timedelta(seconds=1))

        assert scene.cloud.ended == [ORPHAN]
        (reported,) = [line for line in logs if line["log_level"] == "warning"]
        assert reported["Node"] == {"name": "orphan"}
        assert reported["provider-id"] == ORPHAN
        assert "is terminated with its pods" in reported["event"]

    async def test_the_node_is_deleted_to_be_drained(self):
        scene = Scene(orphan(finalizers=(TERMINATION_FINALIZER,)), on_it())
        await scene.run_pass()
        await scene.run_pass(after=ORPHAN_GRACE)
        assert scene.server.deleted == [("Node", "orphan")]

    async def test_a_node_that_may_not_be_deleted_keeps_no_other_instance(self):
        """A webhook that protects one Node kept all leaked instances running."""
        other = Instance(provider_id="kwok://other")
        scene = Scene(orphan(finalizers=(TERMINATION_FINALIZER,)), on_it(), instances=[*ONE, other])
        scene.server.refusal = ApiError("denied by a webhook", status=403)
        await scene.run_pass()
        with structlog.testing.capture_logs() as logs:
            await scene.run_pass(after=ORPHAN_GRACE)
        assert scene.cloud.ended == [other.provider_id]
        assert "denied by a webhook" in [line.get("error") for line in logs]
        await scene.run_pass(after=DRAIN_LIMIT)
        assert scene.cloud.ended == [other.provider_id, ORPHAN]

    async def test_a_node_without_a_drain_is_not_reported_as_drained(self):
        """Without the finalizer it would be gone at once, and its pods cut off."""
        scene = Scene(orphan(labels={REGISTERED: "true"}), on_it())
        await scene.run_pass()
        with structlog.testing.capture_logs() as logs:
            await scene.run_pass(after=ORPHAN_GRACE)
        assert scene.server.deleted == []
        assert not [line for line in logs if "drained" in line["event"]]

    async def test_the_hour_begins_with_the_drain(self):
        """Not while many instances are held back, which may take days."""
        others = [Instance(provider_id=f"kwok://other-{n:02}") for n in range(20)]
        scene = Scene(
            orphan(finalizers=(TERMINATION_FINALIZER,)),
            on_it(),
            instances=[Instance(provider_id=ORPHAN), *others],
        )
        await scene.run_pass()
        await scene.run_pass(after=timedelta(days=1))
        assert scene.server.deleted == []
        for each in others:
            del scene.cloud.there[each.provider_id]

        await scene.run_pass(after=ORPHAN_GRACE)

        assert scene.server.deleted == [("Node", "orphan")]
        assert scene.cloud.ended == []

    async def test_the_hour_restarts_for_an_instance_that_had_a_claim(self):
        scene = Scene(orphan(finalizers=(TERMINATION_FINALIZER,)), on_it())
        await scene.run_pass()
        await scene.run_pass(after=ORPHAN_GRACE)
        result = scene.cloud.there.pop(ORPHAN)
        await scene.run_pass(after=ORPHAN_GRACE)
        scene.cloud.there[ORPHAN] = result
        await scene.run_pass(after=DRAIN_LIMIT)
        await scene.run_pass(after=ORPHAN_GRACE)
        assert scene.cloud.ended == []


class TestClocks:
    @pytest.mark.parametrize("hours", [6, -6])
    async def test_an_orphan_is_deleted_after_its_grace_period_despite_a_clock_jump(self, hours):
        scene = Scene()
        await scene.run_pass()
        scene.clock.is_set(hours=hours)
        await scene.run_pass(after=ORPHAN_GRACE - timedelta(seconds=1))
        assert scene.cloud.ended == []
        await scene.run_pass(after=timedelta(seconds=1))
        assert scene.cloud.ended == [ORPHAN]
        counted = "karpenter_garbage_collection_instances_total"
        assert scene.metrics.registry.get_sample_value(counted, {"provider": "kwok"}) == 1

    @pytest.mark.parametrize("hours", [6, -6])
    async def test_surplus_is_deleted_after_its_grace_period_despite_a_clock_jump(self, hours):
        claim = node_claim("web", stage="Launched")
        many = [
            Instance(provider_id=f"kwok://{n:02}", launched_for=(claim.uid,)) for n in range(20)
        ]
        scene = Scene(claim, instances=many)
        await scene.run_pass()
        scene.clock.is_set(hours=hours)
        await scene.run_pass(after=SURPLUS_GRACE - timedelta(seconds=1))
        assert scene.cloud.ended == []
        await scene.run_pass(after=timedelta(seconds=1))
        assert len(scene.cloud.ended) == SURPLUS_PER_PASS


class TestSurplusOfFailedClaims:
    @pytest.mark.parametrize(("own", "ended"), [(True, SURPLUS_PER_PASS), (False, 0)])
    async def test_instances_of_claims_that_this_process_has_seen_are_surplus(self, own, ended):
        """Those of unknown claims may be another cluster's: too many to be collected."""
        claim = node_claim("web", stage="Launched")
        uid = claim.uid if own else "uid-of-another-cluster"
        many = [Instance(provider_id=f"kwok://{n:02}", launched_for=(uid,)) for n in range(20)]
        scene = Scene(instances=many)
        remembering = asyncio.create_task(scene.controller._remember_changed())
        await asyncio.sleep(0)
        for event in (ObjectObserved(claim), ObjectRemoved(claim)):
            scene.cluster_state.fold(event)
            for _ in range(10):
                await asyncio.sleep(0)
        remembering.cancel()
        await scene.run_pass()

        await scene.run_pass(after=SURPLUS_GRACE)
        await scene.run_pass(after=SURPLUS_GRACE)

        assert len(scene.cloud.ended) == ended * 2


class TestFreshness:
    async def test_nothing_is_collected_on_a_state_that_grew_old_during_the_listing(self):
        """A listing may take minutes; what was asked before it says nothing of the time after."""
        silent = node_and_claim("web", ready="False")
        scene = Scene(*silent)
        await scene.run_pass()
        scene.server.deleted.clear()
        scene.cloud.while_listing = lambda: scene.contacts.lose(PODS)

        await scene.run_pass(after=ORPHAN_GRACE)

        assert (scene.server.deleted, scene.cloud.ended) == ([], [])
        scene.cloud.while_listing = lambda: None
        scene.contacts.regain(PODS)
        await scene.run_pass()
        assert scene.server.deleted == [("NodeClaim", "web")]
        assert scene.cloud.ended == [ORPHAN]

    async def test_collection_resumes_as_soon_as_all_kinds_are_fresh(self, monkeypatch):
        scene, woken = Scene(), []
        monkeypatch.setattr(scene.controller._loops["kwok"], "wake", lambda: woken.append("again"))
        scene.cloud.while_listing = lambda: scene.contacts.lose(PODS)
        await scene.run_pass()
        scene.contacts.regain(PODS)
        assert woken == ["again"]


class TestClaimsWithoutInstance:
    VANISHED = "karpenter_nodeclaims_disrupted_total"

    def scene(self, *names):
        halves = [half for name in names for half in node_and_claim(name, ready="False")]
        return Scene(*halves, instances=())

    def counted(self, scene):
        result = scene.metrics.registry.collect()
        return sum(s.value for m in result for s in m.samples if s.name == self.VANISHED)

    async def test_they_are_deleted_and_counted(self):
        scene = self.scene("a", "b")
        with structlog.testing.capture_logs() as lines:
            await scene.run_pass()
        assert scene.server.deleted == [("NodeClaim", "a"), ("NodeClaim", "b")]
        assert self.counted(scene) == 2
        (first, *_) = [line for line in lines if "NodeClaim" in line]
        assert (first["NodeClaim"], bool(first["provider-id"])) == ({"name": "a"}, True)

    @pytest.mark.parametrize(
        ("refusal", "reported"),
        [
            (ApiError("etcd has no leader", status=500), ["etcd has no leader"] * 2),
            (NotFoundError("gone", status=404), []),
        ],
    )
    async def test_one_that_cannot_be_deleted_is_not_counted_and_tried_again(
        self, refusal, reported
    ):
        scene = self.scene("a", "b")
        scene.server.refusal = refusal
        with structlog.testing.capture_logs() as lines:
            await scene.run_pass()
        assert self.counted(scene) == 0
        assert [line["error"] for line in lines if "error" in line] == reported
        scene.server.refusal = None
        await scene.run_pass(after=timedelta(minutes=5))
        assert {name for _, name in scene.server.deleted} == {"a", "b"}
        assert self.counted(scene) == 2


class CountingUids(dict):
    """UIDs that count how many of them are read."""

    read = 0

    def __iter__(self):
        for key in super().__iter__():
            self.read += 1
            yield key


class TestRememberedClaims:
    def remembering(self, monkeypatch, number, limit):
        monkeypatch.setattr(garbage_collection, "REMEMBERED_CLAIMS", limit)
        scene = Scene(*(node_claim(f"web-{n}") for n in range(number)))
        scene.controller._uids = uids = CountingUids()
        scene.controller._remember([f"web-{n}" for n in range(number)])
        return scene, uids

    def test_oldest_uids_are_forgotten(self, monkeypatch):
        scene, uids = self.remembering(monkeypatch, 10, 4)
        assert set(uids) == {
            scene.cluster_state.snapshot().node_claims[f"web-{n}"].uid for n in range(6, 10)
        }

    def test_a_change_is_recorded_without_a_full_scan(self, monkeypatch):
        scene, uids = self.remembering(monkeypatch, 100, 100)
        uids.read = 0
        scene.controller._remember(["web-7"])
        assert uids.read == 0
        scene.cluster_state.fold(ObjectObserved(node_claim("more")))
        scene.controller._remember(["more"])
        assert uids.read == 1


class TestListingThatIsBehind:
    async def test_the_grace_period_of_an_orphaned_instance_counts_from_its_listing(self):
        """Two reads of one old listing are one observation."""
        scene = Scene()
        first_shown = scene.clock.now() - timedelta(seconds=30)
        scene.cloud.as_of = lambda: first_shown
        await scene.run_pass()
        await scene.run_pass(after=2 * ORPHAN_GRACE)
        assert scene.cloud.ended == []

        scene.cloud.as_of = lambda: scene.clock.now() - timedelta(seconds=30)
        await scene.run_pass()
        assert scene.cloud.ended == [ORPHAN]

    async def test_claim_launched_after_the_shown_time_is_kept(self):
        claim = node_claim("web", stage="Initialized")
        scene = Scene(claim, instances=())
        scene.cloud.as_of = lambda: EPOCH - timedelta(seconds=1)
        await scene.run_pass()
        assert scene.server.deleted == []

        scene.cloud.as_of = lambda: EPOCH + timedelta(days=1)
        await scene.run_pass()
        assert scene.server.deleted == [("NodeClaim", "web")]


@pytest.mark.parametrize(("minutes", "suspected_minutes"), [(2, 1), (30, 1), (0.5, 0.5)])
async def test_provider_sets_the_period_of_listings(minutes, suspected_minutes):
    """While an instance seems to be orphaned it is listed after the grace period at the latest."""
    scene = Scene(instances=())
    scene.cloud.period = timedelta(minutes=minutes)
    assert await scene.run_pass() == minutes * 60

    scene.cloud.there[ORPHAN] = ONE[0]
    assert await scene.run_pass() == suspected_minutes * 60
