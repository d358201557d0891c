"""The disruption loop on a whole cluster: wait, validate, act (cases 171, 175, 220-224, 233, 268)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import structlog

from karpenter_core.api.judgements import FailedJudgement
from karpenter_core.api.notices import ObjectRef
from karpenter_core.controllers.disruption import controller
from karpenter_core.disruption.isolation import isolated_plan_steps
from karpenter_core.disruption.plan import plan_steps
from karpenter_core.disruption.validation import CommandRejection, ValidationVerdict
from karpenter_core.kube.resources import DEPLOYMENTS, PODS
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.test_disruption_queue import is_true, names
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

CPU = "karpenter.kwok.sh/instance-cpu"
TAINT = "karpenter.sh/disrupted"
KEPT = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


class Stage:
    """Nodes with a large and a small pod each; the large ones go, and the nodes are half empty."""

    def __init__(self, scene):
        self.scene, self.clock = scene, scene.cluster.clock

    async def begin(self, nodes, *, cores, small="1", policy="WhenEmptyOrUnderutilized", **options):
        disruption = {
            "consolidationPolicy": policy,
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "100%"}],
            **options,
        }
        sizes = {"requirements": [_in(CPU, *cores), _in("karpenter.sh/capacity-type", "on-demand")]}
        pool = node_pool(disruption=disruption, template=sizes)
        self.scene.cluster.apply([NODE_CLASS, pool])
        self.running = self.scene.start("--disable-leader-election")
        self.scene.cluster.apply([deployment("large", nodes, cpu="5", affinity=_apart("large"))])
        await self.scene.settle(lambda: len(self.scene.pods("Running")) == nodes)
        self.scene.cluster.apply([deployment("small", nodes, cpu=small)])
        await self.scene.settle(lambda: len(self.scene.pods("Running")) == 2 * nodes)
        hosts = {pod["spec"]["nodeName"] for pod in self.small}
        assert len(hosts) == len(self.scene.nodes()) == nodes, "least-allocated spreads them"
        await self.clock.sleep(60)
        self.first = names(self.scene.nodes())
        assert not self.tainted
        self.scene.cluster.scale(DEPLOYMENTS, "large", 0)
        await self.scene.settle(lambda: len(self.scene.pods()) == nodes)

    def refuse_taint(self, name):
        """Refuse every write of a Node from now on."""
        refused = matching("PATCH", f"nodes/{name}")
        fault = RequestFault(matches=refused, status=403, times=None)
        return self.scene.cluster.frontend.faults.add(fault)

    @property
    def marked(self):
        """Nodes that count as leaving."""
        state_nodes = self.running.process.cluster_state.snapshot().state_nodes
        return {each.name for each in state_nodes if each.marked_for_deletion}

    @property
    def small(self):
        return [p for p in self.scene.pods() if p["metadata"]["labels"]["app"] == "small"]

    @property
    def tainted(self):
        return {
            node["metadata"]["name"]
            for node in self.scene.nodes()
            if any(taint["key"] == TAINT for taint in node["spec"].get("taints", ()))
        }

    async def chosen(self):
        """Wait until something is to be consolidated, and return which nodes."""
        await self.scene.settle(lambda: bool(self.scene.events("ConsolidationCandidate")))
        events = self.scene.events("ConsolidationCandidate")
        kinds = {e["involvedObject"]["kind"] for e in events}
        assert kinds == {"Node", "NodeClaim"}
        return {e["involvedObject"]["name"] for e in events}

    def protect(self, node):
        """Protect the pods of a node from disruption."""
        for pod in self.small:
            if pod["spec"].get("nodeName") == node:
                meta = pod["metadata"]
                registry = self.scene.cluster.server.registry
                registry.patch(PODS, KEPT, meta["name"], meta["namespace"])

    def decided(self, decision, reason, kind):
        labels = f'consolidation_type="{kind}",decision="{decision}"'
        name = "karpenter_voluntary_disruption_decisions"
        return (
            self.running.metric(f'{name}_total{{{labels},reason="{reason}"}}'),
            self.running.metric(
                f'{name}_by_nodepool_total{{{labels},nodepool="general",reason="{reason}"}}'
            ),
        )

    def failed(self, kind):
        return self.running.metric(
            "karpenter_voluntary_disruption_failed_validations_total"
            f'{{consolidation_type="{kind}"}}'
        )


def _in(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def _apart(app):
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def staged(folder, scenario):
    run_controller(folder, lambda scene: scenario(Stage(scene)))


@pytest.mark.parametrize(
    ("nodes", "cores", "decision", "kind", "left"),
    [
        (1, ["4", "8"], "replace", "single", 1),
        (2, ["8"], "delete", "single", 1),
        (2, ["4", "8"], "replace", "multi", 1),
        (4, ["8"], "delete", "multi", 1),
    ],
)
def test_executed_command_is_awaited_and_counted(tmp_path, nodes, cores, decision, kind, left):
    """Cases 220, 221 and 268: fifteen seconds between the choice and the first taint."""

    async def scenario(stage):
        await stage.begin(nodes, cores=cores, small="800m")
        chosen = await stage.chosen()
        assert chosen <= stage.first
        since = stage.clock.monotonic()
        await stage.scene.settle(lambda: bool(stage.tainted), seconds=30)
        assert stage.clock.monotonic() - since > 14
        assert stage.tainted == chosen
        assert stage.decided(decision, "underutilized", kind) == (1, 1)
        await stage.scene.settle(lambda: not chosen & names(stage.scene.nodes()), seconds=120)
        await stage.scene.settle(
            lambda: len(stage.scene.pods("Running")) == nodes and len(stage.scene.nodes()) == left,
            seconds=120,
        )
        assert not stage.tainted

    staged(tmp_path, scenario)


def test_empty_nodes_are_counted_as_such(tmp_path):
    """Case 268."""

    async def scenario(stage):
        await stage.begin(2, cores=["8"], policy="WhenEmpty")
        await stage.clock.sleep(60)
        assert names(stage.scene.nodes()) == stage.first, "they are not empty"
        stage.scene.cluster.scale(DEPLOYMENTS, "small", 0)
        await stage.scene.settle(lambda: not stage.scene.nodes(), seconds=120)
        assert stage.decided("delete", "empty", "empty") == (1, 1)

    staged(tmp_path, scenario)


class TestNodesThatCannotBeMarked:
    """A refused taint leaves its node alone; the other nodes of the command go if nothing replaces them."""

    def test_empty_nodes_go_without_the_one_whose_taint_is_refused(self, tmp_path):
        async def scenario(stage):
            await stage.begin(2, cores=["8"], policy="WhenEmpty")
            kept, other = sorted(stage.first)
            stage.refuse_taint(kept)
            stage.scene.cluster.scale(DEPLOYMENTS, "small", 0)
            await stage.scene.settle(lambda: names(stage.scene.nodes()) == {kept}, seconds=120)
            journal = stage.running.process.runtime.journal.latest(kind="disrupt")
            (decision,) = (each for each in journal if not each.rejection)
            assert [each.node for each in decision.candidates] == [other]
            assert stage.marked == set()
            (claim,) = stage.scene.claims()
            assert "deletionTimestamp" not in claim["metadata"]

        staged(tmp_path, scenario)

    def test_no_command_is_started_without_a_marked_node(self, tmp_path):
        async def scenario(stage):
            await stage.begin(1, cores=["8"], policy="WhenEmpty")
            (kept,) = stage.first
            fault = stage.refuse_taint(kept)
            stage.scene.cluster.scale(DEPLOYMENTS, "small", 0)
            await stage.clock.sleep(120)
            assert names(stage.scene.nodes()) == {kept}
            assert stage.decided("delete", "empty", "empty") == (0, 0)
            stage.scene.cluster.frontend.faults.remove(fault)
            await stage.scene.settle(lambda: not stage.scene.nodes(), seconds=120)

        staged(tmp_path, scenario)

    def test_a_merger_is_not_started_without_one_of_its_nodes(self, tmp_path):
        """Its replacement has room for the pods of all of them, and would be bought for nothing."""

        async def scenario(stage):
            await stage.begin(2, cores=["4", "8"], small="800m")
            chosen = await stage.chosen()
            assert chosen == stage.first
            stage.refuse_taint(min(chosen))
            await stage.clock.sleep(25)
            assert names(stage.scene.nodes()) == stage.first
            assert len(stage.scene.claims()) == 2
            assert stage.decided("replace", "underutilized", "multi") == (0, 0)

        staged(tmp_path, scenario)


class TestDuringTheWait:
    def test_protected_pods_end_a_command(self, tmp_path):
        """Cases 220 and 233: nothing is deleted, the reason is reported, and it is planned again."""

        async def scenario(stage):
            await stage.begin(1, cores=["4", "8"])
            (name,) = await stage.chosen()
            stage.protect(name)
            await stage.clock.sleep(40)
            assert names(stage.scene.nodes()) == stage.first
            assert not stage.tainted
            assert stage.failed("single") == 1
            (reported, _) = stage.scene.events("ConsolidationRejected")
            assert "reason: churn" in reported["message"]

        staged(tmp_path, scenario)

    def test_single_node_method_runs_after_multi_node_in_one_pass(self, tmp_path):
        """Case 224: the merger is refused, a single node goes fifteen seconds later."""

        async def scenario(stage):
            await stage.begin(3, cores=["8"])
            chosen = await stage.chosen()
            assert len(chosen) == 2
            kept = min(chosen)
            stage.protect(kept)
            await stage.scene.settle(lambda: bool(stage.tainted), seconds=60)
            assert kept not in stage.tainted
            assert (stage.failed("multi"), stage.failed("single")) == (2, 0)
            assert stage.decided("delete", "underutilized", "single") == (1, 1)
            assert stage.decided("delete", "underutilized", "multi") == (0, 0)

        staged(tmp_path, scenario)

    def test_a_budget_of_nothing_ends_a_command(self, tmp_path):
        """Cases 175 and 233."""

        async def scenario(stage):
            await stage.begin(2, cores=["4", "8"], small="800m")
            await stage.chosen()
            patch = {"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
            stage.scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")
            await stage.clock.sleep(60)
            assert names(stage.scene.nodes()) == stage.first
            assert stage.failed("multi") == 2
            blocked = {
                e["message"]
                for e in stage.scene.events("DisruptionBlocked")
                if e["involvedObject"]["kind"] == "NodePool"
            }
            assert (
                "No allowed disruptions for disruption reason Underutilized due to blocking budget"
                in blocked
            )

            patch = {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}}
            stage.scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")
            await stage.scene.settle(lambda: len(stage.scene.nodes()) == 1, seconds=240)

        staged(tmp_path, scenario)

    def test_it_follows_fifteen_seconds_after_the_decision(self, tmp_path):
        """Pods that were deleted with their node in mind have that time to come back."""

        async def scenario(stage):
            await stage.begin(2, cores=["4", "8"], small="800m")
            await stage.chosen()
            chosen = stage.scene.cluster.clock.monotonic()
            await stage.scene.settle(lambda: bool(stage.tainted))
            waited = stage.scene.cluster.clock.monotonic() - chosen
            assert 14.5 < waited < 15.5

        staged(tmp_path, scenario)

    def test_a_killed_process_leaves_nothing_behind(self, tmp_path):
        """Nothing is marked before validation."""

        async def scenario(stage):
            await stage.begin(2, cores=["4", "8"], small="800m")
            await stage.chosen()
            await stage.clock.sleep(5)
            await stage.running.kill()
            assert not stage.tainted
            stage.running = stage.scene.start("--disable-leader-election")
            await stage.scene.settle(
                lambda: len(stage.scene.nodes()) == len(stage.scene.claims()) == 1, seconds=240
            )
            await stage.scene.settle(lambda: len(stage.scene.pods("Running")) == 2, seconds=60)
            assert not stage.tainted
            assert not any(is_true(c, "DisruptionReason") for c in stage.scene.claims())

        staged(tmp_path, scenario)


def test_an_optimal_cluster_is_not_disrupted(tmp_path):
    """An hour without a move, an Event in fifteen minutes at most, and no write of ours."""

    async def scenario(stage):
        await stage.begin(1, cores=["8"], small="1")
        await stage.clock.sleep(120)
        assert names(stage.scene.nodes()) == stage.first
        eligible = 'karpenter_voluntary_disruption_eligible_nodes{reason="underutilized"}'
        assert stage.running.metric(eligible) == 1
        before = dict(stage.running.process.kube_writer.counts)
        await stage.clock.sleep(3600)
        assert names(stage.scene.nodes()) == stage.first
        after = {
            key: count - before.get(key, 0)
            for key, count in stage.running.process.kube_writer.counts.items()
            if count != before.get(key, 0) and "Lease" not in key
        }
        assert sum(after.values()) <= 4 * 2 * 2, after

    staged(tmp_path, scenario)


def test_a_pod_set_aside_in_every_pass_is_logged_once(tmp_path, monkeypatch):
    """In the first pass, in those after a rejected command, and in validation."""
    genuine = controller.plan_steps

    def odd(name):
        about = ObjectRef(api_version="v1", kind="Node", name=name, uid=f"uid-{name}")
        return FailedJudgement(regarding=about, step="disruption", error="odd")

    def planning(disruption_pass, *, methods):
        plan = yield from genuine(disruption_pass, methods=methods)
        return replace(plan, set_aside=(odd(f"first-{methods[0].name}"),))

    def validating(method, command, disruption_pass):
        yield 0
        disruption_pass.failed.add(odd("second"))
        return ValidationVerdict(
            rejection=CommandRejection.CHURN, failed_candidates=len(command.candidates)
        )

    async def scenario(stage):
        with structlog.testing.capture_logs() as lines:
            await stage.begin(2, cores=["4", "8"], small="800m")
            await stage.clock.sleep(300)
        reported = Counter(
            line["Node"]["name"] for line in lines if line["event"].startswith("object skipped")
        )
        validations = [line for line in lines if line["event"].endswith("is no longer valid")]
        assert len(validations) > 2
        assert reported["second"] == 1
        assert len(reported) > 2
        assert set(reported.values()) == {1}, reported

    structlog.reset_defaults()  # commands that another test ran in this process log errors alone
    monkeypatch.setattr(controller, "plan_steps", planning)
    monkeypatch.setattr(controller, "isolated_validation_steps", validating)
    staged(tmp_path, scenario)


def test_a_cluster_at_rest_is_judged_once_until_it_changes(tmp_path, monkeypatch):
    """Passes over the same state come to the same; every five minutes methods are asked anew."""
    passes = []

    def counted(one, *, methods):
        passes.append(one.now)
        return plan_steps(one, methods=methods)

    monkeypatch.setattr(controller, "plan_steps", counted)

    async def scenario(scene):
        keep = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=keep), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1)
        await scene.cluster.clock.sleep(300)
        passes.clear()
        await scene.cluster.clock.sleep(1200)
        assert len(passes) <= 10, passes
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.claims(), seconds=120)

    run_controller(tmp_path, scenario)


def test_methods_are_asked_anew_about_a_cluster_at_rest(tmp_path, monkeypatch):
    """An answer counts for five minutes from when it was found, however often it is repeated."""
    asked = Counter()

    def counted(one, method, accepted, budgets):
        asked[method.name] += 1
        return isolated_plan_steps(one, method, accepted, budgets)

    monkeypatch.setattr("karpenter_core.disruption.plan.isolated_plan_steps", counted)

    async def scenario(stage):
        await stage.begin(1, cores=["8"], small="1")
        await stage.clock.sleep(400)
        asked.clear()
        await stage.clock.sleep(1500)
        assert "single-node-consolidation" in asked
        assert all(3 <= count <= 6 for count in asked.values()), asked

    staged(tmp_path, scenario)
