"""The drift controller checks claims when they, their pool or their NodeClass changed, and in time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import structlog

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import NODE_POOL_HASH, NODE_POOL_HASH_VERSION
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclaim.drift import (
    CONFLICT_RETRY_SECONDS,
    RETRY_SECONDS,
    WRITE_RETRY_SECONDS,
    DriftController,
    _DriftSchedule,
)
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import (
    ApiError,
    CloudProviderError,
    ConflictError,
    NodeClaimNotFoundError,
    NotFoundError,
    ThrottledError,
    TooManyRequestsError,
)
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.provider.contract import DriftFinding, PollingPeriods
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.state.events import (
    CataloguePublished,
    InformersSynced,
    ObjectObserved,
    ObjectRemoved,
)
from karpenter_core.testing import builders
from karpenter_core.testing.state_builders import (
    KWOK,
    node_claim,
    ready_node_pool,
    standard_catalogue,
    synced_state,
)
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import StoryClock

SLACK = 0.01
PERIOD_SECONDS = 300.0


def test_a_claim_is_due_at_its_very_time_and_once():
    schedule = _DriftSchedule(due_at={"past": 1.0, "now": 2.0, "later": 3.0})
    assert schedule.take_due(2.0) == {"past": 1.0, "now": 2.0}
    assert schedule.take_due(2.0) == {}
    assert schedule.take_due(3.0) == {"later": 3.0}


class Checks:
    """The controller over a state, with a provider and a writer that note what is asked of them."""

    def __init__(self, *names, answers=(), failures=(), is_stale=False, age=timedelta()):
        self.clock = StoryClock()
        self.pool = ready_node_pool(builders.node_pool(node_class_ref=KWOK))
        self.node_class = KWOKNodeClass(metadata=ObjectMeta(name=KWOK.name, uid="uid-class"))
        created = self.clock.now() - age
        self.claims = [
            node_claim(name, node_class_ref=KWOK, stage="Initialized", created=created)
            for name in names
        ]
        builder = synced_state(self.pool, self.node_class, *self.claims, now=self.clock.now())
        self.cluster_state = self.state = ClusterState(builder, self.clock)
        """The first name is the writer's."""
        self.answers, self.failures = list(answers), list(failures)
        self.is_stale, self.waker = is_stale, None
        self.asked, self.written = [], []
        self.period_seconds = PERIOD_SECONDS
        self.metrics = Metrics()
        self.controller = DriftController(
            writer=self,
            providers=self,
            runtime=ControllerRuntime(
                clock=self.clock, new_id=SequentialIds("id"), metrics=self.metrics
            ),
            freshness=self,
            rules=None,
        )

    def provider_of(self, _ref):
        return "kwok"

    def polling_periods(self, _provider):
        return PollingPeriods(drift=timedelta(seconds=self.period_seconds))

    async def hash_node_class(self, _node_class):
        """Compute none, as a provider without static drift."""

    async def detect_drift(self, claims, node_class):
        assert node_class is not None
        self.asked.append((self.clock.monotonic(), sorted(claim.name for claim in claims)))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, list):
            raise answer[0]
        return [answer for _ in claims]

    async def write_claim(self, _old, new):
        self.written.append((self.clock.monotonic(), new.name))
        if self.failures:
            raise self.failures.pop(0)
        self.state.fold(ObjectObserved(new))
        return new

    def stale_or_wake(self, _consumer, _key, waker):
        self.waker = waker
        return self.is_stale

    def observe(self, old, **metadata):
        """Show an object with other metadata."""
        version = {"resource_version": str(int(old.metadata.resource_version or "1") + 1)}
        changed = old.metadata.model_copy(update={**version, **metadata})
        self.state.fold(ObjectObserved(old.model_copy(update={"metadata": changed})))

    def play(self, seconds, **events):
        """Let the controller run; `events` are called at their second, `at_5=...`."""

        async def story():
            running = asyncio.create_task(self.controller.run())
            self.state.fold(InformersSynced())
            for name, event in events.items():
                await self.clock.sleep(float(name.removeprefix("at_")) - self.clock.monotonic())
                event()
            await self.clock.sleep(seconds - self.clock.monotonic())
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        run_virtual(story())
        return self

    def times(self):
        return [round(at, 1) for at, _ in self.asked]


def test_all_claims_of_a_node_class_are_checked_in_one_call_every_five_minutes():
    checks = Checks("web", "api").play(2 * PERIOD_SECONDS + 60)

    assert [names for _, names in checks.asked] == [["api", "web"]] * 3
    assert checks.times() == [0.5, 300.5, 600.5]


