"""Decisions of single functions: each condition of them counts by itself."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import ApiError, BadInputError, FencedError
from karpenter_core.provider.contract import Severity
from karpenter_core.testing.state_builders import node_claim
from karpenter_provider_kwok import cloud
from karpenter_provider_kwok.catalogue import _canonical, _FilePosition
from karpenter_provider_kwok.cloud import PROVIDER_ID_PREFIX, KwokCloud
from karpenter_provider_kwok.nodes import node_manifest
from karpenter_provider_kwok.plugin import KwokProvider, _unready
from karpenter_provider_kwok.registrar import NodeRegistrar


def fault(*, claim=True, offering=True):
    return SimpleNamespace(matches_claim=lambda _claim: claim, matches_offering=lambda *_: offering)


@pytest.mark.parametrize(
    ("found", "is_left", "is_struck"),
    [
        (fault(), True, True),
        (fault(claim=False), True, False),
        (fault(offering=False), True, False),
        (fault(), False, False),
    ],
)
def test_a_fault_strikes_a_node_that_it_matches_while_it_is_left(found, is_left, is_struck):
    used = []

    def use_up(_db, fault_id):
        used.append(fault_id)
        return is_left

    disturbances = SimpleNamespace(
        active=lambda _db, kind: [(kind, found)] if kind.name == "SLOW_NODE" else [], use_up=use_up
    )
    world = SimpleNamespace(disturbances=disturbances)
    launched = SimpleNamespace(instance_type="t", zone="a", capacity_type="spot")
    struck = KwokCloud._node_faults(world, None, "claim", launched)
    assert struck == ([found] if is_struck else [])
    assert len(used) == (is_struck or not is_left)


@pytest.mark.parametrize(
    ("claim", "is_left", "is_refused"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_a_protection_refuses_the_end_of_its_instance_while_it_is_left(
    monkeypatch, claim, is_left, is_refused
):
    monkeypatch.setattr(cloud, "live_row", lambda *_: ROW)
    recorded = []
    monkeypatch.setattr(cloud, "record_call", lambda _db, **call: recorded.append(call["result"]))
    world = SimpleNamespace(
        _timestamp=lambda: 0.0,
        _termination_delay=SimpleNamespace(total_seconds=lambda: 0.0),
        disturbances=SimpleNamespace(use_up=lambda _db, _id: is_left),
    )
    db = SimpleNamespace(execute=lambda *_: None)
    outcome = KwokCloud._terminate(world, db, "kwok://web", [("f", fault(claim=claim))])
    assert ("protected" in str(outcome)) is is_refused
    assert recorded.count("refused") == is_refused


@pytest.mark.parametrize(
    ("provider_id", "labels", "is_deleting", "is_adopted"),
    [
        (f"{PROVIDER_ID_PREFIX}web", {NODE_POOL: "p"}, False, True),
        ("aws:///a/i-1", {NODE_POOL: "p"}, False, False),
        (f"{PROVIDER_ID_PREFIX}web", {}, False, False),
        (f"{PROVIDER_ID_PREFIX}web", {NODE_POOL: "p"}, True, False),
        (f"{PROVIDER_ID_PREFIX}known", {NODE_POOL: "p"}, False, False),
    ],
)
def test_a_node_of_ours_that_is_not_known_and_stays_is_adopted(
    monkeypatch, provider_id, labels, is_deleting, is_adopted
):
    adopted = []
    monkeypatch.setattr(cloud, "adopt_node", lambda _db, node, _now: adopted.append(node))
    db = SimpleNamespace(execute=lambda _sql: [(f"{PROVIDER_ID_PREFIX}known",)])

    @contextmanager
    def opened():
        yield db

    store = SimpleNamespace(reading=opened, transaction=opened)
    world = SimpleNamespace(_store=store, _timestamp=lambda: 0.0)
    node = SimpleNamespace(provider_id=provider_id, labels=labels, is_deleting=is_deleting)
    assert KwokCloud.adopt(world, [node]) == is_adopted
    assert adopted == ([node] if is_adopted else [])


ROW = {"node_claim": "web", "terminating_at": 1.0, "gone_at": 0.0, "token": "t"}
THERE = SimpleNamespace(is_deleting=False)
LEAVING = SimpleNamespace(is_deleting=True)


@pytest.mark.parametrize(
    ("node", "shown", "is_own", "error", "deletes", "is_removed"),
    [
        (THERE, True, True, None, True, True),
        (THERE, True, False, None, False, True),
        (LEAVING, True, True, None, False, True),
        (None, True, True, None, False, True),
        (None, False, True, None, True, True),
        (THERE, True, True, FencedError("lost"), True, False),
        (THERE, True, True, ApiError("no", status=500, reason="r"), True, False),
    ],
)
async def test_a_node_of_a_gone_instance_is_deleted_unless_it_is_gone(
    node, shown, is_own, error, deletes, is_removed
):
    deleted, removed = [], []

    async def delete(name):
        deleted.append(name)
        if error is not None:
            raise error

    @contextmanager
    def transaction():
        yield SimpleNamespace(execute=lambda *_: removed.append(1))

    registrar = SimpleNamespace(
        _context=SimpleNamespace(
            read_nodes=lambda: {} if node is None else {"web": node},
            nodes=SimpleNamespace(delete=delete),
        ),
        _shown={"web"} if shown else set(),
        _is_there=lambda _work: is_own,
        _store=SimpleNamespace(transaction=transaction),
    )
    await NodeRegistrar._delete(registrar, SimpleNamespace(name="web", token="t"))
    assert (deleted == ["web"], removed == [1]) == (deletes, is_removed)
    assert ("web" in registrar._shown) is (shown and not is_removed)


@pytest.mark.parametrize(
    ("value", "is_read"), [([1], True), ([], False), ("a", False), ({}, False)]
)
def test_a_list_of_a_file_has_an_item(value, is_read):
    place = _FilePosition("file")
    if is_read:
        assert place.items(value) == value
    else:
        with pytest.raises(BadInputError, match="at least one item"):
            place.items(value)


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", "2000m", "2"),
        ("memory", "1024Mi", "1Gi"),
        ("memory", "1000000000", "1G"),
        ("memory", "1500000", "1500k"),
        ("memory", "1001", "1001"),
        ("memory", "0", "0"),
    ],
)
def test_an_amount_is_written_as_kubernetes_prints_it(resource, value, text):
    assert _canonical(resource, value) == text


@pytest.mark.parametrize(
    ("kind", "status", "is_refused"),
    [("Ready", "False", True), ("Ready", "True", False), ("Other", "False", False)],
)
def test_a_launch_is_refused_for_a_class_that_is_not_ready(kind, status, is_refused):
    condition = SimpleNamespace(type=kind, status=status, message="why")
    other = SimpleNamespace(type="Other", status="True", message="")
    node_class = SimpleNamespace(name="n", status=SimpleNamespace(conditions=(other, condition)))
    refusal = _unready(SimpleNamespace(node_class=node_class))
    assert (refusal is not None) is is_refused
    assert not is_refused or "why" in str(refusal)


@pytest.mark.parametrize(("keeps_state", "warnings"), [(True, []), (False, [Severity.WARNING])])
def test_a_cloud_that_forgets_says_so(keeps_state, warnings):
    running = SimpleNamespace(catalogue=range(3), settings=SimpleNamespace(keeps_state=keeps_state))
    found = KwokProvider.karpenter_check(SimpleNamespace(running=running))
    assert [each.severity for each in found] == [Severity.OK, *warnings]
    assert "3 instance types" in found[0].message
    assert all("--kwok-state-file" in each.remedy for each in found[1:])


def test_a_node_has_the_labels_that_its_claim_decides():
    wanted = [
        RequirementSpec(key="one", operator="In", values=("a",)),
        RequirementSpec(key="two", operator="In", values=("a", "b")),
        RequirementSpec(key="none", operator="In", values=()),
        RequirementSpec(key="not", operator="NotIn", values=("a",)),
    ]
    claim = node_claim("web")
    claim = claim.model_copy(
        update={"spec": claim.spec.model_copy(update={"requirements": tuple(wanted)})}
    )
    labels = node_manifest(claim, {}, capacity={}, allocatable={})["metadata"]["labels"]
    assert {key: labels.get(key) for key in ("one", "two", "none", "not")} == {
        "one": "a",
        "two": None,
        "none": None,
        "not": None,
    }
