"""Building the scheduling problem from a snapshot."""

from __future__ import annotations

import pkgutil
from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import HOSTNAME, NODE_POOL, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    NamespaceView,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from karpenter_core.api.workload_records import DaemonSetView
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import build_node_claim
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.state import node_pool_usage, state_nodes
from karpenter_core.state.events import (
    DeletionMarked,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    PodsDecided,
)
from karpenter_core.state.existing_nodes import ExistingNodeBuilder
from karpenter_core.state.node_pool_usage import (
    PoolStatusSums,
    exceeded_limits,
    pool_status_resources,
    pool_usage,
)
from karpenter_core.state.provisioning_input import (
    ProblemSettings,
    build_provisioning_input,
    usable_pools,
)
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    node_term,
    pod,
    pod_shape,
    pods,
    preferred_node_term,
    requirement_spec,
    standard_catalogue,
)
from karpenter_core.testing.state_builders import (
    KWOK,
    disruption_budget,
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)

POOL = ready_node_pool(node_pool("default"))


def at(**delta: float):
    return EPOCH + timedelta(**delta)


def ask(builder, now=EPOCH):
    return build_provisioning_input(builder.snapshot(), now=now)


def names(items):
    return [item.name for item in items]


def daemon_set(name="ds", *, shape=None, **options):
    template = shape or pod_shape(owner_kind="DaemonSet", **options)
    return DaemonSetView(uid=f"uid-owner-{name}", namespace="default", name=name, template=template)


def listing(*type_names: str):
    return requirement_spec("node.kubernetes.io/instance-type", "In", *type_names)


def fail(*_, **__):
    raise ValueError("odd taint")


class TestPods:
    def test_pending_pods_are_in_the_problem(self):
        question = ask(synced_state(POOL, pod("a"), pod("b", node_name="x")))
        assert names(question.problem.pods) == ["a"]

    def test_pods_of_leaving_nodes_are_in_the_problem(self):
        """Cases 288-290: active ones; not daemons, not terminating ones, not blocked ones."""
        terminating = pod("gone", node_name="web")
        stateful = pod("db-0", node_name="web", owner_kind="StatefulSet")
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("runs", node_name="web"),
            pod("ds", node_name="web", owner_kind="DaemonSet"),
            msgspec.structs.replace(terminating, deletion_timestamp=EPOCH),
            msgspec.structs.replace(stateful, deletion_timestamp=EPOCH),
            pod("held", node_name="web", labels={"app": "held"}),
            disruption_budget("none", labels={"app": "held"}, max_unavailable="0"),
        )
        assert ask(builder).problem.pods == ()
        builder.apply_event(DeletionMarked(names=("web",), cause="drifted/1"))
        assert sorted(names(ask(builder).problem.pods)) == ["db-0", "runs"]

    @pytest.mark.parametrize(
        "budgets",
        [
            (disruption_budget(max_unavailable="0"),),
            (disruption_budget(max_unavailable="0%"),),
            (disruption_budget(min_available="100%"),),
            (disruption_budget("a", min_available="1"), disruption_budget("b", min_available="1")),
        ],
    )
    def test_pods_without_a_permitted_eviction_are_not_in_the_problem(self, budgets):
        """Cases 113 and 290."""
        builder = synced_state(POOL, *node_and_claim("web"), pod("a", node_name="web"), *budgets)
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert ask(builder).problem.pods == ()

    def test_an_exhausted_budget_only_delays(self):
        """For rescheduling only budgets count that never allow anything."""
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("a", node_name="web"),
            disruption_budget(min_available="1"),
        )
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert names(ask(builder).problem.pods) == ["a"]

    @pytest.mark.parametrize(
        ("shape", "reason"),
        [
            (pod_shape(node_selector={"kubernetes.io/hostname": "x"}), "kubernetes.io/hostname"),
            (pod_shape(node_selector={"karpenter.sh/x": "y"}), "restricted domain"),
            (pod_shape(node_selector={"karpenter.sh/capacity-type": "free"}), "capacity-type"),
            (pod_shape(required=[node_term(("size", "Gt", "1", "2"))]), "single positive integer"),
            (pod_shape(required=[node_term(("size", "In"))]), "must have a value"),
            (
                pod_shape(
                    required=[
                        NodeSelectorTerm(
                            match_fields=(
                                NodeSelectorRequirement(key="metadata.name", operator="In"),
                            )
                        )
                    ]
                ),
                "matchFields",
            ),
        ],
    )
    def test_pods_with_unsupported_requests_are_ignored(self, shape, reason):
        question = ask(synced_state(POOL, pod("a", shape=shape), pod("b")))
        assert names(question.problem.pods) == ["b"]
        (ignored,) = question.ignored
        assert (ignored.pod.name, ignored.silent) == ("a", False)
        assert reason in ignored.reason

    @pytest.mark.parametrize(
        "target",
        [
            "karpenter_core.state.provisioning_input.selector_error",
            "karpenter_core.state.pod_volumes.PodVolumeReader.error",
            "karpenter_core.state.pod_volumes.PodVolumeReader.pod_volumes",
            "karpenter_core.state.default_spread.DefaultSpread.apply",
        ],
    )
    def test_a_pod_that_cannot_be_judged_is_ignored_with_the_error(self, monkeypatch, target):
        """The others are asked about, before and after it in their order."""
        original = pkgutil.resolve_name(target)
        odd = pod("b", shape=pod_shape(labels={"app": "odd"}))

        def failing(*arguments, **options):
            shapes = [getattr(each, "shape", each) for each in arguments]
            if odd.shape in shapes:
                raise ZeroDivisionError("no domains")
            return original(*arguments, **options)

        monkeypatch.setattr(target, failing)
        question = ask(synced_state(POOL, pod("a"), odd, pod("c")))
        assert names(question.problem.pods) == ["a", "c"]
        (ignored,) = question.ignored
        assert (ignored.pod.name, ignored.silent) == ("b", False)
        assert "no domains" in ignored.reason

    def test_a_node_that_cannot_be_read_is_set_aside_with_the_error(self, monkeypatch):
        """The others take pods, and those that wait for them keep their room."""
        read = ExistingNodeBuilder.existing_node

        def failing(self, state_node, waiting=()):
            if state_node.name == "odd":
                raise ZeroDivisionError("no capacity")
            return read(self, state_node, waiting)

        monkeypatch.setattr(ExistingNodeBuilder, "existing_node", failing)
        nodes = [part for name in ("a", "odd", "z") for part in node_and_claim(name)]
        placed = msgspec.structs.replace(pod("placed"), nominated_node_name="z")
        question = ask(synced_state(POOL, *nodes, placed, pod("waiting")))
        assert names(question.problem.nodes) == ["a", "z"]
        assert names(question.state_nodes) == ["a", "z"]
        ((kind, name, message),) = {
            (item.regarding.kind, item.regarding.name, item.message) for item in question.set_aside
        }
        assert (kind, name) == ("Node", "odd")
        assert "no capacity" in message

    @pytest.mark.parametrize(
        "shape",
        [
            pod_shape(required=[node_term((NODE_POOL, "DoesNotExist"))]),
            pod_shape(preferred=[preferred_node_term(5, (NODE_POOL, "DoesNotExist"))]),
        ],
    )
    def test_pods_that_want_no_pool_are_ignored_silently(self, shape):
        (ignored,) = ask(synced_state(POOL, pod("a", shape=shape))).ignored
        assert ignored.silent

    def test_ordinary_selectors_pass(self):
        shape = pod_shape(
            node_selector={ZONE: "zone-a", "example.com/team": "a", NODE_POOL: "default"},
            required=[node_term(("node.kubernetes.io/x", "Exists"))],
        )
        assert names(ask(synced_state(POOL, pod("a", shape=shape))).problem.pods) == ["a"]


