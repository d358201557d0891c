"""Events become snapshots: objects are filed, joined, shared and dropped."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.nodeclaim import INSTANCE_TERMINATING
from karpenter_core.errors import OfferingKey, QuotaGroup
from karpenter_core.state.builder import TOMBSTONE_TTL, StateBuilder, StateChange
from karpenter_core.state.events import (
    CataloguePublished,
    DeletionMarked,
    DeletionUnmarked,
    InformersSynced,
    LaunchCallStarted,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    ObjectWritten,
    OfferingsUnavailable,
    TimePassed,
)
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    pod,
    pod_shape,
)
from karpenter_core.testing.state_builders import (
    KWOK,
    MANAGED_KINDS,
    node,
    node_and_claim,
    node_claim,
    synced_state,
    with_claim_conditions,
)

EPHEMERAL = (
    "node.kubernetes.io/not-ready:NoExecute",
    "node.kubernetes.io/unreachable:NoSchedule",
    "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
    "readiness.k8s.io/network:NoSchedule",
)


def versioned(record, version: int):
    return msgspec.structs.replace(record, resource_version=version)


def at(**delta: float):
    return EPOCH + timedelta(**delta)


def the_state_node(builder: StateBuilder):
    (only,) = builder.snapshot().state_nodes
    return only


@pytest.mark.parametrize("renamed", [False, True])
def test_a_state_node_is_not_found_by_the_name_of_a_deleted_node(renamed):
    """Whether the instance has no node at all then, or one of another name."""
    builder = synced_state(*node_and_claim("web-1"))
    before = builder.snapshot()
    gone = before.nodes["web-1"]
    builder.apply_event(ObjectRemoved(gone))
    if renamed:
        builder.apply_event(
            ObjectObserved(msgspec.structs.replace(gone, name="web-2", uid="uid-web-2"))
        )

    result = builder.snapshot()

    assert set(before.state_nodes_by_node) == {"web-1"}
    assert set(result.state_nodes_by_node) == ({"web-2"} if renamed else set())
    assert set(result.state_nodes_by_claim) == set(before.state_nodes_by_claim)


def test_a_claim_is_found_by_the_name_of_its_present_node_only():
    """Else a node that took the old name would be judged by it."""

    def claim_of(node_name):
        old = node_claim("web-1")
        return old.model_copy(
            update={"status": old.status.model_copy(update={"node_name": node_name})}
        )

    builder = synced_state(claim_of("old"))
    assert dict(builder.snapshot().claims_by_node_name) == {"old": ("web-1",)}
    builder.apply_event(ObjectObserved(claim_of("new")))
    assert dict(builder.snapshot().claims_by_node_name) == {"new": ("web-1",)}
    builder.apply_event(ObjectRemoved(claim_of("new")))
    assert dict(builder.snapshot().claims_by_node_name) == {}


class TestSharing:
    def test_no_event_gives_the_same_snapshot(self):
        builder = synced_state(*node_and_claim("web-1"))
        first = builder.snapshot()
        builder.apply_event(TimePassed(at(seconds=30)))
        assert builder.snapshot() is first

    def test_an_old_snapshot_is_not_changed_by_later_events(self):
        builder = synced_state(*node_and_claim("web-1"), pod("a", node_name="web-1"))
        old = builder.snapshot()
        builder.apply_event(ObjectObserved(pod("b", node_name="web-1")))
        builder.apply_event(ObjectRemoved(pod("a", node_name="web-1")))
        builder.apply_event(ObjectObserved(node("other")))
        assert [item.name for item in old.pods_by_node["web-1"]] == ["a"]
        assert [item.name for item in old.state_nodes] == ["web-1"]
        assert [item.name for item in builder.snapshot().pods_by_node["web-1"]] == ["b"]

    def test_unchanged_tables_and_state_nodes_are_the_same_objects(self):
        builder = synced_state(
            *node_and_claim("web-1"), *node_and_claim("web-2"), pod("a", node_name="web-1")
        )
        old = builder.snapshot()
        builder.apply_event(ObjectObserved(pod("b", node_name="web-2")))
        new = builder.snapshot()
        assert new.nodes is old.nodes
        assert new.node_claims is old.node_claims
        assert new.state_nodes_by_node["web-1"] is old.state_nodes_by_node["web-1"]
        assert new.state_nodes_by_node["web-2"] is not old.state_nodes_by_node["web-2"]

    def test_tables_cannot_be_written_to(self):
        with pytest.raises(TypeError):
            synced_state(*node_and_claim("web-1")).snapshot().nodes["x"] = node("x")  # type: ignore[index]  # that is the point


class TestReadYourWrites:
    def test_the_response_of_a_write_is_seen_at_once(self):
        builder = synced_state()
        builder.apply_event(ObjectWritten(node_claim("web", resource_version=7)))
        assert "web" in builder.snapshot().node_claims

    def test_an_older_version_is_dropped(self):
        builder = synced_state(versioned(node("web"), 5))
        newer = versioned(node("web", labels={"new": "yes"}), 9)
        builder.apply_event(ObjectWritten(newer))
        assert builder.apply_event(ObjectObserved(versioned(node("web"), 6))) == ()
        assert builder.snapshot().nodes["web"] is newer

    def test_a_repeated_version_changes_nothing(self):
        builder = synced_state(versioned(node("web"), 5))
        before = builder.snapshot()
        assert builder.apply_event(ObjectObserved(versioned(node("web"), 5))) == ()
        assert builder.snapshot() is before

    def test_a_removed_object_does_not_return(self):
        gone = versioned(node("web"), 5)
        builder = synced_state(gone)
        builder.apply_event(ObjectRemoved(gone))
        builder.apply_event(ObjectWritten(versioned(gone, 9)))
        assert "web" not in builder.snapshot().nodes

    def test_a_removal_may_come_before_the_object(self):
        late = pod("a", node_name="web-1")
        builder = synced_state(*node_and_claim("web-1"))
        builder.apply_event(ObjectRemoved(late))
        builder.apply_event(ObjectObserved(late))
        assert the_state_node(builder).pods == ()

    @pytest.mark.parametrize(("early_seconds", "is_forgotten"), [(0, True), (1, False)])
    def test_removed_uids_are_forgotten_after_a_while(self, early_seconds, is_forgotten):
        gone = node("web")
        builder = synced_state(gone)
        builder.apply_event(ObjectRemoved(gone))
        builder.apply_event(TimePassed(EPOCH + TOMBSTONE_TTL - timedelta(seconds=early_seconds)))
        builder.apply_event(ObjectObserved(gone))
        assert ("web" in builder.snapshot().nodes) is is_forgotten

    def test_a_recreated_object_replaces_the_old_one(self):
        builder = synced_state(versioned(node("web", uid="old"), 5))
        builder.apply_event(ObjectObserved(versioned(node("web", uid="new"), 8)))
        builder.apply_event(ObjectRemoved(versioned(node("web", uid="old"), 7)))
        assert builder.snapshot().nodes["web"].uid == "new"

    def test_a_late_event_of_the_old_object_is_dropped(self):
        builder = synced_state(versioned(node("web", uid="new"), 8))
        builder.apply_event(ObjectObserved(versioned(node("web", uid="old"), 5)))
        assert builder.snapshot().nodes["web"].uid == "new"


class TestUsage:
    def test_bound_pods_count_and_others_do_not(self):
        """Case 146: unbound and terminal pods do not count; deletion subtracts."""
        a, b = pod("a", cpu="1500m", node_name="web-1"), pod("b", cpu="2", node_name="web-1")
        done = pod("c", cpu="8", node_name="web-1", phase="Succeeded")
        builder = synced_state(*node_and_claim("web-1"), a, b, done, pod("d", cpu="1"))
        assert the_state_node(builder).requests["cpu"] == 3500
        builder.apply_event(ObjectRemoved(a))
        assert the_state_node(builder).requests["cpu"] == 2000

    def test_daemon_requests_are_counted_separately_and_in_the_total(self):
        """Case 146: 1 CPU of daemons within 2.5 CPU in all."""
        builder = synced_state(
            *node_and_claim("web-1"),
            pod("web", cpu="1500m", memory="1Gi", node_name="web-1"),
            pod("ds", cpu="1", memory="2Gi", node_name="web-1", owner_kind="DaemonSet"),
        )
        state_node = the_state_node(builder)
        assert (state_node.requests["cpu"], state_node.daemon_requests["cpu"]) == (2500, 1000)
        assert state_node.daemon_requests["memory"] == 2 * 2**30

    def test_a_pod_that_is_bound_elsewhere_moves(self):
        """Case 305: missed events (rebinding) are handled."""
        builder = synced_state(
            *node_and_claim("a"), *node_and_claim("b"), pod("p", cpu="1", node_name="a")
        )
        builder.apply_event(ObjectObserved(pod("p", cpu="1", node_name="b")))
        used = {m.name: m.requests.get("cpu", 0) for m in builder.snapshot().state_nodes}
        assert used == {"a": 0, "b": 1000}

    def test_pods_may_be_seen_before_their_node(self):
        builder = synced_state(pod("p", cpu="1", node_name="web-1"))
        for half in node_and_claim("web-1"):
            builder.apply_event(ObjectObserved(half))
        assert the_state_node(builder).requests["cpu"] == 1000

    def test_pending_pods_are_the_provisionable_ones(self):
        builder = synced_state(
            pod("waits"),
            pod("gated", unschedulable=False),
            pod("bound", node_name="web-1"),
            pod("daemon", owner_kind="DaemonSet"),
            pod("mirror", owner_kind="Node"),
        )
        assert [p.name for p in builder.snapshot().pending_pods.values()] == ["waits"]

    def test_the_newest_pod_of_a_daemon_set_is_kept(self):
        """Case 308: the newest is kept, and the next one when it goes."""
        shape = pod_shape(owner_kind="DaemonSet")
        old = pod("ds-1", shape=shape, node_name="a", created=at(seconds=1))
        new = pod("ds-2", shape=shape, node_name="b", created=at(seconds=2))
        builder = synced_state(new, old)
        owner = new.owner_uid
        assert builder.snapshot().daemon_pods[owner] is new
        builder.apply_event(ObjectRemoved(new))
        assert builder.snapshot().daemon_pods[owner] is old
        builder.apply_event(ObjectRemoved(old))
        assert owner not in builder.snapshot().daemon_pods

    def test_a_daemon_pod_without_a_time_of_creation_is_older_than_all(self):
        shape = pod_shape(owner_kind="DaemonSet")
        undated = pod("ds-9", shape=shape, node_name="a", created=None)
        dated = pod("ds-1", shape=shape, node_name="b", created=at(seconds=1))
        builder = synced_state(undated, dated)
        assert builder.snapshot().daemon_pods[dated.owner_uid] is dated

    @pytest.mark.parametrize(
        "other", [{"owner_kind": "ReplicaSet"}, {"owner_kind": "DaemonSet", "phase": "Failed"}]
    )
    def test_only_daemon_sets_that_may_run_have_expected_pods(self, other):
        assert dict(synced_state(pod("web", **other)).snapshot().daemon_pods) == {}


class TestStateNodes:
    def test_a_node_and_its_claim_are_one_state_node(self):
        builder = synced_state(*node_and_claim("web-1"))
        state_node = the_state_node(builder)
        assert (state_node.name, state_node.managed, state_node.registered, state_node.initialized) == (
            "web-1", True, True, True,
        )  # fmt: skip

    def test_a_later_provider_id_keeps_one_state_node(self):
        """Case 150."""
        builder = synced_state(node_claim("web-1"))
        assert the_state_node(builder).provider_id == ""
        its_node, claim = node_and_claim("web-1")
        builder.apply_event(ObjectObserved(claim))
        builder.apply_event(ObjectObserved(its_node))
        assert the_state_node(builder).provider_id == "kwok://web-1"

    def test_a_changed_provider_id_leaves_nothing_behind(self):
        """Case 155."""
        builder = synced_state(*node_and_claim("web-1"))
        builder.apply_event(
            ObjectObserved(node_claim("web-1", stage="Initialized", provider_id="kwok://x"))
        )
        builder.apply_event(ObjectObserved(node("web-1", provider_id="kwok://x")))
        assert the_state_node(builder).provider_id == "kwok://x"
        assert list(builder.snapshot().nodes_by_provider_id) == ["kwok://x"]

    def test_node_or_claim_may_be_deleted_first(self):
        its_node, claim = node_and_claim("web-1")
        for first, second in ((its_node, claim), (claim, its_node)):
            builder = synced_state(its_node, claim)
            builder.apply_event(ObjectRemoved(first))
            assert len(builder.snapshot().state_nodes) == 1
            builder.apply_event(ObjectRemoved(second))
            assert builder.snapshot().state_nodes == ()
            assert dict(builder.snapshot().state_nodes_by_node) == {}
            assert dict(builder.snapshot().state_nodes_by_claim) == {}

    def test_labels_are_the_claims_until_registration(self):
        claim = node_claim("web", stage="Launched", labels={"from": "claim"})
        young = node("web", claim=claim, stage="Launched", labels={"from": "node"})
        builder = synced_state(claim, young)
        assert the_state_node(builder).labels["from"] == "claim"
        grown = node("web", claim=claim, stage="Registered", labels={"from": "node"})
        builder.apply_event(ObjectObserved(grown))
        assert the_state_node(builder).labels["from"] == "node"

    def test_zero_amounts_of_a_young_node_are_filled_from_the_claim(self):
        """Case 212: the kubelet reports no GPUs before their plug-in has started."""
        claim = node_claim("web", stage="Registered", capacity={"example.com/gpu": "2"})
        for stage, gpus in (("Registered", 2), ("Initialized", 0)):
            builder = synced_state(
                claim, node("web", claim=claim, stage=stage, capacity={"example.com/gpu": "0"})
            )
            assert the_state_node(builder).allocatable["example.com/gpu"] == gpus

    def test_capacity_counts_the_node_itself(self):
        """Case 155: capacity always includes `nodes: 1`."""
        assert the_state_node(synced_state(*node_and_claim("web"))).capacity["nodes"] == 1

    def test_boot_time_taints_do_not_count_before_initialisation(self):
        """Cases 154, 202-204, 309."""
        claim = node_claim("web", stage="Registered", startup_taints=("cni:NoSchedule",))
        taints = (*EPHEMERAL, "cni:NoSchedule", "dedicated=web:NoSchedule")
        young = node("web", claim=claim, stage="Registered", taints=taints)
        assert [t.key for t in the_state_node(synced_state(claim, young)).taints] == ["dedicated"]
        grown = node("web", claim=claim, stage="Initialized", taints=taints)
        assert len(the_state_node(synced_state(claim, grown)).taints) == len(taints)
        foreign = node("web", provider_id="kwok://web", taints=taints)
        assert len(the_state_node(synced_state(foreign)).taints) == len(taints)

    def test_a_state_node_without_a_node_has_the_claims_taints(self):
        claim = node_claim(
            "web", taints=("dedicated=web:NoSchedule",), startup_taints=("cni:NoSchedule",)
        )
        assert [t.key for t in the_state_node(synced_state(claim)).taints] == ["dedicated"]

    def test_an_unmanaged_node_is_plain_capacity(self):
        state_node = the_state_node(synced_state(node("static-1")))
        assert (state_node.managed, state_node.initialized, state_node.provider_id) == (
            False,
            True,
            "static-1",
        )

    def test_claims_of_foreign_kinds_are_ignored(self):
        ref = KWOK.model_copy(update={"kind": "OtherNodeClass"})
        claim = node_claim("web", stage="Initialized", node_class_ref=ref)
        state_node = the_state_node(synced_state(claim, node("web", claim=claim)))
        assert state_node.managed is False

    def test_a_node_of_ours_without_provider_id_is_not_capacity_yet(self):
        claim = node_claim("web", stage="Launched")
        builder = synced_state(claim, node("web", claim=claim, provider_id=""))
        assert the_state_node(builder).node is None

    def test_a_managed_node_without_an_instance_type_is_skipped(self):
        claim = node_claim("web", stage="Launched")
        bare = node(
            "web", provider_id="kwok://web", taints=("karpenter.sh/unregistered:NoExecute",)
        )
        assert the_state_node(synced_state(claim, bare)).node is None

    def test_a_registered_node_with_the_taint_of_unregistered_ones_is_not_initialised(self):
        """Pods are planned there, as the taint goes; nothing is moved there meanwhile."""
        claim = node_claim("web", stage="Initialized")
        tainted = node("web", claim=claim, taints=("karpenter.sh/unregistered:NoExecute",))
        state_node = the_state_node(synced_state(tainted, claim))
        assert (state_node.registered, state_node.initialized) == (True, False)
        assert state_node.taints == ()

    def test_two_nodes_with_one_provider_id_are_one_state_node_with_both_names(self):
        its_node, claim = node_and_claim("web-1")
        twin = node("web-0", claim=claim, created=at(seconds=5))
        builder = synced_state(its_node, claim, twin)
        assert the_state_node(builder).name == "web-1"
        assert builder.snapshot().nodes_of(claim) == (twin, its_node)
        assert builder.snapshot().claims_of(twin) == (claim,)

    def test_an_empty_provider_id_matches_nothing(self):
        builder = synced_state(node_claim("web"), node("web"))
        assert builder.snapshot().nodes_of(node_claim("web")) == ()
        assert builder.snapshot().claims_of(node("web")) == ()


class TestLeaving:
    def test_marks_and_deletions_show(self):
        """Cases 148, 155: in-memory mark, deleting claim, terminating instance, deleting node."""
        its_node, claim = node_and_claim("web")
        deleting = claim.model_copy(
            update={"metadata": claim.metadata.model_copy(update={"deletion_timestamp": EPOCH})}
        )
        terminating = with_claim_conditions(claim, INSTANCE_TERMINATING, now=EPOCH)
        for objects in ((its_node, deleting), (its_node, terminating), (node("x", deleted=EPOCH),)):
            assert the_state_node(synced_state(*objects)).marked_for_deletion
        builder = synced_state(its_node, claim)
        assert not the_state_node(builder).marked_for_deletion
        builder.apply_event(DeletionMarked(names=("web",), cause="empty/1"))
        assert the_state_node(builder).marked_for_deletion
        builder.apply_event(DeletionUnmarked(names=("web",)))
        assert not the_state_node(builder).marked_for_deletion

    def test_a_state_node_is_leaving_by_a_mark_of_its_claim_or_node(self):
        _, claim = node_and_claim("web")
        builder = synced_state(claim, node("web-node", claim=claim))
        for name in ("web", "web-node"):
            builder.apply_event(DeletionMarked(names=(name,), cause="empty/1"))
            assert the_state_node(builder).marked_for_deletion
            builder.apply_event(DeletionUnmarked(names=(name,)))
            assert not the_state_node(builder).marked_for_deletion

    def test_a_deleting_node_with_a_living_claim_is_not_leaving_by_itself(self):
        _, claim = node_and_claim("web")
        builder = synced_state(claim, node("web", claim=claim, deleted=EPOCH))
        assert not the_state_node(builder).marked_for_deletion

    def test_a_nomination_lasts_its_window(self):
        """Case 149: true at +10 s, false at +21 s."""
        builder = synced_state(*node_and_claim("web"))
        builder.apply_event(NodesNominated(names=("web",), until=at(seconds=20)))
        state_node = the_state_node(builder)
        assert state_node.is_nominated(at(seconds=10))
        assert not state_node.is_nominated(at(seconds=21))


class TestChanges:
    def test_a_pod_wakes_its_node(self):
        builder = synced_state(*node_and_claim("a"), *node_and_claim("b"), pod("p", node_name="a"))
        changes = builder.apply_event(ObjectObserved(pod("p", node_name="b")))
        assert changes == (
            StateChange(ObjectKind.POD, ("uid-default-p",)),
            StateChange(ObjectKind.NODE_PODS, ("a", "b")),
            StateChange(ObjectKind.POD_EVENT, ("b",)),
        )

    def test_a_node_event_wakes_its_claim_and_a_claim_event_its_node(self):
        its_node, claim = node_and_claim("web")
        builder = synced_state(claim)
        assert StateChange(ObjectKind.NODE_CLAIM, ("web",)) in builder.apply_event(
            ObjectObserved(its_node)
        )
        assert StateChange(ObjectKind.NODE, ("web",)) in builder.apply_event(ObjectObserved(claim))

    def test_the_start_of_a_launch_wakes_the_claim(self):
        claim = node_claim("web")
        builder = synced_state(claim)
        assert builder.apply_event(LaunchCallStarted(claim.uid, EPOCH)) == (
            StateChange(ObjectKind.NODE_CLAIM, ("web",)),
        )
        assert builder.apply_event(LaunchCallStarted("nobody", EPOCH)) == ()

    def test_the_launch_of_a_claim_that_is_gone_wakes_no_namesake(self):
        """Its call is still open; the claim of today has nothing to do with it."""
        gone, namesake = node_claim("web", uid="u-1"), node_claim("web", uid="u-2")
        builder = synced_state(gone)
        builder.apply_event(ObjectRemoved(gone))
        builder.apply_event(ObjectObserved(namesake))
        assert builder.apply_event(LaunchCallStarted("u-1", EPOCH)) == ()
        assert builder.apply_event(LaunchCallStarted("u-2", EPOCH)) == (
            StateChange(ObjectKind.NODE_CLAIM, ("web",)),
        )

    def test_pods_that_were_there_at_the_start_are_no_events(self):
        builder = StateBuilder(MANAGED_KINDS)
        assert ObjectKind.POD_EVENT not in {
            change.kind for change in builder.apply_event(ObjectObserved(pod("p", node_name="a")))
        }

    @pytest.mark.parametrize(
        ("before", "after", "is_event"),
        [
            (None, pod("p", node_name="a"), True),
            (pod("p"), pod("p", node_name="a"), True),
            (pod("p", node_name="a"), pod("p", node_name="a", phase="Running"), False),
            (pod("p", node_name="a"), pod("p", node_name="a", phase="Failed"), True),
            (pod("p"), pod("p", unschedulable=False), False),
            (None, pod("p", node_name="a", owner_kind="DaemonSet"), False),
        ],
    )  # fmt: skip
    def test_coming_ending_and_leaving_are_events(self, before, after, is_event):
        """Case 124's trigger: bound, terminal or terminating; daemons do not count."""
        builder = synced_state(*([before] if before else []))
        kinds = {change.kind for change in builder.apply_event(ObjectObserved(after))}
        assert (ObjectKind.POD_EVENT in kinds) is is_event

    def test_synced_is_reported(self):
        builder = StateBuilder(MANAGED_KINDS)
        assert not builder.snapshot().synced
        assert builder.apply_event(InformersSynced()) == (StateChange(ObjectKind.SYNCED),)
        assert builder.snapshot().synced