def test_a_claim_that_changes_is_checked_alone_and_moves_no_other_check():
    checks = Checks("web", "api")
    labels = {**checks.claims[0].metadata.labels, "team": "a"}
    checks.play(320, at_100=lambda: checks.observe(checks.claims[0], labels=labels))

    assert [(round(at, 1), names) for at, names in checks.asked] == [
        (0.5, ["api", "web"]),
        (100.5, ["web"]),
        (300.5, ["api", "web"]),
    ]


def test_a_claim_without_its_pool_is_not_judged():
    checks = Checks("web", "api")
    checks.play(320, at_100=lambda: checks.observe(checks.claims[0], labels={}))
    assert [names for _, names in checks.asked] == [["api", "web"], ["api"]]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (CloudProviderError("nobody answers"), RETRY_SECONDS),
        (ThrottledError("slow down", retry_after=timedelta(seconds=70)), 70),
        (ThrottledError("slow down", retry_after=timedelta(seconds=2)), RETRY_SECONDS),
        (NodeClaimNotFoundError("gone"), PERIOD_SECONDS),
        (None, PERIOD_SECONDS),
    ],
)
def test_drift_is_checked_again_when_the_provider_could_not_decide(error, again):
    checks = Checks("web", answers=[error]).play(PERIOD_SECONDS + 1)
    first, second = checks.asked[:2]
    assert second[0] - first[0] == pytest.approx(again, abs=SLACK)
    assert checks.written == []


def test_a_call_that_fails_as_a_whole_is_made_again_for_the_same_claims():
    failed = [CloudProviderError("nobody answers")]
    checks = Checks("web", "api", answers=[failed]).play(30)

    assert [names for _, names in checks.asked] == [["api", "web"]] * 2


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConflictError("changed", status=409), CONFLICT_RETRY_SECONDS),
        (ApiError("trouble", status=500), WRITE_RETRY_SECONDS),
        (TooManyRequestsError("busy", status=429, retry_after=timedelta(seconds=40)), 40),
        (
            TooManyRequestsError("busy", status=429, retry_after=timedelta(seconds=1)),
            WRITE_RETRY_SECONDS,
        ),
    ],
)
def test_a_drift_that_could_not_be_written_is_written_again(error, again):
    checks = Checks("web", answers=[DriftFinding(reason="Old")] * 9, failures=[error]).play(60)
    first, second = checks.written
    assert second[0] - first[0] == pytest.approx(again, abs=SLACK)


def test_the_drift_of_a_claim_that_is_gone_is_not_written_again():
    gone = NotFoundError("gone", status=404)
    with structlog.testing.capture_logs() as lines:
        checks = Checks("web", answers=[DriftFinding(reason="Old")] * 9, failures=[gone]).play(60)
    assert len(checks.asked) == len(checks.written) == 1
    assert not [line for line in lines if "drift" in line["event"]]


@pytest.mark.parametrize("change", ["removed", "deleted", "replaced"])
def test_the_drift_of_a_claim_that_goes_during_the_check_is_not_written(change):
    checks = Checks("web", answers=[DriftFinding(reason="Old")])
    (claim,) = checks.claims

    def goes():
        if change == "removed":
            checks.state.fold(ObjectRemoved(claim))
        elif change == "deleted":
            checks.observe(claim, deletion_timestamp=checks.clock.now(), finalizers=("x",))
        else:
            checks.observe(claim, uid="uid-of-another")

    detect = checks.detect_drift

    async def detect_drift(claims, node_class):
        found = await detect(claims, node_class)
        if len(checks.asked) == 1:
            goes()
        return found

    checks.detect_drift = detect_drift
    checks.play(60)
    assert checks.written == []
    failed = checks.metrics.reconcile_errors.labels(controller="nodeclaim.disruption")
    assert failed._value.get() == 0


def test_nothing_is_checked_over_a_stale_state_until_it_is_fresh():
    checks = Checks("web", is_stale=True)

    def freshen():
        assert checks.asked == []
        checks.is_stale = False
        checks.waker()

    checks.play(60, at_50=freshen)
    assert checks.times() == [50.0]


def test_only_old_claims_are_checked_against_the_present_offerings():
    """New claims were made from this catalogue; old ones are checked at intervals."""

    def publish():
        items = standard_catalogue().instance_types
        catalogue = Catalogue(version="next", instance_types=items)
        checks.state.fold(CataloguePublished(checks.pool.name, catalogue))

    checks = Checks("young", age=timedelta(minutes=30))
    checks.play(60, at_50=publish)
    assert checks.times() == [0.5]
    checks = Checks("old", age=timedelta(hours=2))
    checks.state.fold(CataloguePublished(checks.pool.name, None))
    checks.play(60, at_50=publish)
    assert checks.times() == [0.5, 50.5]