class TestPools:
    def test_only_usable_pools_take_part(self):
        """Managed, dynamic, Ready, not deleting, with instance types."""
        deleting = ready_node_pool(node_pool("deleting"))
        meta = deleting.metadata.model_copy(update={"deletion_timestamp": EPOCH})
        foreign = KWOK.model_copy(update={"kind": "Other"})
        pools = (
            ready_node_pool(node_pool("good")),
            node_pool("unready"),
            ready_node_pool(node_pool("static", replicas=3)),
            deleting.model_copy(update={"metadata": meta}),
            ready_node_pool(node_pool("foreign", node_class_ref=foreign)),
            ready_node_pool(node_pool("unevaluated")),
            ready_node_pool(node_pool("bare")),
        )
        types = {pool.name: standard_catalogue() for pool in pools if pool.name != "unevaluated"}
        builder = synced_state(*pools, catalogues={**types, "bare": catalogue()})
        assert names(usable_pools(builder.snapshot())) == ["good"]

    def test_usage_excludes_leaving_nodes(self):
        """Cases 155 and 310."""
        builder = synced_state(
            POOL, *node_and_claim("a"), *node_and_claim("b"), *node_and_claim("c"), node("static")
        )
        builder.apply_event(DeletionMarked(names=("c",), cause="x"))
        usage = pool_usage(builder.snapshot())
        assert (usage["default"]["cpu"], usage["default"]["nodes"]) == (8000, 2)

    def test_a_node_counts_for_the_pool_of_its_label_without_a_claim_too(self):
        """As upstream's scheduler counts: claims may be gone, or never have been."""
        builder = synced_state(
            POOL, node("alone", labels={NODE_POOL: "default"}, provider_id="x://a")
        )
        usage = pool_usage(builder.snapshot())
        assert (usage["default"]["cpu"], usage["default"]["nodes"]) == (4000, 1)

    def test_usage_follows_the_pool_label_of_the_claim(self):
        """Case 310."""
        its_node, claim = node_and_claim("a")
        builder = synced_state(POOL, its_node, claim)
        moved = {**its_node.labels, NODE_POOL: "other"}
        builder.apply_event(ObjectObserved(msgspec.structs.replace(its_node, labels=moved)))
        assert set(pool_usage(builder.snapshot())) == {"default"}, "a kubelet may change its label"
        metadata = claim.metadata.model_copy(update={"labels": moved})
        builder.apply_event(ObjectObserved(claim.model_copy(update={"metadata": metadata})))
        usage = pool_usage(builder.snapshot())
        assert "default" not in usage
        assert usage["other"]["nodes"] == 1

    def test_a_claim_under_way_counts_with_its_largest_type(self):
        claim = node_claim("new", requirements=[listing("c-2x", "r-4x")])
        usage = pool_usage(synced_state(POOL, claim).snapshot())["default"]
        assert (usage["cpu"], usage["memory"], usage["nodes"]) == (4000, 32 * 2**30, 1)

    def test_the_status_shows_launched_resources_and_zeros(self):
        """Case 142."""
        builder = synced_state(
            POOL, node_claim("new", requirements=[listing("c-2x")]), *node_and_claim("a")
        )
        resources = pool_status_resources(builder.snapshot(), "default")
        assert (resources["cpu"], resources["nodes"], resources["ephemeral-storage"]) == (
            4000,
            1,
            0,
        )
        assert set(pool_status_resources(builder.snapshot(), "other").values()) == {0}

    def test_kept_sums_follow_every_change_that_counts(self):
        its_node, claim = node_and_claim("a")
        builder, sums = synced_state(POOL, its_node, claim), PoolStatusSums(rates=None)
        moved = {**its_node.labels, NODE_POOL: "other"}
        claim_of_b = node_claim("b", stage="Launched", uid="b-1")
        changes = [
            ObjectObserved(claim_of_b),
            ObjectObserved(pod("web", node_name="a")),
            ObjectObserved(msgspec.structs.replace(its_node, labels=moved, resource_version=90)),
            DeletionMarked(names=("b",), cause="test"),
            ObjectRemoved(claim_of_b),
            ObjectObserved(node_claim("c", stage="Launched", capacity={"cpu": "32"})),
            ObjectObserved(node_claim("c", stage="Launched", capacity={"cpu": "48"})),
            ObjectRemoved(claim),
        ]
        seen = set()
        for change in (None, *changes):
            if change is not None:
                builder.apply_event(change)
            snapshot = builder.snapshot()
            for name in ("default", "other"):
                assert sums.resources(snapshot, name) == pool_status_resources(snapshot, name)
            seen.add(sums.resources(snapshot, "default")["cpu"])
        assert len(seen) >= 5

    def test_sums_are_kept_while_only_pods_come_and_go(self, monkeypatch):
        """Nodes of a large cluster change many times a second, hardly ever in their amounts."""
        summed = []

        def sum_once(snapshot, pool):
            summed.append(pool)
            return pool_status_resources(snapshot, pool)

        monkeypatch.setattr(node_pool_usage, "pool_status_resources", sum_once)
        builder = synced_state(POOL, *node_and_claim("web"), *node_and_claim("db"))
        kept = PoolStatusSums(rates=None)
        for name in ("a", "b"):
            kept.resources(builder.snapshot(), "default")
            builder.apply_event(ObjectObserved(pod(name, node_name="web", phase="Running")))
        kept.resources(builder.snapshot(), "default")
        assert summed == ["default"]
        builder.apply_event(DeletionMarked(names=("db",), cause="x"))
        kept.resources(builder.snapshot(), "default")
        assert summed == ["default"] * 2

    @pytest.mark.parametrize("stage", ["", "Launched", "Registered", "Initialized"])
    def test_an_unjoined_node_counts_against_limits(self, monkeypatch, stage):
        """Otherwise its pool would buy beyond its limits."""
        claim = node_claim("a", stage=stage, requirements=[listing("c-2x", "r-4x")])
        booted = (
            [node("a", claim=claim, stage=stage)] if stage in ("Registered", "Initialized") else []
        )
        objects = (
            POOL,
            claim,
            *booted,
            node("bare", labels={NODE_POOL: "default"}, provider_id="x://bare"),
        )
        joined = synced_state(*objects).snapshot()
        expected = pool_usage(joined), pool_status_resources(joined, "default")
        assert expected[0]["default"]["nodes"] >= 1

        monkeypatch.setattr(state_nodes, "effective_taints", fail)
        aside = synced_state(*objects).snapshot()
        assert aside.set_aside
        assert not aside.state_nodes
        assert (pool_usage(aside), pool_status_resources(aside, "default")) == expected

    def test_an_unjoined_node_that_leaves_does_not_count(self, monkeypatch):
        """Like any other; nor when it is gone."""
        monkeypatch.setattr(state_nodes, "effective_taints", fail)
        builder = synced_state(POOL, *node_and_claim("a"), *node_and_claim("b"))
        builder.apply_event(DeletionMarked(names=("a",), cause="x"))
        assert pool_usage(builder.snapshot())["default"]["nodes"] == 1

        for gone in node_and_claim("b"):
            builder.apply_event(ObjectRemoved(gone))
        assert pool_usage(builder.snapshot()) == {}
        assert len(builder.snapshot().set_aside) == 1

    def test_an_unjoined_node_keeps_launches_within_limits(self, monkeypatch):
        """The pool allows one node, and there is one."""
        monkeypatch.setattr(state_nodes, "effective_taints", fail)
        limited = ready_node_pool(node_pool("default", limits={"nodes": "1"}))
        plan = solve(
            ask(synced_state(limited, *node_and_claim("a"), pod("waits"))).problem, SolveOptions()
        )
        assert plan.claims == ()

    def test_exceeded_limits_are_named(self):
        assert exceeded_limits({"cpu": 1000, "nodes": 2}, {"cpu": 1001, "nodes": 2}) == ("cpu",)


