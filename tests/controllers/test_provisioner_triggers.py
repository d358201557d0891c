"""Changes of the cluster trigger provisioning passes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from karpenter_core.api.labels import DISRUPTED_TAINT
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.api.records import VirtualSource
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.provisioning import provisioner
from karpenter_core.state.events import (
    DeletionMarked,
    ObjectObserved,
    PodsDecided,
    VirtualPodsDeclared,
    VirtualPodsPlaced,
)
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.testing.builders import EPOCH, node_pool, pod
from karpenter_core.testing.state_builders import (
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)
from tests.scheduling.devices.builders import device_pod

POOL = ready_node_pool(node_pool("default"))
TAINT = f"{DISRUPTED_TAINT}:NoSchedule"


def askers(builder, **changes):
    """Return who asks for a pass after changes, by kind and names."""
    result = {ObjectKind[kind.upper()]: tuple(names) for kind, names in changes.items()}
    return list(provisioner._triggers(builder.snapshot(), result))


def running(name="web", on="web", **options):
    return pod(name, node_name=on, phase="Running", **options)


def nominated(name, to):
    return msgspec.structs.replace(pod(name), nominated_node_name=to)


def untried_pod(name, **options):
    return pod(name, unschedulable=False, **options)


def leaving(name="going", *, taints=()):
    """A node whose claim is being deleted."""
    claim = node_claim(name, stage=INITIALIZED, deleted=EPOCH)
    return claim, node(name, claim=claim, taints=taints)


def test_a_pass_is_repeated_while_it_could_find_a_pod_without_a_place():
    """A nomination ends without any change of the pod: only the repetition sees it."""

    def repeats(*objects, event=None):
        builder = synced_state(POOL, *objects)
        if event is not None:
            builder.apply_event(event)
        return provisioner._may_need_claims(builder.snapshot())

    settled = (*node_and_claim("web"), running())
    virtual = VirtualPodsDeclared(
        source=VirtualSource(
            api_version="v1", kind="CapacityBuffer", namespace="default", name="b", uid="uid-b"
        ),
        pods=(pod("v"),),
    )
    assert not repeats(*settled)
    assert repeats(*settled, pod("waiting"))
    assert repeats(*settled, nominated("placed", "web"))
    assert repeats(*settled, event=virtual)
    assert repeats(*settled, event=DeletionMarked(names=("web",), cause="empty/1"))
    assert repeats(*settled, event=VirtualPodsPlaced(counts={"web": 1}, placements={}))


def test_pending_pods_trigger_a_pass_unless_nominated():
    waiting, placed, bound = pod("waiting"), pod("placed"), running()
    builder = synced_state(POOL, waiting, placed, bound)
    builder.apply_event(PodsDecided(placed={placed.uid: "claim"}, at=EPOCH))
    assert askers(builder, pod=[waiting.uid, placed.uid, bound.uid, "uid-gone"]) == [waiting.uid]


def test_a_placed_pod_that_the_scheduler_refuses_again_triggers_a_pass():
    placed = pod("placed")
    builder = synced_state(POOL, *node_and_claim("web"), placed)
    builder.apply_event(PodsDecided(placed={placed.uid: "web"}, at=EPOCH))
    assert askers(builder, pod=[placed.uid]) == []
    builder.apply_event(ObjectObserved(msgspec.structs.replace(placed, resource_version=50)))
    assert askers(builder, pod=[placed.uid]) == [placed.uid]


def test_a_pod_that_triggered_during_a_pass_needs_none_once_it_has_a_place_or_a_node():
    placed, waiting, lost, bound = pod("placed"), pod("waiting"), pod("lost"), running("bound")
    builder = synced_state(POOL, *node_and_claim("web"), placed, waiting, lost, bound)
    builder.apply_event(PodsDecided(placed={placed.uid: "web", lost.uid: "gone"}, at=EPOCH))
    elements = (placed.uid, waiting.uid, lost.uid, bound.uid, "uid-gone", "node/web", "retry")

    def settled():
        snapshot = builder.snapshot()
        return [each for each in elements if provisioner._is_settled(snapshot, each)]

    assert settled() == [placed.uid, bound.uid]
    builder.apply_event(ObjectObserved(msgspec.structs.replace(placed, resource_version=50)))
    assert settled() == [bound.uid]


def test_a_pod_placed_on_a_node_that_is_being_removed_still_needs_a_pass():
    placed, changes = pod("placed"), {"node_pool": ["default"]}
    builder = synced_state(POOL, *node_and_claim("web"), placed)
    builder.apply_event(PodsDecided(placed={placed.uid: "web"}, at=EPOCH))
    assert provisioner._is_settled(builder.snapshot(), placed.uid)
    assert askers(builder, **changes) == []
    builder.apply_event(DeletionMarked(names=("web",), cause="drift/1"))
    assert not provisioner._is_settled(builder.snapshot(), placed.uid)
    assert askers(builder, **changes) == ["nodepool/default"]


def test_an_untried_pod_triggers_a_pass_once_the_scheduler_has_refused_its_equal():
    """Of a thousand new pods, some are refused long before the scheduler has tried the others."""
    refused, untried, other = pod("web-1"), untried_pod("web-2"), untried_pod("db-1", cpu="3")
    untried = msgspec.structs.replace(untried, shape=refused.shape)
    builder = synced_state(POOL, refused, untried, other)
    assert askers(builder, pod=[untried.uid, other.uid]) == [untried.uid]
    builder.apply_event(PodsDecided(placed={untried.uid: "claim"}, at=EPOCH))
    assert askers(builder, pod=[untried.uid, other.uid]) == []


@pytest.mark.parametrize(
    ("taints", "asks"), [([TAINT], ["node/web"]), ([], []), (["a:NoSchedule"], [])]
)
def test_a_node_tainted_for_disruption_triggers_a_pass(taints, asks):
    its_node = node("web", taints=taints)
    assert askers(synced_state(POOL, its_node, running()), node=["web"]) == asks


def test_a_deleted_node_triggers_a_pass_for_its_nominated_pods():
    builder = synced_state(POOL, nominated("a", "gone"))
    assert askers(builder, node=["gone"]) == ["node/gone"]
    assert askers(builder, node=["other"]) == []


def test_a_terminating_or_deleted_claim_triggers_a_pass():
    builder = synced_state(POOL, *node_and_claim("staying"), *leaving(), running(on="going"))
    assert askers(builder, node_claim=["staying", "going"]) == ["node/going"]
    waiting = synced_state(POOL, *node_and_claim("staying"), pod("waiting"))
    assert askers(waiting, node_claim=["staying", "gone"]) == ["nodeclaim/gone"]


@pytest.mark.parametrize(
    ("taints", "guest"),
    [
        ([TAINT], running(on="going")),
        ([], running(on="going", owner_kind="DaemonSet")),
        ([], None),
    ],
)
def test_a_terminating_claim_without_pods_to_move_triggers_no_pass(taints, guest):
    """Nor for a node whose taint has asked already."""
    builder = synced_state(POOL, *leaving(taints=taints), *([guest] if guest else []))
    assert askers(builder, node_claim=["going"]) == []


def test_pool_and_catalogue_changes_trigger_a_pass_only_while_pods_wait():
    changes = {"node_pool": ["default", "gone"], "catalogue": ["default"]}
    assert askers(synced_state(POOL, running()), **changes) == []
    assert askers(synced_state(POOL, pod("waiting")), **changes) == ["nodepool/default"] * 2


def test_pool_and_catalogue_changes_trigger_no_pass_while_every_pod_has_a_place():
    """The pool's own status changes with each of its new nodes."""
    changes = {"node_pool": ["default"], "catalogue": ["default"]}
    placed, other = pod("placed"), pod("other")
    builder = synced_state(POOL, *node_and_claim("web"), placed, other)
    builder.apply_event(PodsDecided(placed={placed.uid: "web", other.uid: "web"}, at=EPOCH))
    assert askers(builder, **changes) == []
    builder.apply_event(PodsDecided(placed={other.uid: "gone"}, at=EPOCH))
    assert askers(builder, **changes) == ["nodepool/default"] * 2
    builder.apply_event(PodsDecided(failed=frozenset({other.uid}), at=EPOCH))
    assert askers(builder, **changes) == ["nodepool/default"] * 2


