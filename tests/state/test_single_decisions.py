"""Decisions of single functions of the state: each condition of them counts by itself."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, PRICE_PER_HOUR, ZONE
from karpenter_core.api.prices import Price
from karpenter_core.api.provisioning_request import ATOMIC_SCALE_UP, CHECK_CAPACITY
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.state import device_inventory, launch_limits, node_pool_usage, paused_pods
from karpenter_core.state import ledger as ledgers
from karpenter_core.state.bookings import ATTEMPT_CLAIMS_DETAIL, is_launching
from karpenter_core.state.builder import _is_stale
from karpenter_core.state.device_inventory import _possible_devices, _served_daemons
from karpenter_core.state.ledger import LAUNCH_RATE_PERIOD
from karpenter_core.state.node_pool_usage import (
    PoolStatusSums,
    _count_alike,
    node_price_amount,
)
from karpenter_core.state.paused_pods import is_trial_of_paused
from karpenter_core.state.state_nodes import is_instance_terminating
from karpenter_core.testing.builders import EPOCH


def attempt(
    *,
    provisioning_class=ATOMIC_SCALE_UP,
    finished=False,
    booked=False,
    detail=ATTEMPT_CLAIMS_DETAIL,
):
    return SimpleNamespace(
        spec=SimpleNamespace(provisioning_class_name=provisioning_class),
        is_finished=finished,
        is_booked=booked,
        status=SimpleNamespace(provisioning_class_details={detail: "2"}),
    )


@pytest.mark.parametrize(
    ("request_", "launches"),
    [
        (attempt(), True),
        (attempt(provisioning_class=CHECK_CAPACITY), False),
        (attempt(finished=True), False),
        (attempt(booked=True), False),
        (attempt(detail="other"), False),
    ],
)
def test_an_attempt_runs_for_a_request_that_launches(request_, launches):
    assert is_launching(request_) is launches


@pytest.mark.parametrize(
    ("new", "old", "is_stale"),
    [
        ((5, "a"), (6, "a"), True),
        ((6, "a"), (5, "a"), False),
        ((5, "a"), (5, "a"), True),
        ((5, "a"), (5, "b"), False),
        ((0, "a"), (0, "a"), False),
    ],
)
def test_an_object_is_stale_that_is_not_newer(new, old, is_stale):
    """Objects of another UID, and those without a version, are always taken."""
    found = [SimpleNamespace(resource_version=version, uid=uid) for version, uid in (new, old)]
    assert _is_stale(*found) is is_stale


@pytest.mark.parametrize(
    ("is_launched", "name", "devices"),
    [(True, "a", ("A",)), (False, "a", ("listed",)), (True, "", ("listed",)), (True, "b", ())],
)
def test_a_launched_node_may_have_the_devices_of_its_type(monkeypatch, is_launched, name, devices):
    listed = SimpleNamespace(name="x", devices="listed")
    monkeypatch.setattr(device_inventory, "is_launched", lambda _node: is_launched)
    monkeypatch.setattr(device_inventory, "listed_types", lambda _claim, _catalogue: (listed,))
    types = (SimpleNamespace(name="a", devices="A"),)
    snapshot = SimpleNamespace(catalogues={"web": SimpleNamespace(instance_types=types)})
    state_node = SimpleNamespace(pool="web", labels={INSTANCE_TYPE: name})
    assert _possible_devices(snapshot, state_node, None) == devices
    no_catalogue = SimpleNamespace(catalogues={})
    assert _possible_devices(no_catalogue, state_node, None) == ("listed",)


def daemon(statuses, *, is_daemon=True, owner="d"):
    return SimpleNamespace(
        is_daemon=is_daemon, owner_uid=owner, resource_claim_statuses=statuses, namespace="web"
    )


@pytest.mark.parametrize(
    ("pod", "is_served"),
    [
        (daemon({"gpu": "done"}), True),
        (daemon({"gpu": "done", "net": "open"}), False),
        (daemon({"gpu": "gone"}), False),
        (daemon({}), False),
        (daemon({"gpu": "done"}, is_daemon=False), False),
        (daemon({"gpu": "done"}, owner="other"), False),
    ],
)
def test_a_daemon_is_served_once_all_of_its_claims_are_allocated(pod, is_served):
    snapshot = SimpleNamespace(
        daemon_sets={"web/agent": SimpleNamespace(uid="d")},
        resource_claims={
            "web/done": SimpleNamespace(is_allocated=True),
            "web/open": SimpleNamespace(is_allocated=False),
        },
    )
    found = _served_daemons(snapshot, SimpleNamespace(pods=[pod]))
    assert found == ({"web/agent"} if is_served else set())


@pytest.mark.parametrize(
    ("pauses", "is_trial"),
    [
        ({"a": True}, True),
        ({"a": True, "b": True}, True),
        ({"a": True, "b": False}, False),
        ({"a": True, "b": None}, False),
        ({}, False),
    ],
)
def test_a_claim_is_a_trial_if_each_of_its_pods_is_one(monkeypatch, pauses, is_trial):
    monkeypatch.setattr(paused_pods, "_demand", lambda pod, _snapshot: pod)
    monkeypatch.setattr(paused_pods, "pause_key", lambda _uid, demand: demand)
    known = {
        key: SimpleNamespace(is_on_trial=trial)
        for key, trial in pauses.items()
        if trial is not None
    }
    ledger = SimpleNamespace(
        demand_pauses={**known, "other": None}, expected={"claim": (*pauses, "gone")}
    )
    snapshot = SimpleNamespace(
        ledger=ledger,
        node_pools={"web": SimpleNamespace(uid="u")},
        pods={key: key for key in pauses},
    )
    claim = SimpleNamespace(name="claim", metadata=SimpleNamespace(labels={NODE_POOL: "web"}))
    assert is_trial_of_paused(snapshot, claim) is is_trial


def offering(zone, price):
    return SimpleNamespace(zone=zone, capacity_type="spot", price=Price(price, "USD"))


def test_a_node_has_the_highest_of_its_prices():
    """Offerings of one zone may differ, as those of reservations do."""
    types = (
        SimpleNamespace(
            name="t", offerings=[offering("a", 1.0), offering("a", 3.0), offering("b", 9.0)]
        ),
        SimpleNamespace(name="other", offerings=[offering("a", 9.0)]),
    )
    snapshot = SimpleNamespace(catalogues={"web": SimpleNamespace(instance_types=types)})

    def amount(zone, name="t"):
        labels = {ZONE: zone, CAPACITY_TYPE: "spot", INSTANCE_TYPE: name}
        node = SimpleNamespace(pool="web", claim=None, labels=labels)
        return node_price_amount(snapshot, node, {"USD": 1.0})

    assert amount("a") == 3 * amount("a") // 3 < amount("b")
    assert amount("b") == 3 * amount("a")
    assert amount("c") == amount("a", "gone") == LARGEST_AMOUNT


@pytest.mark.parametrize(("price", "held"), [(LARGEST_AMOUNT - 1, True), (LARGEST_AMOUNT, False)])
def test_a_price_that_is_unknown_is_not_in_a_status(monkeypatch, price, held):
    monkeypatch.setattr(node_pool_usage, "pool_status_resources", lambda *_: {"cpu": 1})
    monkeypatch.setattr(node_pool_usage, "node_price_amount", lambda *_: price)
    monkeypatch.setattr(node_pool_usage, "_is_in_status", lambda *_: True)
    pool = SimpleNamespace(spec=SimpleNamespace(limits={PRICE_PER_HOUR: "1"}))
    snapshot = SimpleNamespace(
        counted_nodes=(SimpleNamespace(pool="web", capacity={}),), node_pools={"web": pool}
    )
    found = PoolStatusSums({}).resources(snapshot, "web")
    assert (PRICE_PER_HOUR in found) is held


@pytest.mark.parametrize(
    ("field", "value", "is_alike"),
    [(None, None, True), ("pool", "other", False), ("capacity", {"cpu": 2}, False)],
)
def test_nodes_count_alike_with_the_same_pool_and_capacity(monkeypatch, field, value, is_alike):
    monkeypatch.setattr(node_pool_usage, "_is_in_status", lambda node, _pool: node.counts)
    fields = {"pool": "web", "capacity": {"cpu": 1}, "counts": True}
    changed = fields if field is None else {**fields, field: value}
    old, new = SimpleNamespace(**fields), SimpleNamespace(**changed)
    assert _count_alike((old,), (new,)) is is_alike
    assert not _count_alike((old,), (SimpleNamespace(**{**fields, "counts": False}),))
    assert not _count_alike((old,), (old, old))


def test_no_instance_of_a_claim_that_is_not_there_is_terminating():
    assert not is_instance_terminating(None)


@pytest.mark.parametrize(
    ("created", "known", "is_noted"),
    [
        (EPOCH, (), True),
        (EPOCH, ("uid-web",), False),
        (EPOCH - LAUNCH_RATE_PERIOD, (), False),
        (EPOCH - LAUNCH_RATE_PERIOD + timedelta(seconds=1), (), True),
        (None, (), False),
    ],
)
def test_a_claim_counts_once_for_the_rate_of_launches(created, known, is_noted):
    """Only what is new changes the state."""
    noted = {}
    recent = type("Table", (dict,), {"put": noted.__setitem__})(dict.fromkeys(known))
    claim = SimpleNamespace(uid="uid-web", metadata=SimpleNamespace(labels={NODE_POOL: "p"}))
    ledger = SimpleNamespace(_now=EPOCH, _recent_claims=recent)
    owner = next(found for found in vars(ledgers).values() if hasattr(found, "_note_recent"))
    assert owner._note_recent(ledger, claim, created) is is_noted
    assert list(noted) == (["uid-web"] if is_noted else [])


@pytest.mark.parametrize(
    ("nodes", "recent", "refusal"),
    [(1, 0, None), (8, 0, "full"), (1, 2, "rate"), (1, 1, None)],
)
def test_claims_in_flight_count_for_each_limit_of_launches(monkeypatch, nodes, recent, refusal):
    """Two claims of the NodePool are in flight, and three of its nodes are starting."""
    asked = []
    monkeypatch.setattr(
        launch_limits,
        "_pause_refusal",
        lambda _snapshot, _pool, booting, _now: asked.append(booting),
    )
    monkeypatch.setattr(launch_limits, "_full_cluster_refusal", lambda _most: "full")
    limits = SimpleNamespace(
        _limits=SimpleNamespace(max_nodes_total=10, launches_per_minute=4),
        _nodes=nodes,
        _in_flight=Counter(web=2),
        _booting=Counter(web=3),
        _recent=Counter(web=recent),
        _snapshot=None,
        _now=EPOCH,
    )
    owner = next(
        found
        for found in vars(launch_limits).values()
        if isinstance(found, type) and hasattr(found, "_refusal")
    )
    found = owner._refusal(limits, SimpleNamespace(name="web"))
    assert asked == ([] if refusal == "full" else [5])
    if refusal == "rate":
        assert found.limit is launch_limits.LaunchLimit.LAUNCHES_PER_MINUTE
    else:
        assert found == refusal


@pytest.mark.parametrize(
    ("is_deleting", "is_registered", "is_trial", "count"),
    [
        (False, False, False, 1),
        (True, False, False, 0),
        (False, True, False, 0),
        (False, False, True, 0),
    ],
)
def test_a_claim_that_may_still_register_is_starting(
    monkeypatch, is_deleting, is_registered, is_trial, count
):
    monkeypatch.setattr(launch_limits, "is_true", lambda _conditions, _type: is_registered)
    monkeypatch.setattr(launch_limits, "is_trial_of_paused", lambda _snapshot, _claim: is_trial)
    claim = SimpleNamespace(
        is_deleting=is_deleting,
        metadata=SimpleNamespace(labels={NODE_POOL: "web"}),
        status=SimpleNamespace(conditions=()),
    )
    found = launch_limits._unregistered(SimpleNamespace(node_claims={"c": claim}))
    assert found["web"] == count