class TestExistingCapacity:
    def test_bound_pods_take_their_resources(self):
        builder = synced_state(POOL, *node_and_claim("web"), pod("a", cpu="1", node_name="web"))
        (existing,) = ask(builder).problem.nodes
        assert (existing.available["cpu"], existing.available["pods"]) == (3000, 109)
        assert (existing.node_name, existing.claim_name, existing.pool) == ("web", "web", "default")

    def test_leaving_nodes_are_no_capacity_and_initialised_ones_come_first(self):
        young = node_claim("a-young", stage="Launched")
        builder = synced_state(POOL, *node_and_claim("z"), young, *node_and_claim("gone"))
        builder.apply_event(DeletionMarked(names=("gone",), cause="x"))
        assert names(ask(builder).problem.nodes) == ["z", "a-young"]

    def test_daemons_that_are_not_there_yet_are_reserved_for(self):
        """Cases 205 and 206: bound daemons are not counted twice, surplus ones do not pay back."""
        shape = pod_shape(cpu="1", owner_kind="DaemonSet")
        builder = synced_state(POOL, *node_and_claim("web"), daemon_set(shape=shape))
        assert ask(builder).problem.nodes[0].available["cpu"] == 3000
        builder.apply_event(ObjectObserved(pod("ds-1", shape=shape, node_name="web")))
        assert ask(builder).problem.nodes[0].available["cpu"] == 3000
        builder.apply_event(
            ObjectObserved(pod("odd-1", cpu="1500m", owner_kind="DaemonSet", node_name="web"))
        )
        assert ask(builder).problem.nodes[0].available["cpu"] == 1500

    def test_a_pinned_pod_of_another_daemon_set_takes_no_room_of_daemons_to_come(self):
        shape = pod_shape(cpu="1", owner_kind="DaemonSet")
        foreign = msgspec.structs.replace(
            shape, owner_api_version="apps.example.com/v1", is_pinned=True
        )
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            daemon_set(shape=shape),
            pod("other-1", shape=foreign, node_name="web"),
        )
        assert ask(builder).problem.nodes[0].available["cpu"] == 2000

    @pytest.mark.parametrize(
        ("options", "counts"),
        [
            ({"node_selector": {"size": "huge"}}, False),
            ({"node_selector": {ZONE: "zone-a"}}, True),
            ({"required": [node_term(("x", "In", "y")), node_term(("foo", "NotIn", "bar"))]}, True),
        ],
    )
    def test_daemons_count_where_they_run(self, options, counts):
        """Cases 149, 152, 154, 210."""
        builder = synced_state(POOL, *node_and_claim("web"), daemon_set(cpu="1", **options))
        assert (ask(builder).problem.nodes[0].available["cpu"] == 3000) is counts

    @pytest.mark.parametrize(
        ("options", "ports"), [({}, [9100]), ({"node_selector": {ZONE: "zone-z"}}, [])]
    )
    def test_ports_of_daemons_that_are_not_there_yet_are_taken(self, options, ports):
        """Else a pod with the port waits for a node that its daemon will keep it from."""
        launching = node_claim("new", requirements=[listing("m-4x")], requests={"cpu": "1"})
        exporter = daemon_set(host_ports=[9100], **options)
        shape = exporter.template
        builder = synced_state(POOL, *node_and_claim("web"), launching, exporter)
        assert [[port.port for port in node.host_ports] for node in ask(builder).problem.nodes] == [
            ports,
            [9100],
        ]
        builder.apply_event(ObjectObserved(pod("ds-1", shape=shape, node_name="web")))
        assert [port.port for port in ask(builder).problem.nodes[0].host_ports] == [9100]

    @pytest.mark.parametrize(
        ("operator", "name", "on_web", "on_new"),
        [
            ("In", "web", True, False),
            ("In", "other", False, False),
            ("NotIn", "web", False, True),
            ("NotIn", "other", True, True),
        ],
    )
    def test_daemons_of_named_nodes_count_on_those(self, operator, name, on_web, on_new):
        """By `matchFields` of the template: a new node has none of the names."""
        field = NodeSelectorRequirement(key="metadata.name", operator=operator, values=(name,))
        shape = pod_shape(
            cpu="1", owner_kind="DaemonSet", required=[NodeSelectorTerm(match_fields=(field,))]
        )
        launching = node_claim("new", requirements=[listing("m-4x")], requests={"cpu": "1"})
        without = ask(synced_state(POOL, *node_and_claim("web"), launching))
        question = ask(
            synced_state(POOL, *node_and_claim("web"), launching, daemon_set(shape=shape))
        )
        taken = {
            node.name: before.available["cpu"] - node.available["cpu"]
            for before, node in zip(without.problem.nodes, question.problem.nodes, strict=True)
        }
        assert taken == {"web": 1000 * on_web, "new": 1000 * on_new}
        assert [each.shape.required_node_terms for each in question.problem.daemons] == (
            [()] if on_new else []
        )

    def test_one_of_several_terms_of_a_daemon_may_name_nodes(self):
        field = NodeSelectorRequirement(key="metadata.name", operator="In", values=("web",))
        sized = node_term(("size", "In", "huge"))
        terms = [NodeSelectorTerm(match_fields=(field,)), sized]
        shape = pod_shape(cpu="1", owner_kind="DaemonSet", required=terms)
        question = ask(synced_state(POOL, *node_and_claim("web"), daemon_set(shape=shape)))
        assert question.problem.nodes[0].available["cpu"] == 3000
        (daemon,) = question.problem.daemons
        assert daemon.shape.required_node_terms == (sized,)

    def test_a_daemon_counts_on_a_new_node_that_meets_one_of_its_terms(self):
        terms = [
            node_term(("node.kubernetes.io/instance-type", "In", each)) for each in ("m-4x", "z")
        ]
        shape = pod_shape(cpu="1", owner_kind="DaemonSet", required=terms)
        launching = node_claim("new", requirements=[listing("m-4x")], requests={"cpu": "1"})
        without = ask(synced_state(POOL, launching)).problem.nodes[0].available["cpu"]
        question = ask(synced_state(POOL, launching, daemon_set(shape=shape)))
        assert question.problem.nodes[0].available["cpu"] == without - 1000

    @pytest.mark.parametrize(
        ("labels", "counts"), [({}, False), ({"size": "small"}, True), ({"size": "huge"}, False)]
    )
    def test_a_daemon_runs_on_no_node_without_a_label_that_must_be_there(self, labels, counts):
        """`Exists` and `NotIn` of one label are `NotIn` together, which a node without it meets."""
        wants = node_term(("size", "Exists"), ("size", "NotIn", "huge"))
        daemon = daemon_set(shape=pod_shape(cpu="1", owner_kind="DaemonSet", required=[wants]))
        view, claim = node_and_claim("web")
        web = (msgspec.structs.replace(view, labels={**view.labels, **labels}), claim)
        launching = node_claim(
            "new", requirements=[listing("m-4x")], requests={"cpu": "1"}, labels=labels
        )
        without = ask(synced_state(POOL, *web, launching)).problem.nodes
        nodes = ask(synced_state(POOL, *web, launching, daemon)).problem.nodes
        assert [
            before.available["cpu"] - node.available["cpu"]
            for before, node in zip(without, nodes, strict=True)
        ] == [1000 * counts, 1000 * counts]

    @pytest.mark.parametrize(
        ("terms", "left"),
        [
            ([(HOSTNAME, "Exists")], []),
            ([(HOSTNAME, "Exists"), ("size", "In", "huge")], [("size", "In", "huge")]),
            ([(HOSTNAME, "In", "web")], [(HOSTNAME, "In", "web")]),
        ],
    )
    def test_daemons_that_only_want_a_host_name_run_on_new_nodes(self, terms, left):
        """A node that does not exist yet will have one: the daemon takes its share of it."""
        shape = pod_shape(cpu="1", owner_kind="DaemonSet", required=[node_term(*terms)])
        launching = node_claim("new", requirements=[listing("m-4x")], requests={"cpu": "1"})
        plain = ask(synced_state(POOL, launching)).problem.nodes[0]
        question = ask(synced_state(POOL, launching, daemon_set(shape=shape)))
        (daemon,) = question.problem.daemons
        assert daemon.shape.required_node_terms == ((node_term(*left),) if left else ())
        taken = plain.available["cpu"] - question.problem.nodes[0].available["cpu"]
        assert taken == (0 if left else 1000)

    def test_one_term_with_a_host_name_alone_selects_every_node(self):
        terms = [node_term((HOSTNAME, "Exists")), node_term(("size", "In", "huge"))]
        shape = pod_shape(cpu="1", owner_kind="DaemonSet", required=terms)
        (daemon,) = ask(synced_state(POOL, daemon_set(shape=shape))).problem.daemons
        assert daemon.shape.required_node_terms == ()

    def test_daemons_that_do_not_tolerate_the_node_do_not_count(self):
        builder = synced_state(
            POOL, *node_and_claim("web", taints=("dedicated=web:NoSchedule",)), daemon_set(cpu="1")
        )
        assert ask(builder).problem.nodes[0].available["cpu"] == 4000

    def test_a_daemon_that_wants_a_device_the_node_lacks_does_not_close_the_node(self):
        """The daemon stays pending there; other pods still go onto the node."""
        builder = synced_state(
            POOL, *node_and_claim("web"), daemon_set(cpu="1", requests={"fake.com/fpga": "1"})
        )
        available = ask(builder).problem.nodes[0].available
        assert available["cpu"] == 3000
        assert all(amount >= 0 for amount in available.values())

    @pytest.mark.parametrize("devices", [{}, {"fake.com/fpga": "0"}])
    def test_a_device_that_a_new_node_lacks_or_has_lost_does_not_close_it_for_pods(self, devices):
        """Every pass would launch another node for the same pods."""
        lacking = node_and_claim(
            "web", capacity={"cpu": "4", "memory": "8Gi", "pods": "10", **devices}
        )
        launching = node_claim("new", requirements=[listing("m-4x")], requests={"cpu": "1"})
        without = ask(synced_state(POOL, *lacking, launching)).problem.nodes
        daemon = daemon_set(cpu="1", requests={"fake.com/fpga": "1"})
        nodes = ask(synced_state(POOL, *lacking, launching, daemon)).problem.nodes
        for before, after in zip(without, nodes, strict=True):
            assert before.available["cpu"] - after.available["cpu"] == 1000
            assert all(amount >= 0 for amount in after.available.values())
        assert len(nodes) == 2

    def test_the_newest_daemon_pod_gives_requests_and_the_template_its_placement(self):
        """Cases 146 and 153."""
        template = pod_shape(
            cpu="4", owner_kind="DaemonSet", required=[node_term(("foo", "In", "bar"))]
        )
        pinned = pod_shape(
            cpu="2", owner_kind="DaemonSet", required=[node_term(("host", "In", "x"))]
        )
        builder = synced_state(POOL, daemon_set("ds", shape=template), pod("ds-1", shape=pinned))
        (result,) = ask(builder).problem.daemons
        assert result.shape.requests["cpu"] == 2000
        assert result.shape.required_node_terms == template.required_node_terms

    def test_without_node_affinity_in_the_template_the_pods_own_counts(self):
        """Section 11.3: only a required node affinity of the template replaces the pod's."""
        added = [node_term(("foo", "In", "bar"))]
        shape = pod_shape(owner_kind="DaemonSet", required=added)
        builder = synced_state(POOL, daemon_set("ds"), pod("ds-1", shape=shape))
        (result,) = ask(builder).problem.daemons
        assert result.shape.required_node_terms == tuple(added)

    def test_daemons_that_wait_for_devices_of_drivers_are_left_out(self):
        """Case 161: while DRA is not supported they will not run."""
        shape = msgspec.structs.replace(
            pod_shape(cpu="1", owner_kind="DaemonSet"), resource_claims=("gpu",)
        )
        question = ask(synced_state(POOL, *node_and_claim("web"), daemon_set(shape=shape)))
        assert question.problem.daemons == ()
        assert question.problem.nodes[0].available["cpu"] == 4000

    def test_daemons_of_a_deleted_daemon_set_are_no_overhead(self):
        """Case 308: its pods are still there, and none will follow."""
        owner = daemon_set(cpu="1")
        builder = synced_state(POOL, owner, pod("ds-1", cpu="1", owner_kind="DaemonSet"))
        assert len(ask(builder).problem.daemons) == 1
        builder.apply_event(ObjectRemoved(owner))
        assert ask(builder).problem.daemons == ()

    def test_ports_in_use_survive_updates_of_the_node(self):
        """Case 306: seeing a pod again is no conflict with itself; they go with their pod."""
        holder = pod("a", host_ports=[8080], node_name="web")
        builder = synced_state(POOL, *node_and_claim("web"), holder)
        for part in (*node_and_claim("web"), holder):
            builder.apply_event(ObjectObserved(part))
            assert [port.port for port in ask(builder).problem.nodes[0].host_ports] == [8080]
        builder.apply_event(ObjectRemoved(holder))
        assert ask(builder).problem.nodes[0].host_ports == ()

    def test_pods_with_anti_affinity_count_where_they_run(self):
        """Case 307: in whatever order events come, until the pod is removed."""
        term = AffinityTerm(topology_key=ZONE, selector=LabelSelector())
        shape = msgspec.structs.replace(pod_shape(), pod_anti_affinity=(term,))
        lonely = pod("a", shape=shape, node_name="web")
        builder = synced_state(POOL, lonely)
        assert ask(builder).problem.nodes == ()
        for part in node_and_claim("web"):
            builder.apply_event(ObjectObserved(part))
        assert [item.shape for item in ask(builder).problem.nodes[0].pods] == [shape]
        builder.apply_event(ObjectRemoved(lonely))
        assert ask(builder).problem.nodes[0].pods == ()

    def test_a_claim_without_instance_offers_the_minimum_of_its_types(self):
        """Element-wise minimum over the listed types, less the daemons of each."""
        claim = node_claim("new", requirements=[listing("c-4x", "r-2x")])
        (existing,) = ask(synced_state(POOL, claim, daemon_set(cpu="500m"))).problem.nodes
        assert existing.available["cpu"] == 2000 - 100 - 500
        assert existing.available["memory"] == (8 * 1024 - 10 - 100) * 2**20
        assert (existing.initialized, existing.node_name, existing.claim_name) == (False, "", "new")
        assert existing.requirements is not None

    def test_only_the_daemons_of_a_type_weigh_on_it(self):
        """Case 151 for claims under way: a daemon of large nodes does not shrink small ones."""
        types = catalogue(
            instance_type("small", cpu="4", labels={"size": "s"}, overhead={}),
            instance_type("large", cpu="32", labels={"size": "l"}, overhead={}),
        )
        large_only = daemon_set(cpu="10", node_selector={"size": "l"})
        claim = node_claim("new", requirements=[listing("small", "large")])
        builder = synced_state(POOL, claim, large_only, catalogues={"default": types})
        question = build_provisioning_input(
            builder.snapshot(),
            now=EPOCH,
            problem_settings=ProblemSettings(well_known=frozenset({"size"})),
        )
        assert question.problem.nodes[0].available["cpu"] == 4000

    def test_without_catalogue_the_claims_requests_stand(self):
        claim = node_claim("new", requirements=[listing("c-4x")], requests={"cpu": "3"})
        (existing,) = ask(synced_state(POOL, claim, catalogues={})).problem.nodes
        assert existing.available == {"cpu": 3000}