@pytest.mark.parametrize(
    ("changed", "is_checked"),
    [
        ({"generation": 7}, True),
        ({"annotations": {NODE_POOL_HASH: "other"}}, True),
        ({"annotations": {NODE_POOL_HASH_VERSION: "v9"}}, True),
        ({"annotations": {"team": "a"}}, False),
    ],
)
def test_claims_are_checked_again_when_their_pool_is_edited(changed, is_checked):
    """A pool's status and the annotations of others change all the time."""
    checks = Checks("web")

    def first():
        checks.observe(checks.pool, resource_version="5")

    checks.play(
        60,
        at_20=first,
        at_40=lambda: checks.observe(checks.pool, **changed | {"resource_version": "9"}),
    )
    assert [at for at in checks.times() if at > 40] == [40.5] * is_checked


@pytest.mark.parametrize(
    ("changed", "is_checked"),
    [
        ({"annotations": {f"{KWOK.group}/kwoknodeclass-hash": "other"}}, True),
        ({"labels": {"team": "a"}}, False),
    ],
)
def test_claims_are_checked_again_when_their_node_class_is_edited(changed, is_checked):
    checks = Checks("web")

    def first():
        checks.observe(checks.node_class, resource_version="5")

    def edit():
        checks.observe(checks.node_class, **changed | {"resource_version": "9"})

    checks.play(60, at_20=first, at_40=edit)
    assert [at for at in checks.times() if at > 40] == [40.5] * is_checked


def test_a_recreated_node_class_is_checked_for_drift_again():
    """Other changes are seen while it is gone, and its return is one itself."""
    checks = Checks("web")

    def remove():
        checks.state.fold(ObjectRemoved(checks.node_class))

    def come_back():
        again = checks.node_class.metadata.model_copy(
            update={"uid": "uid-again", "resource_version": "9"}
        )
        checks.state.fold(ObjectObserved(checks.node_class.model_copy(update={"metadata": again})))

    checks.play(
        100,
        at_10=lambda: checks.observe(checks.node_class, resource_version="5"),
        at_20=remove,
        at_40=lambda: checks.observe(
            checks.claims[0], labels=checks.claims[0].metadata.labels | {"team": "a"}
        ),
        at_63=come_back,
    )
    assert [at for at in checks.times() if at > 20] == [63.5]


def test_a_drift_that_the_provider_found_ends_with_the_node_class():
    """Nothing tells any more what the claim should be; it is not left to the next sweep."""
    checks = Checks("web", answers=[DriftFinding(reason="Old")] * 2)
    checks.play(
        60,
        at_10=lambda: checks.observe(checks.node_class, resource_version="5"),
        at_20=lambda: checks.state.fold(ObjectRemoved(checks.node_class)),
    )
    # Until the NodeClass changes, its drift stands.
    assert [round(at, 1) for at, _ in checks.written][-1] == 20.5
    (claim,) = checks.state.snapshot().node_claims.values()
    assert find_condition(claim.status.conditions, DRIFTED) is None


def test_a_claim_without_its_node_class_causes_no_drift_call():
    checks = Checks("web")
    checks.state.fold(ObjectRemoved(checks.node_class))
    assert checks.play(60).asked == []


def test_a_claim_that_drifted_from_its_pool_causes_no_drift_call():
    """The answer would change nothing."""
    checks = Checks("web")
    hashes = {NODE_POOL_HASH: "old", NODE_POOL_HASH_VERSION: "v3"}
    checks.observe(checks.claims[0], annotations=hashes)
    checks.observe(checks.pool, annotations={**hashes, NODE_POOL_HASH: "new"})
    checks.play(60)

    assert checks.asked == []
    assert [name for _, name in checks.written] == ["web"]


def test_a_node_class_without_claims_causes_no_drift_call():
    checks = Checks("web")
    checks.play(
        2 * PERIOD_SECONDS, at_10=lambda: checks.state.fold(ObjectRemoved(checks.claims[0]))
    )
    assert checks.times() == [0.5]


def test_a_claim_that_is_being_deleted_causes_no_drift_call():
    checks = Checks("web", "api")
    deleted = {
        "deletion_timestamp": checks.clock.now(),
        "finalizers": ("karpenter.sh/termination",),
    }
    checks.play(PERIOD_SECONDS + 1, at_10=lambda: checks.observe(checks.claims[0], **deleted))
    assert [names for _, names in checks.asked] == [["api", "web"], ["api"]]


def test_provider_sets_the_period_of_checks():
    checks = Checks("web")
    checks.period_seconds = 3600.0
    assert checks.play(3700).times() == [0.5, 3600.5]