class TestMask:
    OUT = OfferingKey(instance_type="small", zone="zone-a", capacity_type="spot")

    def builder(self) -> StateBuilder:
        types = catalogue(instance_type("small"), instance_type("large"))
        return synced_state(node_pool("default"), catalogues={"default": types})

    def available(self, builder: StateBuilder) -> int:
        types = builder.snapshot().catalogues["default"].instance_types
        return sum(offering.available for item in types for offering in item.offerings)

    def test_a_stock_out_is_seen_at_once_and_ends(self):
        builder = self.builder()
        before = builder.snapshot().catalogues["default"]
        whole = self.available(builder)
        changes = builder.apply_event(
            OfferingsUnavailable(offerings=(self.OUT,), provider="kwok", at=EPOCH)
        )
        assert changes == (StateChange(ObjectKind.CATALOGUE, ("default",)),)
        assert self.available(builder) == whole - 1
        assert builder.snapshot().catalogues["default"].version != before.version
        changes = builder.apply_event(TimePassed(at(minutes=3)))
        assert changes == (StateChange(ObjectKind.CATALOGUE, ("default",)),)
        assert builder.snapshot().catalogues["default"] is before

    @pytest.mark.parametrize(("capacity_type", "minutes"), [("spot", 3), ("on-demand", 12)])
    def test_unavailable_spot_is_retried_every_three_minutes(self, capacity_type, minutes):
        """A spot pool that recovers is not bought on demand meanwhile; the others' masks grow."""
        builder = self.builder()
        whole = self.available(builder)
        out = replace(self.OUT, capacity_type=capacity_type)
        moment = EPOCH
        for _ in range(4):
            builder.apply_event(OfferingsUnavailable(offerings=(out,), provider="kwok", at=moment))
            masked_for = 0
            while self.available(builder) < whole:
                masked_for += 1
                moment += timedelta(minutes=1)
                builder.apply_event(TimePassed(moment))
        assert masked_for == minutes

    def test_the_same_mask_gives_the_same_version(self):
        """Compiled columns are cached by version."""
        versions = set()
        for _ in range(2):
            builder = self.builder()
            builder.apply_event(
                OfferingsUnavailable(offerings=(self.OUT,), provider="kwok", at=EPOCH)
            )
            versions.add(builder.snapshot().catalogues["default"].version)
        assert len(versions) == 1

    def test_a_repeated_shortage_keeps_the_masked_catalogue(self):
        """A quota's shortage names thousands of offerings, and each failed claim reports it."""
        builder = self.builder()
        whole = self.available(builder)
        out = replace(self.OUT, capacity_type="on-demand")
        builder.apply_event(OfferingsUnavailable(offerings=(out,), provider="kwok", at=EPOCH))
        before = builder.snapshot().catalogues["default"]
        later = at(minutes=2)
        builder.apply_event(TimePassed(later))
        builder.apply_event(OfferingsUnavailable(offerings=(out,), provider="kwok", at=later))
        assert builder.snapshot().catalogues["default"] is before
        builder.apply_event(TimePassed(at(minutes=4)))
        assert builder.snapshot().catalogues["default"] is before, "the later end counts"
        builder.apply_event(TimePassed(at(minutes=5)))
        assert self.available(builder) == whole

    def test_pools_with_one_catalogue_and_one_mask_share_the_result(self):
        types = catalogue(instance_type("small"), instance_type("large"))
        pools = [node_pool(name) for name in ("first", "second")]
        builder = synced_state(*pools, catalogues={"first": types, "second": types})
        builder.apply_event(OfferingsUnavailable(offerings=(self.OUT,), provider="kwok", at=EPOCH))
        masked = builder.snapshot().catalogues
        assert masked["first"] is not types
        assert masked["first"] is masked["second"]
        later = node_pool("third")
        builder.apply_event(ObjectObserved(later))
        builder.apply_event(CataloguePublished("third", types))
        assert builder.snapshot().catalogues["third"] is masked["first"]

    def test_another_mask_or_catalogue_gives_another_result(self):
        builder = self.builder()
        builder.apply_event(OfferingsUnavailable(offerings=(self.OUT,), provider="kwok", at=EPOCH))
        one = self.available(builder)
        more = replace(self.OUT, zone="zone-b")
        builder.apply_event(OfferingsUnavailable(offerings=(more,), provider="kwok", at=EPOCH))
        assert self.available(builder) == one - 1
        fresh = catalogue(instance_type("small"), version="2")
        builder.apply_event(CataloguePublished("default", fresh))
        assert len(builder.snapshot().catalogues["default"].instance_types) == 1

    @pytest.mark.parametrize(
        ("group", "masked"),
        [
            ({"label": "family", "value": "m"}, {"m-4x", "m-8x"}),
            ({"label": "family", "value": "m", "least_cpu_milli": 8000}, {"m-8x"}),
            ({"label": "family", "value": "x"}, set()),
            ({"label": "other", "value": "m"}, set()),
            ({}, {"m-4x", "m-8x", "c-8x"}),
        ],
    )
    def test_quota_group_masks_types_by_label_and_size(self, group, masked):
        """A type that the launch did not ask for shares the quota too."""
        types = catalogue(
            instance_type("m-4x", cpu="4", labels={"family": "m"}),
            instance_type("m-8x", cpu="8", labels={"family": "m"}),
            instance_type("c-8x", cpu="8", labels={"family": "c"}),
        )
        builder = synced_state(node_pool("default"), catalogues={"default": types})
        group = QuotaGroup(**group, capacity_type="spot", zone="zone-a")
        builder.apply_event(OfferingsUnavailable(offerings=(group,), provider="kwok", at=EPOCH))
        unavailable = {
            (item.name, offering.zone, offering.capacity_type)
            for item in builder.snapshot().catalogues["default"].instance_types
            for offering in item.offerings
            if not offering.available
        }
        assert unavailable == {(name, "zone-a", "spot") for name in masked}

    @pytest.mark.parametrize(("capacity_type", "minutes"), [("spot", 3), ("on-demand", 6)])
    def test_quota_group_is_masked_again_for_longer_except_spot(self, capacity_type, minutes):
        builder = self.builder()
        whole = self.available(builder)
        group = QuotaGroup(capacity_type=capacity_type)
        moment = EPOCH
        for _ in range(2):
            builder.apply_event(
                OfferingsUnavailable(offerings=(group,), provider="kwok", at=moment)
            )
            masked_for = 0
            while self.available(builder) < whole:
                masked_for += 1
                moment += timedelta(minutes=1)
                builder.apply_event(TimePassed(moment))
        assert masked_for == minutes

    def test_other_providers_are_not_touched(self):
        builder = self.builder()
        before = builder.snapshot().catalogues["default"]
        assert (
            builder.apply_event(
                OfferingsUnavailable(offerings=(self.OUT,), provider="aws", at=EPOCH)
            )
            == ()
        )
        assert builder.snapshot().catalogues["default"] is before

    def test_a_shortage_of_one_node_class_is_that_of_its_pools(self):
        """Its subnets are full, say; another NodeClass has others in the same zone."""
        builder = self.builder()
        whole = self.available(builder)
        name = builder.snapshot().node_pools["default"].spec.template.spec.node_class_ref.name
        other, own = (
            OfferingsUnavailable(offerings=(self.OUT,), provider="kwok", node_class=each, at=EPOCH)
            for each in ("another", name)
        )
        builder.apply_event(other)
        assert self.available(builder) == whole
        builder.apply_event(own)
        assert self.available(builder) == whole - 1

    def test_a_refreshed_catalogue_keeps_its_mask(self):
        builder = self.builder()
        builder.apply_event(OfferingsUnavailable(offerings=(self.OUT,), provider="kwok", at=EPOCH))
        masked = self.available(builder)
        fresh = catalogue(instance_type("small"), instance_type("large"), version="2")
        builder.apply_event(CataloguePublished("default", fresh))
        assert self.available(builder) == masked

    def test_a_pool_without_a_catalogue_has_none(self):
        builder = self.builder()
        builder.apply_event(CataloguePublished("default", None))
        assert "default" not in builder.snapshot().catalogues


def test_objects_that_have_gone_leave_nothing_behind_without_a_snapshot():
    """A standby takes one at its start, and then none for weeks."""
    builder = synced_state(*node_and_claim("stays"))
    builder.snapshot()

    def come_and_go(first, count):
        for number in range(first, first + count):
            its_node, claim = node_and_claim(f"web-{number}")
            own = pod(f"web-{number}", node_name=its_node.name)
            daemon = pod(
                f"log{number}-a",
                node_name=its_node.name,
                owner_kind="DaemonSet",
            )
            for obj in (claim, its_node, own, daemon):
                builder.apply_event(ObjectObserved(obj))
            for obj in (daemon, own, its_node, claim):
                builder.apply_event(ObjectRemoved(obj))
            builder.apply_event(TimePassed(at(minutes=number)))
        return sys.getallocatedblocks()

    before = come_and_go(0, 100)
    assert come_and_go(100, 400) - before < 200, "less than an item for each of 400 nodes"
    assert [each.name for each in builder.snapshot().state_nodes] == ["stays"]