class TestClosedNodes:
    """Nodes that take no more pods, while what they have still counts for topology (14.3)."""

    def closed(self, builder, now=EPOCH):
        return {
            item.name: names(item.pods) for item in ask(builder, now).problem.nodes if item.closed
        }

    def test_pods_on_a_leaving_node_count_and_no_pod_moves_there(self):
        """Daemons and pods that no budget lets go; the ones that move are asked about too."""
        builder = synced_state(
            POOL,
            *node_and_claim("web"),
            pod("held", node_name="web", labels={"app": "held"}),
            pod("moves", node_name="web"),
            disruption_budget("none", labels={"app": "held"}, max_unavailable="0"),
        )
        assert self.closed(builder) == {}
        builder.apply_event(DeletionMarked(names=("web",), cause="drifted/1"))
        question = ask(builder).problem
        (result,) = question.nodes
        assert (result.closed, result.node_name, result.available) == (True, "web", {})
        assert names(result.pods) == ["held"]
        assert result.labels[ZONE] == "zone-a"
        assert names(question.pods) == ["moves"]

    def test_a_pod_that_was_given_another_place_counts_there_alone(self):
        builder = synced_state(
            POOL,
            *node_and_claim("old"),
            node_claim("new", requirements=[listing("c-4x")]),
            pod("a", cpu="1", node_name="old"),
            pod("ds", node_name="old", owner_kind="DaemonSet"),
        )
        builder.apply_event(DeletionMarked(names=("old",), cause="drifted/1"))
        builder.apply_event(PodsDecided(placed={"uid-default-a": "new"}, at=EPOCH))
        assert self.closed(builder) == {"old": ["ds"]}
        assert [names(item.pods) for item in ask(builder).problem.nodes if not item.closed] == [
            ["a"]
        ]

    def test_a_leaving_node_without_pods_is_left_out(self):
        builder = synced_state(POOL, *node_and_claim("web"))
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert ask(builder).problem.nodes == ()

    def test_a_node_without_a_known_owner_counts_but_is_not_capacity(self):
        young = node("young", labels={NODE_POOL: "default", ZONE: "zone-b"})
        builder = synced_state(POOL, young, pod("a", node_name="young"))
        assert self.closed(builder) == {"young": ["a"]}

    def test_pods_of_nodes_that_are_gone_count_nowhere(self):
        """Neither where the Node was lost nor where it was never seen."""
        its_node, claim = node_and_claim("web")
        builder = synced_state(
            POOL, its_node, claim, pod("a", node_name="web"), pod("b", node_name="x")
        )
        builder.apply_event(ObjectRemoved(its_node))
        assert ask(builder).problem.nodes == ()

    def test_ended_pods_do_not_count(self):
        builder = synced_state(
            POOL, *node_and_claim("web"), pod("a", node_name="web", phase="Succeeded")
        )
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert self.closed(builder) == {}


