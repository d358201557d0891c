"""Decisions of single functions of controllers: each condition of them counts by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
import structlog

from karpenter_core.api.conditions import Condition
from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.controllers import planner as planning
from karpenter_core.controllers.capacity_buffer import burst_observer
from karpenter_core.controllers.capacity_buffer.burst_observer import (
    LAG,
    RECENT,
    BurstObserver,
    _is_alike,
)
from karpenter_core.controllers.cluster_state import (
    CLOCK_CHANGE_SECONDS,
    TICK_SECONDS,
    ClusterState,
)
from karpenter_core.controllers.disruption.execution import CommandQueue
from karpenter_core.controllers.node.surge_moves import SurgeMoves, _PodMove
from karpenter_core.controllers.node.termination import NodeTerminationController
from karpenter_core.controllers.nodeclaim import instance_launcher
from karpenter_core.controllers.nodeclaim.garbage_collection import _busy_message
from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
from karpenter_core.controllers.nodeclaim.lifecycle import NodeClaimLifecycleController
from karpenter_core.controllers.nodeclass import controller as node_classes
from karpenter_core.controllers.observability.conditions import _transition_notice
from karpenter_core.controllers.observability.node_series import NodeSeries, _amounts_of
from karpenter_core.controllers.observation.unjudged import UnjudgedNodePools
from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
from karpenter_core.controllers.provisioning.new_claims import claim_name, name_suffix, slot_ids
from karpenter_core.controllers.reconciling import passes as counted
from karpenter_core.controllers.reconciling.passes import PassHealth, PassStreak
from karpenter_core.controllers.reconciling.reconciler import ReconcileResult
from karpenter_core.controllers.reconciling.throttling import retry_after_seconds
from karpenter_core.controllers.static.provisioning import (
    LIMITED_SECONDS,
    StaticProvisioningController,
)
from karpenter_core.errors import ConflictError, NodeClassNotReadyError, ThrottledError
from karpenter_core.scheduling import isolation
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.testing.builders import EPOCH, catalogue, instance_type, node_pool, pod
from karpenter_core.testing.state_builders import node_claim, ready_node_pool, synced_state
from tests.controllers.clocks import TwoClocks

SECOND = timedelta(seconds=1)


def static_pool(*, replicas=2, uid="uid-default", deleted=None):
    pool = node_pool(replicas=replicas)
    metadata = pool.metadata.model_copy(update={"uid": uid, "deletion_timestamp": deleted})
    return pool.model_copy(update={"metadata": metadata})


@pytest.mark.parametrize(("later", "is_recent"), [(timedelta(0), True), (SECOND, False)])
def test_a_pod_is_recent_for_its_time(later, is_recent):
    clock = TwoClocks()
    arrived = {"uid": clock.now() - LAG - timedelta(seconds=RECENT) - later}
    observer = SimpleNamespace(_runtime=SimpleNamespace(clock=clock), _arrived=arrived)
    snapshot = SimpleNamespace(pods={"uid": "pod"})
    assert list(BurstObserver._recent_pods(observer, snapshot)) == (["pod"] if is_recent else [])
    assert list(arrived) == (["uid"] if is_recent else [])


@pytest.mark.parametrize(
    ("namespace", "labels", "is_alike"),
    [
        ("default", {"app": "web"}, True),
        ("default", {"app": "web", "more": "x"}, True),
        ("default", {"app": "other"}, False),
        ("other", {"app": "web"}, False),
    ],
)
def test_a_pod_is_alike_with_the_labels_of_the_template(namespace, labels, is_alike):
    template = pod("web", labels={"app": "web"}).shape
    shape = SimpleNamespace(namespace=namespace, labels=labels)
    assert _is_alike(shape, template) is is_alike


@pytest.mark.parametrize(("less", "is_set"), [(0.0, True), (0.01, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_jumps_far_enough_was_set(less, is_set, sign):
    lead = 1000.0
    by = sign * (CLOCK_CHANGE_SECONDS - less)
    clock = SimpleNamespace(
        now=lambda: SimpleNamespace(timestamp=lambda: lead + by), monotonic=lambda: 0.0
    )
    applied = []
    state = SimpleNamespace(
        _clock=clock, _clock_lead=lead, _log=structlog.get_logger(), _apply=applied.append
    )
    ClusterState._detect_clock_change(state)
    assert bool(applied) is is_set
    assert state._clock_lead == (lead + by if is_set else lead)


@pytest.mark.parametrize(("ticked", "is_told"), [(None, True), (0.0, True), (0.01, False)])
def test_time_is_told_once_in_its_period(ticked, is_told):
    applied = []
    state = SimpleNamespace(
        _detect_clock_change=lambda: None,
        _clock=SimpleNamespace(monotonic=lambda: TICK_SECONDS, now=lambda: EPOCH),
        _ticked=ticked,
        _apply=applied.append,
    )
    ClusterState._tick(state)
    assert bool(applied) is is_told


@pytest.mark.parametrize(
    ("move", "is_counted"),
    [
        (None, False),
        (_PodMove(since=0.0, is_replaced=True), True),
        (_PodMove(since=0.0, is_replaced=True, is_over=True), False),
        (_PodMove(since=0.0), False),
    ],
)
def test_only_a_pod_that_a_rollout_replaced_counts_as_moved(move, is_counted):
    folded, recorded = [], []
    writer = SimpleNamespace(
        cluster_state=SimpleNamespace(fold=folded.append), record_metrics=recorded.append
    )
    moves = SurgeMoves(writer=writer, runtime=None, read_rollout=None)
    if move is not None:
        moves._moves["uid"] = move
    moves.forget("uid")
    assert (len(folded), len(recorded)) == (is_counted, is_counted)
    assert not moves._moves


@pytest.mark.parametrize(
    ("seconds", "asked", "after"),
    [(0.0, 5.0, 5.0), (60.0, 5.0, 60.0), (60.0, 90.0, 90.0), (60.0, None, None)],
)
def test_a_provider_is_asked_as_seldom_as_it_permits(seconds, asked, after):
    controller = SimpleNamespace(_rare_poll_seconds=lambda _ref: seconds)
    result = ReconcileResult(requeue_after=asked)
    assert NodeTerminationController._paced(controller, None, result).requeue_after == after


@pytest.mark.parametrize(
    ("overdue", "finalizers", "text"),
    [
        (True, [TERMINATION_FINALIZER], "the drain limit is over"),
        (False, [TERMINATION_FINALIZER], "which is drained first"),
        (False, ["other"], "waits until they have left"),
    ],
)
def test_the_log_says_how_the_node_of_a_foreign_instance_is_emptied(overdue, finalizers, text):
    nodes = (SimpleNamespace(finalizers=()), SimpleNamespace(finalizers=finalizers))
    assert text in _busy_message(nodes, overdue=overdue)


@pytest.mark.parametrize(
    ("node_class", "text"),
    [(None, "is not found"), (SimpleNamespace(is_deleting=True), "is being deleted")],
)
async def test_nothing_is_launched_from_a_node_class_that_leaves(node_class, text):
    ref = SimpleNamespace(group="g", kind="K", name="n")
    claim = SimpleNamespace(spec=SimpleNamespace(node_class_ref=ref))
    snapshot = SimpleNamespace(node_classes={("g", "K", "n"): node_class})
    with pytest.raises(NodeClassNotReadyError, match=text):
        await InstanceLauncher._request(None, claim, snapshot)


def test_as_many_lists_of_types_are_remembered_as_the_bound(monkeypatch):
    monkeypatch.setattr(instance_launcher, "REMEMBERED_TYPE_LISTS", 2)
    monkeypatch.setattr(instance_launcher, "listed_types", lambda *_: ())
    launcher = SimpleNamespace(_compatible_types={}, _well_known=frozenset())
    sizes = []
    for version in "abcd":
        claim = SimpleNamespace(spec=SimpleNamespace(requirements=()))
        catalogue = SimpleNamespace(version=version)
        InstanceLauncher._types_to_request(launcher, claim, catalogue)
        sizes.append(len(launcher._compatible_types))
    assert sizes == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("newer", "written"),
    [
        (SimpleNamespace(name="n", uid="1", version=2), [1, 2]),
        (SimpleNamespace(name="n", uid="2", version=2), [1, 1]),
        (None, [1, 1]),
    ],
)
async def test_a_conflict_is_tried_again_with_the_newer_version_of_the_same_node(newer, written):
    tried = []

    async def write_node(node, _patch):
        tried.append(node.version)
        if len(tried) == 1:
            raise ConflictError("busy", status=409, reason="Conflict")

    async def sleep(_seconds):
        return None

    nodes = {} if newer is None else {"n": newer}
    controller = SimpleNamespace(
        _writer=SimpleNamespace(write_node=write_node),
        _runtime=SimpleNamespace(clock=SimpleNamespace(sleep=sleep)),
        _cluster_state=SimpleNamespace(snapshot=lambda: SimpleNamespace(nodes=nodes)),
    )
    node = SimpleNamespace(name="n", uid="1", version=1)
    await NodeClaimLifecycleController._write_node(controller, node, None)
    assert tried == written


@pytest.mark.parametrize(
    ("condition", "has_message"),
    [
        (
            Condition(
                type="Ready", status="True", reason="r", message="m", last_transition_time=EPOCH
            ),
            True,
        ),
        (
            Condition(
                type="Ready", status="True", reason="r", message="", last_transition_time=EPOCH
            ),
            False,
        ),
        (
            SimpleNamespace(type="Ready", status="True", reason="r", message="kubelet is ready"),
            False,
        ),
    ],
)
def test_only_messages_of_our_conditions_are_in_their_events(condition, has_message):
    """Those of a Node's conditions are the kubelet's, with times in them."""
    notice = _transition_notice(None, "False", condition)
    assert ("Message" in notice.message) is has_message


@pytest.mark.parametrize(
    ("known", "problem", "is_new"),
    [
        ({}, "", False),
        ({}, "a", True),
        ({"x": "a"}, "a", False),
        ({"x": "a"}, "b", True),
        ({"x": "a"}, "", False),
    ],
)
def test_a_problem_is_logged_when_it_changes(known, problem, is_new):
    pools = SimpleNamespace(_problems=dict(known))
    assert UnjudgedNodePools._is_new(pools, "x", problem) is is_new
    assert pools._problems == {"x": problem}


@pytest.mark.parametrize(("passes", "noted"), [(1, []), (2, []), (3, [3]), (4, [3, 1])])
def test_a_throttled_pass_counts_after_some(monkeypatch, passes, noted):
    monkeypatch.setattr(counted, "THROTTLED_PASSES", 3)
    added = []
    streak = PassStreak("provisioner", PassHealth())
    streak._add = lambda count, _error: added.append(count)
    for _ in range(passes):
        streak.throttled(ValueError("slow"))
    assert added == noted


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (ThrottledError("slow", retry_after=timedelta(seconds=5)), 5.0),
        (ThrottledError("slow"), 0.0),
        (ValueError("bad"), 0.0),
    ],
)
def test_a_wait_is_as_long_as_the_other_side_asks(error, seconds):
    assert retry_after_seconds(error) == seconds


def test_overlaid_types_are_read_again_with_a_new_catalogue(monkeypatch):
    made = []
    monkeypatch.setattr(
        "karpenter_core.controllers.provisioning.claim_creator.OverlaidTypes.of",
        lambda catalogue: made.append(catalogue.version) or catalogue.version,
    )
    creator = SimpleNamespace(_overlaid={})

    def read(version, overlays=("o",)):
        catalogues = {} if version is None else {"web": SimpleNamespace(version=version)}
        snapshot = SimpleNamespace(catalogues=catalogues, node_overlays=overlays)
        return ClaimCreator._overlaid_types(creator, snapshot, "web")

    assert [read(1), read(1), read(2), read(2, overlays=()), read(None)] == [1, 1, 2, None, None]
    assert made == [1, 2]


def test_a_name_is_given_once():
    """Two slots may have one name: names are cut."""
    owner = SimpleNamespace(name="web", uid="uid")
    names = [claim_name("web", name_suffix(f"uid/{slot}")) for slot in range(4)]
    slots = slot_ids(owner, {names[1]}, {"uid/2"})
    assert [next(slots), next(slots)] == ["uid/0", "uid/3"]


@pytest.mark.parametrize(
    ("problem", "pending", "deletes"),
    [("", (), True), ("", ("r",), False), ("gone", (), False)],
)
async def test_nodes_of_a_command_are_deleted_once_all_replacements_are_ready(
    problem, pending, deletes
):
    done = []

    async def delete_all(command):
        done.append(f"delete {command}")
        return True

    async def roll_back(_entry, why):
        done.append(why)

    entry = SimpleNamespace(command="it", pending_replacements=pending, delete_after=EPOCH)
    queue = SimpleNamespace(
        _check_replacements=lambda _entry: problem,
        _delete_all=delete_all,
        _running=[entry],
        _record_drift_result=lambda _command, succeeded: None,
        _roll_back=roll_back,
        _is_late=lambda _entry: False,
        _steady=SimpleNamespace(now=lambda: EPOCH),
    )
    await CommandQueue._advance(queue, entry)
    assert done == (["delete it"] if deletes else [problem] if problem else [])
    assert queue._running == ([] if deletes else [entry])


async def test_a_command_ends_once_all_of_its_nodes_are_deleted():
    async def delete(candidate, _command):
        return candidate != "stuck"

    queue = SimpleNamespace(_delete=delete)
    for candidates, is_done in ((("a", "b"), True), (("a", "stuck"), False), (("stuck",), False)):
        command = SimpleNamespace(candidates=candidates)
        assert await CommandQueue._delete_all(queue, command) is is_done


@pytest.mark.parametrize(("less", "is_refused"), [(0, False), (1, True)])
def test_a_status_of_the_largest_size_is_stored(monkeypatch, less, is_refused):
    status = {"images": ["x" * 10], "zones": []}
    monkeypatch.setattr(node_classes, "MAX_STATUS_BYTES", len('["xxxxxxxxxx"]') + 2 - less)
    problem = node_classes._size_problem(status)
    assert bool(problem) is is_refused
    assert not problem or "images" in problem


def test_a_resource_without_a_capacity_has_no_overhead():
    state_node = SimpleNamespace(
        capacity={"cpu": 5},
        allocatable={"cpu": 3, "gpu": 1},
        requests={},
        daemon_requests={},
        pods=(),
    )
    overheads = [each for each in _amounts_of(state_node) if each.get("cpu") == 2]
    assert overheads == [{"cpu": 2, "gpu": -1}]


def test_the_limit_of_a_pass_is_passed_over_only_beyond_it(monkeypatch):
    """A pass of exactly the limit is whole."""
    limit = planning.PASS_LIMIT_SECONDS
    for elapsed, is_halted in ((limit, False), (limit + 0.01, True)):
        seen = []

        def steps(_problem, _options, *, cache, halt, seen=seen):
            yield 1
            seen.append(halt.requested)
            return "plan"

        times = iter([0.0, elapsed])
        monkeypatch.setattr(isolation, "solve_isolated_steps", steps)
        no = SimpleNamespace(is_set=lambda: False)
        planner = SimpleNamespace(
            _clock=SimpleNamespace(monotonic=lambda times=times: next(times)),
            _cache=lambda: None,
            _closed=no,
        )
        assert planning.ThreadPlanner._compute(planner, None, None, no) == "plan"
        assert seen == [is_halted]


@pytest.mark.parametrize(
    ("known", "before", "pods"),
    [
        ({}, "stored", ["all"]),
        ({"default/web": ("uid", "kept")}, "kept", ["recent"]),
        ({"default/web": ("older", "kept")}, "stored", ["all"]),
        ({"default/other": ("uid", "kept")}, "stored", ["all"]),
    ],
)
async def test_bursts_are_counted_on_for_the_same_buffer(monkeypatch, known, before, pods):
    """One that was created anew under the name has a history of its own."""
    counted = []

    def with_arrivals(history, arrivals, *, now):
        counted.append((history, list(arrivals)))
        return SimpleNamespace(days=1, arrivals=())

    stored = type("Stored", (str,), {"days": 1, "arrivals": ()})("stored")
    for name, value in {
        "burst_setting": lambda _annotations: 1,
        "read_history": lambda _annotations: stored,
        "resolve_buffer": lambda *_: SimpleNamespace(shape=SimpleNamespace(labels={"a": "b"})),
        "with_arrivals": with_arrivals,
        "burst_replicas": lambda *_: 3,
        "_is_alike": lambda *_: True,
    }.items():
        monkeypatch.setattr(burst_observer, name, value)

    def of(text):
        return SimpleNamespace(created=text, shape=None)

    observer = SimpleNamespace(
        _histories=dict(known),
        _recent_pods=lambda _snapshot: iter([of("recent")]),
        _runtime=SimpleNamespace(clock=TwoClocks()),
    )
    buffer = SimpleNamespace(
        key="default/web",
        uid="uid",
        metadata=SimpleNamespace(annotations={}),
        spec=SimpleNamespace(limits={"cpu": "1"}),
    )
    snapshot = SimpleNamespace(pods={"uid": of("all")})
    found, sizing = await BurstObserver.observe(observer, buffer, snapshot)
    assert (found, sizing.replicas) == (buffer, 3)
    assert counted == [(before, pods)]
    assert observer._histories["default/web"][0] == "uid"


def test_a_node_is_as_old_as_its_clock_says_and_never_younger_than_nothing():
    texts = {
        "a": SimpleNamespace(labels='n="a"', created=EPOCH - timedelta(seconds=5)),
        "b": SimpleNamespace(labels='n="b"', created=EPOCH + timedelta(seconds=5)),
        "c": SimpleNamespace(labels='n="c"', created=None),
        "d": SimpleNamespace(labels='n="d"', created=EPOCH - timedelta(milliseconds=500)),
    }
    series = SimpleNamespace(_current=lambda: (texts, None), _now=lambda: EPOCH)
    lines = "".join(NodeSeries._lifetimes(series, "age"))
    assert lines == 'age{n="a"} 5.0\nage{n="b"} 0.0\nage{n="d"} 0.5\n'


@pytest.mark.parametrize(
    ("pools", "claims", "is_lacking"),
    [
        ([static_pool()], 2, True),
        ([], 0, False),
        ([static_pool(uid="another")], 0, False),
        ([static_pool(replicas=None)], 0, False),
        ([static_pool(deleted=EPOCH)], 0, False),
        ([static_pool(replicas=1)], 0, True),
        ([static_pool(replicas=1)], 1, False),
    ],
    ids=[
        "as planned",
        "gone",
        "replaced",
        "dynamic",
        "deleted",
        "fewer, none there",
        "fewer, enough there",
    ],
)
def test_a_claim_is_created_only_while_its_static_pool_still_lacks_one(pools, claims, is_lacking):
    there = [node_claim(f"web-{number}") for number in range(claims)]
    controller = SimpleNamespace(_cluster_state=synced_state(*pools, *there))
    found = StaticProvisioningController._lacks_replicas(controller, static_pool())
    assert found is is_lacking


@pytest.mark.parametrize("types", [[instance_type("a", offerings=[])], []])
def test_a_static_pool_without_an_available_type_is_tried_again_without_an_event(types):
    pool = ready_node_pool(static_pool())
    found = synced_state(pool, catalogues={pool.name: catalogue(*types)})
    controller = SimpleNamespace(
        _cluster_state=found,
        _creator=SimpleNamespace(in_flight=lambda _pool: 0),
        _freshness=SimpleNamespace(stale_or_wake=lambda *_: ()),
        _problem_settings=SimpleNamespace(aliases={}, well_known=frozenset()),
        _solve=SolveOptions(),
        _log=SimpleNamespace(info=lambda *_, **__: None),
        _reconciler=SimpleNamespace(wake=None),
    )
    result = asyncio.run(StaticProvisioningController.reconcile(controller, pool.name))
    assert result.requeue_after == LIMITED_SECONDS


@pytest.mark.parametrize("noted", [set(), {"web"}])
def test_pod_events_that_a_failed_write_was_to_cover_are_covered_by_the_next_one(noted):
    async def refused(_claim, _step):
        raise ConflictError("changed", status=409)

    controller = SimpleNamespace(_pod_events=set(noted), _apply_step=refused)
    writing = NodeClaimLifecycleController._write(controller, SimpleNamespace(name="web"), None)
    with pytest.raises(ConflictError):
        asyncio.run(writing)
    assert controller._pod_events == noted
