"""NodeClaims are built from planned claims and updated later."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import is_true
from karpenter_core.api.crd import render_crd
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.labels import INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.nodeclaim import (
    CONSOLIDATABLE,
    INITIALIZED,
    NODE_CLAIM_CONDITIONS,
    NodeClaim,
)
from karpenter_core.api.nodepool import Disruption
from karpenter_core.api.schema import SchemaValidator
from karpenter_core.lifecycle.changes import NodePatch
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_step
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import build_node_claim, created_metric
from karpenter_core.lifecycle.nodeclaim.pod_event_time import pod_event_step
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    EPOCH,
    node_pool,
    pod,
    pods,
    problem,
    requirement_spec,
    taint,
)
from karpenter_core.testing.state_builders import node, node_claim


def after(**delta: float):
    return EPOCH + timedelta(**delta)


class TestBuilding:
    def build(self, pool, **options):
        (planned,) = solve(
            problem(pods(1, "web", cpu="1", memory="1Mi", tolerations=["a"]), pools=(pool,))
        ).claims
        return planned, build_node_claim(
            planned,
            pool,
            suffix="x7k2p",
            node_pool_hash="123",
            node_pool_hash_version="v3",
            **options,
        )

    @pytest.mark.parametrize(
        ("pool", "name"),
        [
            ("a" * 57, f"{'a' * 57}-x7k2p"),
            ("a" * 63, f"{'a' * 57}-x7k2p"),
            (f"{'a' * 55}.-{'a' * 6}", f"{'a' * 55}-x7k2p"),
        ],
    )
    def test_a_name_can_be_the_label_of_a_hostname(self, pool, name):
        """The API server cuts names that it generates as well; kubelets label Nodes with their names."""
        _, claim = self.build(node_pool(pool))
        assert claim.name == name

    def test_new_claim_is_complete(self):
        """Cases 162, 165, 194 and section 3.4: nothing is patched before the launch."""
        pool = node_pool(
            "web",
            labels={"team": "a"},
            annotations={"note": "b"},
            taints=("a=1:NoSchedule",),
            startup_taints=("b:NoExecute",),
            requirements=[requirement_spec("example.com/tier", "In", "gold")],
        )
        _, claim = self.build(pool)
        assert claim.name == "web-x7k2p"
        assert claim.metadata.finalizers == ("karpenter.sh/termination",)
        assert claim.metadata.labels == {
            "team": "a",
            "example.com/tier": "gold",
            NODE_POOL: "web",
            "karpenter.kwok.sh/kwoknodeclass": "default",
        }
        assert claim.metadata.annotations == {
            "note": "b",
            "karpenter.sh/nodepool-hash": "123",
            "karpenter.sh/nodepool-hash-version": "v3",
            "karpenter.sh/nodeclaim-min-values-relaxed": "false",
        }
        (owner,) = claim.metadata.owner_references
        assert (owner.kind, owner.uid, owner.block_owner_deletion, owner.controller) == (
            "NodePool", "uid-web", True, None,
        )  # fmt: skip
        template = pool.spec.template.spec
        assert claim.spec.taints == template.taints
        assert claim.spec.startup_taints == template.startup_taints
        assert claim.spec.node_class_ref == template.node_class_ref
        assert claim.spec.expire_after == template.expire_after

    def test_new_claim_has_planned_types_and_no_simulation_labels(self):
        """Cases 160 and 162."""
        planned, claim = self.build(node_pool("web"))
        by_key = {item.key: item for item in claim.spec.requirements}
        assert by_key[INSTANCE_TYPE].values == tuple(sorted(planned.instance_types))
        assert not {"karpenter.sh/registered", "karpenter.sh/initialized", "kubernetes.io/hostname"} & set(by_key)  # fmt: skip

    def test_the_planned_types_replace_the_requirement_of_the_pool(self):
        """With the pool's `minValues`; without a plan of types what the pool allows stays."""
        pool = node_pool("web")
        planned, _ = self.build(pool)
        asked = Requirement.of(INSTANCE_TYPE, "Exists", (), min_values=2)

        def types(*names):
            others = tuple(r for r in planned.requirements if r.key != INSTANCE_TYPE)
            changed = replace(planned, requirements=(*others, asked), instance_types=names)
            claim = build_node_claim(
                changed, pool, suffix="x", node_pool_hash="1", node_pool_hash_version="v3"
            )
            (result,) = (r for r in claim.spec.requirements if r.key == INSTANCE_TYPE)
            return result.operator, tuple(result.values), result.min_values

        assert types("b", "a") == ("In", ("a", "b"), 2)
        assert types() == ("Exists", (), 2)

    def test_the_api_server_accepts_fewer_values_than_the_pool_asks_for(self):
        """`minValues` is about the instance types; a pod in one zone leaves one value."""
        pool = node_pool("web", requirements=[requirement_spec(ZONE, "Exists", min_values=2)])
        pinned = pod(node_selector={ZONE: "zone-b"})
        (planned,) = solve(problem([pinned], pools=(pool,))).claims

        claim = build_node_claim(
            planned, pool, suffix="x", node_pool_hash="1", node_pool_hash_version="v3"
        )

        (zone,) = (each for each in claim.spec.requirements if each.key == ZONE)
        assert (zone.operator, tuple(zone.values), zone.min_values) == ("In", ("zone-b",), 1)
        (served,) = render_crd(NodeClaim)["spec"]["versions"]
        judge = SchemaValidator(served["schema"]["openAPIV3Schema"])
        written = claim.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert list(judge.validate(written)) == []

    def test_a_new_claim_requests_the_sum_of_its_pods(self):
        """Case 166."""
        _, claim = self.build(node_pool("web"))
        assert {name: str(q) for name, q in claim.spec.resources.requests.items()} == {
            "cpu": "1", "memory": "1Mi", "pods": "1",
        }  # fmt: skip

    def test_grace_period_has_a_default(self):
        _, claim = self.build(node_pool("web"), default_termination_grace_period=Duration("1h"))
        assert str(claim.spec.termination_grace_period) == "1h"

    def test_created_claim_is_counted(self):
        _, claim = self.build(node_pool("web"))
        assert created_metric(claim, "provisioned").labels == {
            "reason": "provisioned", "nodepool": "web", "min_values_relaxed": "false",
        }  # fmt: skip