def test_labels_of_every_namespace_are_included():
    """Case 269."""
    team = NamespaceView(uid="n1", name="web", labels={"team": "a"})
    bare = NamespaceView(uid="n2", name="db")
    assert ask(synced_state(POOL, team, bare)).problem.namespaces == {
        "web": {"team": "a"},
        "db": {},
    }


class TestKeptPlaces:
    def placed(self, *objects, target, count=1, when=EPOCH):
        waiting = pods(count, "web", cpu="1")
        builder = synced_state(POOL, *objects, *waiting)
        builder.apply_event(PodsDecided(placed={p.uid: target for p in waiting}, at=when))
        return builder

    def test_a_nominated_pod_waits_and_its_resources_are_reserved(self):
        """It is not pending again, however long the node takes."""
        builder = self.placed(node_claim("new", requirements=[listing("c-4x")]), target="new")
        question = ask(builder, at(minutes=14))
        assert question.problem.pods == ()
        assert names(question.placed_pods["new"]) == ["web-0"]
        assert question.problem.nodes[0].available["cpu"] == 4000 - 100 - 1000
        assert names(question.problem.nodes[0].pods) == ["web-0"]

    def test_the_place_follows_the_claim_to_its_node(self):
        claim = node_claim("new", requirements=[listing("c-4x")])
        builder = self.placed(claim, target="new")
        launched = node_claim("new", stage="Registered")
        builder.apply_event(ObjectObserved(launched))
        builder.apply_event(ObjectObserved(node("ip-1", claim=launched, stage="Registered")))
        assert names(ask(builder).placed_pods["ip-1"]) == ["web-0"]

    def test_a_ready_node_gives_the_scheduler_one_window(self):
        builder = self.placed(*node_and_claim("web"), target="web")
        assert ask(builder, at(seconds=19)).problem.pods == ()
        assert names(ask(builder, at(seconds=20)).problem.pods) == ["web-0"]

    def test_a_place_that_is_gone_or_going_is_no_place(self):
        claim = node_claim("new", requirements=[listing("c-4x")])
        builder = self.placed(claim, target="new")
        builder.apply_event(DeletionMarked(names=("new",), cause="x"))
        assert names(ask(builder).problem.pods) == ["web-0"]
        assert names(ask(self.placed(target="nowhere")).problem.pods) == ["web-0"]

    def test_pods_that_no_longer_fit_are_in_the_problem_again(self):
        """The scheduler filled the node with others; the rest is still theirs."""
        builder = self.placed(*node_and_claim("web"), target="web", count=3)
        assert ask(builder).problem.pods == ()
        builder.apply_event(ObjectObserved(pod("intruder", cpu="2", node_name="web")))
        question = ask(builder)
        assert names(question.problem.pods) == ["web-2"]
        assert names(question.placed_pods["web"]) == ["web-0", "web-1"]

    def test_a_nomination_to_a_tainted_node_ends(self):
        builder = self.placed(*node_and_claim("web", taints=("x=y:NoSchedule",)), target="web")
        assert names(ask(builder).problem.pods) == ["web-0"]

    def test_pods_of_a_leaving_node_keep_the_place_they_were_given(self):
        builder = synced_state(
            POOL,
            *node_and_claim("old"),
            node_claim("new", requirements=[listing("c-4x")]),
            pod("a", cpu="1", node_name="old"),
        )
        builder.apply_event(DeletionMarked(names=("old",), cause="drifted/1"))
        builder.apply_event(PodsDecided(placed={"uid-default-a": "new"}, at=EPOCH))
        assert ask(builder).problem.pods == ()
        assert names(ask(builder).placed_pods["new"]) == ["a"]


