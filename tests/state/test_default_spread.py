"""Topology spread from the scheduler's configuration (section 25 of the specification)."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import LabelSelector, LabelSelectorRequirement, TopologySpread
from karpenter_core.api.workload_records import ServiceView, WorkloadView
from karpenter_core.scheduling.selectors import PodSelector
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.events import DeletionMarked, PodsDecided
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod, pod_shape, pods
from karpenter_core.testing.state_builders import (
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)

POOL = ready_node_pool(node_pool("default"))
ZONAL = TopologySpread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule")
HOSTS = TopologySpread(
    topology_key=HOSTNAME,
    max_skew=3,
    when_unsatisfiable="ScheduleAnyway",
    min_domains=2,
    node_affinity_policy="Ignore",
    node_taints_policy="Honor",
)


def service(name="web", selector=None, namespace="default"):
    return ServiceView(
        uid=f"uid-svc-{namespace}-{name}", namespace=namespace, name=name, selector=selector
    )


def workload(name="web", *, kind="ReplicaSet", labels=None, expressions=(), namespace="default"):
    return WorkloadView(
        kind=kind,
        uid=f"uid-{kind}-{name}",
        namespace=namespace,
        name=name,
        selector=LabelSelector(match_labels=labels or {}, match_expressions=tuple(expressions)),
    )


def requirement(key, operator, *values):
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def asked(*objects, constraints=(ZONAL,)):
    """The pods of the problem, by name."""
    builder = synced_state(POOL, *objects)
    question = build_provisioning_input(
        builder.snapshot(), now=EPOCH, problem_settings=ProblemSettings(default_spread=constraints)
    )
    return {item.name: item for item in question.problem.pods}


def selector_of(item):
    (constraint,) = item.shape.topology_spread
    return PodSelector.read(constraint.selector)


def selects(item, **labels):
    return selector_of(item).matches(labels)


class TestWhoGetsADefault:
    """Cases 343 and 345."""

    def test_a_pod_without_constraints_gets_every_default_as_it_is_configured(self):
        """Cases 344 and 348: all fields are kept."""
        result = asked(
            pod("web-1", labels={"app": "web"}),
            workload(labels={"app": "web"}),
            constraints=(ZONAL, HOSTS),
        )["web-1"]
        counted = result.shape.topology_spread[0].selector
        assert result.shape.topology_spread == (
            msgspec.structs.replace(ZONAL, selector=counted),
            msgspec.structs.replace(HOSTS, selector=counted),
        )

    def test_a_pod_with_constraints_keeps_its_own(self):
        """Case 343."""
        own = msgspec.structs.replace(HOSTS, selector=LabelSelector())
        shape = msgspec.structs.replace(pod_shape(labels={"app": "web"}), topology_spread=(own,))
        constraints = asked(pod("web-1", shape=shape), workload(labels={"app": "web"}))
        assert constraints["web-1"].shape is shape

    def test_without_configuration_nothing_changes(self):
        """Case 345."""
        waiting = pod("web-1", labels={"app": "web"})
        assert asked(waiting, workload(labels={"app": "web"}), constraints=()) == {"web-1": waiting}

    def test_a_pod_without_service_or_owner_gets_no_default_spread(self):
        """Case 345."""
        waiting = pod("web-1", labels={"app": "web"})
        assert asked(waiting)["web-1"] is waiting

    def test_the_copy_is_the_same_pod(self):
        """Decisions about it are decisions about the pod."""
        waiting = pod("web-1", labels={"app": "web"}, cpu="3")
        result = asked(waiting, service(selector={"app": "web"}))["web-1"]
        assert (result.uid, result.key, result.created) == (waiting.uid, waiting.key, EPOCH)
        assert result.shape.requests == waiting.shape.requests
        assert waiting.shape.topology_spread == ()

    def test_pods_of_leaving_nodes_get_it_too(self):
        builder = synced_state(
            POOL, *node_and_claim("old"), pod("web-1", node_name="old", labels={"app": "web"}),
            service(selector={"app": "web"}),
        )  # fmt: skip
        builder.apply_event(DeletionMarked(names=("old",), cause="drifted/1"))
        question = build_provisioning_input(
            builder.snapshot(), now=EPOCH, problem_settings=ProblemSettings(default_spread=(ZONAL,))
        )
        (result,) = question.problem.pods
        assert selects(result, app="web")

    def test_pods_that_a_disruption_would_move_get_it_too(self):
        builder = synced_state(
            POOL, *node_and_claim("old"), pod("web-1", node_name="old", labels={"app": "web"}),
            service(selector={"app": "web"}),
        )  # fmt: skip
        problem, movable = build_disruption_problem(
            builder.snapshot(), now=EPOCH, problem_settings=ProblemSettings(default_spread=(ZONAL,))
        )
        (its_node,) = problem.nodes
        (found,) = its_node.pods
        assert movable == {"old": {found.uid}}
        assert selects(found, app="web")

    def test_nominated_pods_are_unchanged_by_the_default_spread(self):
        waiting = pod("web-1", labels={"app": "web"})
        builder = synced_state(POOL, node_claim("new"), waiting, service(selector={"app": "web"}))
        builder.apply_event(PodsDecided(placed={waiting.uid: "new"}, at=EPOCH))
        question = build_provisioning_input(
            builder.snapshot(), now=EPOCH, problem_settings=ProblemSettings(default_spread=(ZONAL,))
        )
        assert question.placed_pods == {"new": (waiting,)}


class TestSelectors:
    """Cases 346 and 347: whom the scheduler counts such a pod with."""

    @pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
    def test_the_owners_selector_counts_not_the_labels_of_the_pod(self, kind):
        result = asked(
            pod("web-1", labels={"app": "web", "tier": "front"}, owner_kind=kind),
            workload(kind=kind, labels={"app": "web"}),
        )["web-1"]
        assert selector_of(result) == PodSelector((), (("app", "In", ("web",)),))

    def test_expressions_are_taken_as_they_are(self):
        expressions = (requirement("app", "In", "web", "api"), requirement("old", "DoesNotExist"))
        result = asked(pod("web-1"), workload(labels={"a": "b"}, expressions=expressions))["web-1"]
        assert selector_of(result) == PodSelector(
            (), (("a", "In", ("b",)), ("app", "In", ("api", "web")), ("old", "DoesNotExist", ()))
        )

    def test_a_service_alone_suffices(self):
        """Case 346."""
        constraints = asked(pod("web-1", labels={"app": "web"}), service(selector={"app": "web"}))
        assert selector_of(constraints["web-1"]) == PodSelector((("app", "web"),))

    def test_all_services_of_a_pod_count_together_with_its_owner(self):
        result = asked(
            pod("web-1", labels={"app": "web", "tier": "front", "rev": "1"}),
            service("a", {"app": "web"}),
            service("b", {"tier": "front"}),
            service("c", {"app": "api"}),
            workload(labels={"rev": "1"}),
        )["web-1"]
        assert selector_of(result) == PodSelector(
            (("app", "web"), ("tier", "front")), (("rev", "In", ("1",)),)
        )

    @pytest.mark.parametrize(
        "silent",
        [
            service(selector=None),
            service(selector={}),
            service(selector={"app": "web"}, namespace="other"),
            service(selector={"app": "web", "x": "y"}),
        ],
    )
    def test_services_that_do_not_select_the_pod_or_select_all_say_nothing(self, silent):
        waiting = pod("web-1", labels={"app": "web"})
        assert asked(waiting, silent)["web-1"] is waiting

    def test_a_replication_controller_wins_over_services(self):
        shape = msgspec.structs.replace(
            pod_shape(labels={"app": "web"}, owner_kind="ReplicationController"),
            owner_api_version="v1",
        )
        result = asked(
            pod("web-1", shape=shape),
            service(selector={"app": "web"}),
            workload(kind="ReplicationController", labels={"app": "other", "x": "y"}),
        )["web-1"]
        assert selector_of(result) == PodSelector((("app", "other"), ("x", "y")))

    def test_a_replica_set_that_contradicts_a_service_selects_nothing(self):
        result = asked(
            pod("web-1", labels={"app": "web"}),
            service(selector={"app": "web"}),
            workload(labels={"app": "other"}),
        )["web-1"]
        assert not selects(result, app="web")
        assert not selects(result, app="other")

    @pytest.mark.parametrize(
        ("options", "owner"),
        [
            ({"owner_kind": "Job", "owner_api_version": "batch/v1"}, workload(kind="Job")),
            ({"owner_controls": False}, workload(labels={"app": "web"})),
            ({"owner_api_version": "example.com/v1"}, workload(labels={"app": "web"})),
            ({}, workload("gone", labels={"app": "web"})),
            ({}, workload(labels={"app": "web"}, namespace="other")),
            ({"owner_kind": "StatefulSet"}, workload(labels={"app": "web"})),
        ],
    )
    def test_other_owners_say_nothing(self, options, owner):
        """Jobs, owners that do not control the pod, foreign kinds, owners that are gone."""
        shape = msgspec.structs.replace(pod_shape(labels={"app": "web"}), **options)
        waiting = pod("web-1", shape=shape)
        assert asked(waiting, owner)["web-1"] is waiting


class TestSharing:
    """Case 348: copies are shared as far as pods are alike, and no further."""

    def test_pods_of_one_owner_stay_one_class(self):
        constraints = asked(
            *pods(100, "web", labels={"app": "web"}), workload(labels={"app": "web"})
        )
        assert len(constraints) == 100
        assert len({id(item.shape) for item in constraints.values()}) == 1

    def test_two_owners_of_one_shape_are_counted_separately(self):
        """Case 346: separate workloads, and revisions of one."""
        shape = pod_shape(labels={"app": "web"})
        constraints = asked(
            pod("old-1", shape=shape),
            pod("new-1", shape=shape),
            workload("old", labels={"rev": "1"}),
            workload("new", labels={"rev": "2"}),
        )
        assert selects(constraints["old-1"], rev="1")
        assert not selects(constraints["new-1"], rev="1")

    def test_namespaces_and_labels_do_not_mix(self):
        constraints = asked(
            pod("web-1", labels={"app": "web"}),
            pod("web-2", labels={"app": "api"}),
            pod("web-3", labels={"app": "web"}, namespace="other"),
            service(selector={"app": "web"}),
            service(selector={"app": "api"}, namespace="other"),
        )
        assert selects(constraints["web-1"], app="web")
        assert constraints["web-2"].shape.topology_spread == ()
        assert constraints["web-3"].shape.topology_spread == ()


class TestPlacement:
    """Cases 343 and 344: what the solver makes of it."""

    def zones(self, count, constraint, *objects, pool=POOL):
        waiting = pods(count, "web", cpu="1", labels={"app": "web"})
        builder = synced_state(pool, workload(labels={"app": "web"}), *waiting, *objects)
        question = build_provisioning_input(
            builder.snapshot(),
            now=EPOCH,
            problem_settings=ProblemSettings(default_spread=(constraint,)),
        )
        plan = solve(question.problem)
        result = {}
        for claim in plan.claims:
            zone = claim.cheapest.zone
            result[zone] = result.get(zone, 0) + len(claim.pods)
        return result

    def test_four_pods_in_three_zones(self):
        assert sorted(self.zones(4, ZONAL).values()) == [1, 1, 2]

    def test_pods_that_run_are_counted(self):
        """Case 346: zone-a has two, so the next two go elsewhere."""
        there = [
            pod(f"web-there-{n}", labels={"app": "web"}, cpu="1", node_name="old") for n in range(2)
        ]
        full = node_and_claim("old", capacity={"cpu": "2"})
        assert self.zones(2, ZONAL, *full, *there) == {"zone-b": 1, "zone-c": 1}

    @pytest.mark.parametrize(
        ("zones", "when", "expected"),
        [
            (("zone-a", "zone-b"), "DoNotSchedule", [1, 1]),
            (("zone-a",), "DoNotSchedule", [1]),
            (("zone-a",), "ScheduleAnyway", [3]),
        ],
    )
    def test_fewer_domains_than_demanded(self, zones, when, expected):
        """Case 344: `minDomains` passes through; the third pod waits, or goes anyway."""
        few = ready_node_pool(node_pool("default", requirements=[(ZONE, "In", *zones)]))
        constraint = msgspec.structs.replace(ZONAL, min_domains=3, when_unsatisfiable=when)
        assert sorted(self.zones(3, constraint, pool=few).values()) == expected