class TestConsolidatable:
    def pool(self, window="1m", **options):
        return node_pool(
            "default", disruption=Disruption(consolidate_after=NillableDuration(window)), **options
        )

    def step(self, claim, *, pool=None, now=EPOCH, watched=0):
        watched = timedelta(seconds=watched)
        return consolidatable_step(claim, pool or self.pool(), now=now, observed_quiet_time=watched)

    def is_set(self, step):
        return is_true(step.claim.status.conditions, CONSOLIDATABLE)

    def test_consolidatable_is_set_after_consolidate_after(self):
        """Case 138: since the last pod event or, if there was none, since initialisation."""
        claim = node_claim(stage="Initialized")
        early = self.step(claim, now=after(seconds=59))
        assert (self.is_set(early), early.requeue_after) == (False, timedelta(seconds=1))
        assert self.is_set(self.step(claim, now=after(seconds=60)))
        busy = node_claim(stage="Initialized", last_pod_event=after(seconds=30))
        assert not self.is_set(self.step(busy, now=after(seconds=60)))
        assert self.is_set(self.step(busy, now=after(seconds=90)))

    def test_consolidatable_is_set_at_once_without_consolidate_after(self):
        assert self.is_set(self.step(node_claim(stage="Initialized"), pool=self.pool("0s")))

    def test_consolidatable_is_removed_after_a_pod_event(self):
        """Case 138: an event too recent, Never, not initialised."""
        claim = node_claim(stage="Initialized", consolidatable=True)
        busy = node_claim(stage="Initialized", consolidatable=True, last_pod_event=EPOCH)
        assert not self.is_set(self.step(busy))
        assert not self.is_set(self.step(claim, pool=self.pool("Never"), now=after(days=1)))
        unknown = NODE_CLAIM_CONDITIONS.set(
            claim.status.conditions,
            type=INITIALIZED, status="Unknown", reason="x", now=EPOCH, generation=1,
        )  # fmt: skip
        lost = claim.model_copy(
            update={"status": claim.status.model_copy(update={"conditions": unknown})}
        )
        assert not self.is_set(self.step(lost, now=after(days=1)))

    @pytest.mark.parametrize("event", [None, after(hours=5)])
    def test_a_future_last_pod_event_counts_from_its_first_observation(self, event):
        """Else a clock that was hours ahead keeps the node for as many hours."""
        claim = node_claim(stage="Initialized", last_pod_event=event)
        now = after(hours=-5) if event is None else EPOCH
        step = self.step(claim, now=now)
        assert (self.is_set(step), step.requeue_after) == (False, timedelta(minutes=1))
        step = self.step(claim, now=now, watched=59)
        assert (self.is_set(step), step.requeue_after) == (False, timedelta(seconds=1))
        assert self.is_set(self.step(claim, now=now, watched=60))

    def test_a_clock_that_is_behind_changes_no_time_of_a_pod_event(self):
        """Else the node is consolidatable too early once the clock is right again."""
        busy = node_claim(stage="Initialized", last_pod_event=after(hours=5))
        assert self.step(busy, watched=60).claim.status.last_pod_event_time == after(hours=5)
        assert self.step(busy, pool=self.pool("Never"), watched=60).claim is busy
        step = self.step(busy, now=after(hours=5, seconds=1))
        assert (self.is_set(step), step.requeue_after) == (False, timedelta(seconds=59))

    def test_a_restart_does_not_delay_consolidatable(self):
        """A process that starts anew has watched nothing."""
        claim = node_claim(stage="Initialized")
        assert self.is_set(self.step(claim, now=after(seconds=60), watched=1))

    def test_claims_of_static_pools_are_not_consolidatable(self):
        """Case 137."""
        claim = node_claim(stage="Initialized", consolidatable=True)
        assert not self.is_set(self.step(claim, pool=self.pool(replicas=1), now=after(days=1)))

    def test_claim_without_a_pool_is_left_as_it_is(self):
        """Case 130."""
        claim = node_claim(stage="Initialized", consolidatable=True)
        assert consolidatable_step(claim, None, now=EPOCH).claim is claim

    def test_unchanged_condition_returns_the_same_claim(self):
        claim = node_claim(stage="Initialized", consolidatable=True)
        assert self.step(claim, now=after(days=1)).claim is claim