class TestNominatedPods:
    """Pods whose status names a node: the scheduler's word, or ours."""

    def nominated(self, name="web", *, node="web", **options):
        return msgspec.structs.replace(pod(name, cpu="1", **options), nominated_node_name=node)

    def test_its_resources_are_reserved_and_it_is_not_pending(self):
        builder = synced_state(
            POOL, *node_and_claim("web"), self.nominated(), pod("other", cpu="1")
        )
        question = ask(builder)
        assert names(question.problem.pods) == ["other"]
        assert names(question.placed_pods["web"]) == ["web"]
        assert question.problem.nodes[0].available["cpu"] == 4000 - 1000

    def test_the_schedulers_nomination_is_valid_while_it_makes_room(self):
        """This may take its time; volumes are bound for ten minutes at most."""
        builder = synced_state(POOL, *node_and_claim("web"), self.nominated())
        assert ask(builder, at(minutes=10)).problem.pods == ()
        assert names(ask(builder, at(minutes=11)).problem.pods) == ["web"]
        victim = msgspec.structs.replace(pod("v", node_name="web"), deletion_timestamp=EPOCH)
        builder.apply_event(ObjectObserved(victim))
        assert ask(builder, at(hours=1)).problem.pods == ()

    def test_it_is_pending_again_when_its_node_is_deleted_or_leaving(self):
        web, claim = node_and_claim("web")
        builder = synced_state(POOL, web, claim, self.nominated())
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert names(ask(builder).problem.pods) == ["web"]
        assert names(ask(synced_state(POOL, self.nominated(node="gone"))).problem.pods) == ["web"]

    def test_a_managed_node_without_a_claim_is_waited_for(self):
        booting = node("new", labels={NODE_POOL: "default"})
        assert ask(synced_state(POOL, booting, self.nominated(node="new"))).problem.pods == ()

    def test_our_own_nomination_gives_the_scheduler_one_window(self):
        waiting = self.nominated()
        builder = synced_state(POOL, *node_and_claim("web"), waiting)
        builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=EPOCH))
        assert ask(builder, at(seconds=19)).problem.pods == ()
        assert names(ask(builder, at(seconds=20)).problem.pods) == ["web"]

    def test_a_node_that_pods_are_leaving_is_waited_for(self):
        """The scheduler took up our word and makes room there."""
        waiting = self.nominated()
        victim = msgspec.structs.replace(pod("v", node_name="web"), deletion_timestamp=EPOCH)
        builder = synced_state(POOL, *node_and_claim("web"), waiting, victim)
        builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=EPOCH))
        assert ask(builder, at(minutes=5)).problem.pods == ()

    def test_other_nominated_pods_have_the_remaining_resources(self):
        first, second = pods(2, "late", cpu="2")
        builder = synced_state(POOL, *node_and_claim("web"), self.nominated(), first, second)
        builder.apply_event(PodsDecided(placed={first.uid: "web", second.uid: "web"}, at=EPOCH))
        question = ask(builder)
        assert names(question.placed_pods["web"]) == ["web", "late-0"]
        assert names(question.problem.pods) == ["late-1"]

    def test_an_overcommitted_node_takes_no_further_pod(self):
        """The pods that make room for it are still there."""
        leaving = pod("leaving", cpu="4", node_name="web")
        builder = synced_state(POOL, *node_and_claim("web"), leaving, self.nominated())
        assert ask(builder).problem.nodes[0].available["cpu"] < 0

    def test_bound_it_waits_no_more(self):
        waiting = self.nominated()
        builder = synced_state(POOL, *node_and_claim("web"), waiting)
        builder.apply_event(ObjectObserved(msgspec.structs.replace(waiting, node_name="web")))
        assert builder.snapshot().nominated_pods == {}
        assert ask(builder).placed_pods == {}

    def test_a_nomination_of_the_scheduler_replaces_the_planned_node(self):
        """A pod nominated for another node than planned is expected there only."""
        waiting = self.nominated(node="b")
        builder = synced_state(POOL, *node_and_claim("a"), *node_and_claim("b"), waiting)
        builder.apply_event(PodsDecided(placed={waiting.uid: "a"}, at=EPOCH))
        question = ask(builder, at(minutes=5))
        assert names(question.placed_pods["b"]) == ["web"]
        assert "a" not in question.placed_pods