def test_a_pool_without_types_triggers_no_pass():
    builder = synced_state(POOL, pod("waiting"), catalogues={})
    assert askers(builder, node_pool=["default"]) == []


def test_every_kind_whose_changes_trigger_a_pass_is_listened_to(monkeypatch):
    class Subscribed(Exception):  # noqa: N818 - ends the construction
        pass

    def subscribed(_cluster_state, *kinds):
        raise Subscribed(kinds)

    monkeypatch.setattr(provisioner, "ChangedNames", subscribed)
    around = SimpleNamespace(cluster_state=None, clock=None, metrics=Metrics())
    with pytest.raises(Subscribed) as raised:
        provisioner.Provisioner(
            writer=around,
            planner=around,
            creator=around,
            runtime=around,
            options=provisioner.ProvisioningOptions(),
            unevaluated_pools=tuple,
            planning_turn=asyncio.Lock(),
        )
    (kinds,) = raised.value.args

    waiting = device_pod("waiting", "gpu")
    builder = synced_state(POOL, waiting, nominated("placed", "gone"))
    names = {ObjectKind.POD: waiting.uid, ObjectKind.NODE: "gone"}
    asking = {
        kind
        for kind in ObjectKind
        if askers(builder, **{kind.name.lower(): [names.get(kind, "default")]})
    }
    assert asking == set(kinds)