@pytest.mark.parametrize(
    ("last", "now", "written"),
    [
        (None, after(seconds=10), after(seconds=10)),
        (EPOCH, after(seconds=9), EPOCH),
        (EPOCH, after(seconds=10), after(seconds=10)),
    ],
)
def test_pod_events_are_noted_every_ten_seconds_at_most(last, now, written):
    """Case 124."""
    claim = node_claim(stage="Initialized", last_pod_event=last)
    assert pod_event_step(claim, None, now=now).claim.status.last_pod_event_time == written


@pytest.mark.parametrize(
    ("window", "interval"), [("1s", 10), ("30s", 10), ("0s", 60), ("Never", 60)]
)
def test_pod_events_are_recorded_rarely_if_the_pool_does_not_use_them(window, interval):
    pool = node_pool("default", disruption=Disruption(consolidate_after=NillableDuration(window)))
    claim = node_claim(stage="Initialized", last_pod_event=EPOCH)
    for seconds, written in ((interval - 1, EPOCH), (interval, after(seconds=interval))):
        step = pod_event_step(claim, pool, now=after(seconds=seconds))
        assert step.claim.status.last_pod_event_time == written


def test_pods_that_come_with_the_initialisation_are_not_noted_beside_it():
    """Until a pod event is noted, quiet is counted from the initialisation."""
    fresh = node_claim(stage="Initialized")
    assert pod_event_step(fresh, None, now=after(seconds=9)).claim is fresh
    booting = node_claim(stage="Registered")
    noted = pod_event_step(booting, None, now=after(seconds=9)).claim
    assert noted.status.last_pod_event_time == after(seconds=9)


class TestNodePatch:
    def test_two_patches_in_a_row_are_one(self):
        first = NodePatch(labels={"a": "1"}, add_taints=(taint("x:NoSchedule"),))
        second = NodePatch(
            labels={"a": "2", "b": "3"},
            remove_taints=(taint("x:NoSchedule"),),
            add_finalizers=("f",),
        )
        young = node("web", taints=("y:NoSchedule",))
        in_turn = second.applied_to(first.applied_to(young))
        at_once = first.merged(second).applied_to(young)
        assert at_once.labels == in_turn.labels
        assert (at_once.taints, at_once.finalizers) == (in_turn.taints, in_turn.finalizers)
        assert first.merged(None) is first

    def test_a_label_is_removed_unless_a_later_patch_sets_it(self):
        web = node("web", labels={"a": "1", "b": "1"})
        off = NodePatch(remove_labels=("a",))
        assert off.applied_to(web).labels == {k: v for k, v in web.labels.items() if k != "a"}
        assert off.operations_for(web) == [
            {"op": "test", "path": "/metadata/uid", "value": web.uid},
            {"op": "remove", "path": "/metadata/labels/a"},
        ]
        for first, second in (
            (off, NodePatch(labels={"a": "2"})),
            (NodePatch(labels={"a": "2"}), off),
        ):
            in_turn = second.applied_to(first.applied_to(web))
            assert first.merged(second).applied_to(web).labels == in_turn.labels

    def test_the_name_of_a_label_is_escaped(self):
        (_, added) = NodePatch(labels={"a.io/b~c": "1"}).operations_for(node("web"))
        assert added == {"op": "add", "path": "/metadata/labels/a.io~1b~0c", "value": "1"}

    def test_an_unchanged_object_needs_no_patch(self):
        ready = node("web", labels={"a": "1"}, taints=("x=1:NoSchedule",))
        wish = NodePatch(labels={"a": "1"}, add_taints=(taint("x:NoSchedule"),))
        assert wish.operations_for(ready) == []