class TestNoSecondClaim:
    """A leader that dies between creating a claim and launching it: nothing is ordered twice."""

    def claims_of(self, waiting, *objects, prefix="first"):
        builder = synced_state(POOL, *objects, *waiting)
        plan = solve(ask(builder).problem, SolveOptions())
        assert plan.unschedulable == {}
        pool = builder.snapshot().node_pools["default"]
        return [
            build_node_claim(
                planned,
                pool,
                suffix=f"{prefix}-{n}",
                node_pool_hash="1",
                node_pool_hash_version="v3",
            ).model_copy(update={"status": node_claim("x").status})
            for n, planned in enumerate(plan.claims)
        ]

    @pytest.mark.parametrize("count", [1, 7, 50])
    @pytest.mark.parametrize(
        "shape",
        [
            pod_shape(cpu="900m", memory="1Gi"),
            pod_shape(cpu="3500m", memory="28Gi"),
            pod_shape(cpu="1", node_selector={ZONE: "zone-b"}),
            pod_shape(cpu="1", node_selector={"kubernetes.io/arch": "arm64"}),
            pod_shape(cpu="1", node_selector={"karpenter.sh/capacity-type": "spot"}),
        ],
    )
    @pytest.mark.parametrize("daemons", [(), (daemon_set(cpu="300m", memory="200Mi"),)])
    def test_a_new_leader_finds_launched_capacity(self, count, shape, daemons):
        waiting = pods(count, "web", shape=shape)
        created = self.claims_of(waiting, *daemons)
        assert created
        assert self.claims_of(waiting, *daemons, *created) == []

    def test_more_pods_launch_only_missing_nodes(self):
        first = pods(10, "web", cpu="1")
        created = self.claims_of(first)
        more = pods(20, "web", cpu="1")
        added = self.claims_of(more, *created, prefix="second")
        assert len(added) >= 1
        assert self.claims_of(more, *created, *added) == []

    def test_an_unregistered_claim_is_returned_too(self):
        """Launched but without a node, and registered but not initialised."""
        waiting = pods(3, "web", cpu="1")
        launched = node_claim("new", stage="Launched")
        assert self.claims_of(waiting, launched) == []
        registered = node_claim("new", stage="Registered")
        young = node(
            "ip-1",
            claim=registered,
            stage="Registered",
            ready="False",
            taints=("node.kubernetes.io/not-ready:NoSchedule",),
            allocatable={"cpu": "0"},
        )
        assert self.claims_of(waiting, registered, young) == []


def test_nomination_does_not_change_the_question():
    builder = synced_state(POOL, *node_and_claim("web"), pod("a"))
    builder.apply_event(NodesNominated(names=("web",), until=at(seconds=20)))
    assert names(ask(builder).problem.pods) == ["a"]
    assert names(ask(builder).problem.nodes) == ["web"]
