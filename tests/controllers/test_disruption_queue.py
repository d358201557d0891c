"""Commands are executed or rolled back (cases 183, 184, 254-268)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace

import pytest

from karpenter_core.controllers.disruption.execution import CommandQueue
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.command_queue import command_timeout
from karpenter_core.disruption.drift_backoff import DriftBackoff
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

TAINT = "karpenter.sh/disrupted"
BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
CPU = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In"}
ALONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            }
        ]
    }
}
"""One pod to a node, so that no pod fits elsewhere."""


def noted_times(stage, matches):
    """Return a list that gets the time of each request that matches."""
    times = []

    def noted(request):
        if matches(request):
            times.append(stage.clock.monotonic())
        return False

    stage.scene.cluster.frontend.faults.add(RequestFault(matches=noted, times=None))
    return times


class Stage:
    """A pool whose nodes can be made to drift, and a cloud that can be made to fail."""

    def __init__(self, scene, folder, *, arguments=()):
        self.scene, self._faults = scene, folder / "faults.json"
        self._faults.write_text("[]")
        self._arguments = (
            "--disable-leader-election",
            f"--kwok-faults-file={self._faults}",
            *arguments,
        )
        self.clock = scene.cluster.clock

    async def begin(self, *objects, pods):
        self.scene.cluster.apply([NODE_CLASS, *objects])
        self.running = self.scene.start(*self._arguments)
        await self.until(lambda: len(self.scene.pods("Running")) == pods, seconds=120)
        await self.until(lambda: all(is_true(c, "Initialized") for c in self.scene.claims()))
        await self.clock.sleep(25)  # nominations
        self.first = names(self.scene.claims())

    async def until(self, holds, *, seconds=60.0):
        await self.scene.settle(holds, seconds=seconds)

    def cloud_fails(self, *faults):
        """Let launches or nodes fail from now on; without faults everything works again."""
        self._faults.write_text(json.dumps(list(faults)))

    def change(self, pool="general", label="second"):
        """Let all nodes of a pool drift."""
        template = {"metadata": {"labels": {"example.com/generation": label}}}
        patch = {"spec": {"template": template}}
        self.scene.cluster.server.registry.patch(NODE_POOLS, patch, pool, "")

    @property
    def tainted(self):
        return {
            node["metadata"]["name"]
            for node in self.scene.nodes()
            if any(taint["key"] == TAINT for taint in node["spec"].get("taints", ()))
        }

    @property
    def reasoned(self):
        """Claims that say why they are disrupted."""
        return {
            c["metadata"]["name"] for c in self.scene.claims() if is_true(c, "DisruptionReason")
        }

    def finalizers(self, name):
        return next(
            claim["metadata"]["finalizers"]
            for claim in self.scene.claims()
            if claim["metadata"]["name"] == name
        )

    @property
    def claims(self):
        return names(self.scene.claims())

    @property
    def leaving(self):
        """Claims that are deleted or gone, of those that were there first."""
        there = {
            c["metadata"]["name"]
            for c in self.scene.claims()
            if "deletionTimestamp" not in c["metadata"]
        }
        return self.first - there

    def regarding(self, reason):
        return {
            (e["involvedObject"]["kind"], e["involvedObject"]["name"])
            for e in self.scene.events(reason)
        }

    def decided(self, decision, reason, kind):
        """Return the number of started commands of a kind, in total and per pool."""
        labels = f'consolidation_type="{kind}",decision="{decision}"'
        name = "karpenter_voluntary_disruption_decisions"
        return (
            self.running.metric(f'{name}_total{{{labels},reason="{reason}"}}'),
            self.running.metric(
                f'{name}_by_nodepool_total{{{labels},nodepool="general",reason="{reason}"}}'
            ),
        )


def names(objects):
    return {each["metadata"]["name"] for each in objects}


def is_true(claim, condition):
    conditions = claim.get("status", {}).get("conditions", [])
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def fixed(name="general", *, nodes="100%", after="Never", **options):
    """A pool that only drift touches, or consolidation too with `after`."""
    disruption = {"consolidateAfter": after, "budgets": [{"nodes": nodes}]}
    return node_pool(name, disruption=disruption, **options)


def staged(folder, scenario, *, arguments=(), **cluster):
    run_controller(
        folder, lambda scene: scenario(Stage(scene, folder, arguments=arguments)), **cluster
    )


NO_NODES = {"fault": "failed-node"}


class TestReplacement:
    def test_command_runs_to_its_end(self, tmp_path):
        """Case 258: launched, waited for, and only then the old one goes; every step is reported."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            (old,) = stage.first
            stage.change()
            await stage.until(lambda: len(stage.claims) == 2)
            (new,) = stage.claims - stage.first
            assert stage.tainted == stage.reasoned == {old}
            await stage.until(lambda: stage.claims == {new}, seconds=120)
            await stage.until(lambda: len(stage.scene.pods("Running")) == 1)

            assert stage.regarding("DisruptionLaunching") == {("NodeClaim", new)}
            assert stage.regarding("DisruptionWaitingReadiness") == {("NodeClaim", new)}
            assert stage.regarding("DisruptionTerminating") == {("Node", old), ("NodeClaim", old)}
            assert stage.decided("replace", "drifted", "") == (1, 1)

        staged(tmp_path, scenario)

    @pytest.mark.parametrize("path", ["nodes/", "nodeclaims/"])
    @pytest.mark.parametrize("status", [403, 409])
    def test_a_mark_that_is_refused_is_made_again(self, tmp_path, path, status):
        """A few times within the same command, after pauses that grow."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            (old,) = stage.first
            is_mark = matching("PATCH", f"{path}{old}")
            times = noted_times(stage, is_mark)
            faults = stage.scene.cluster.frontend.faults
            hits = faults.hits
            faults.add(RequestFault(matches=is_mark, status=status, times=2))
            stage.change()
            await stage.until(lambda: old not in stage.claims, seconds=120)
            assert faults.hits - hits == 2
            if path == "nodes/":  # other controllers write to the claim, too
                first, second, *_ = (after - before for before, after in pairwise(times))
                assert 0 < first < second
            assert stage.decided("replace", "drifted", "") == (1, 1)

        staged(tmp_path, scenario)

    def test_a_command_whose_node_is_gone_is_dropped_and_not_tried_again_at_once(self, tmp_path):
        """The next pass sees what is left."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            (old,) = stage.first
            is_mark = matching("PATCH", f"nodes/{old}")
            times = noted_times(stage, is_mark)
            faults = stage.scene.cluster.frontend.faults
            faults.add(RequestFault(matches=is_mark, status=404, times=2))
            stage.change()
            await stage.until(lambda: len(times) == 2, seconds=120)
            assert times[1] - times[0] > 1
            assert stage.claims == stage.first

        staged(tmp_path, scenario)

    def test_a_command_is_dropped_without_launches_if_a_node_cannot_be_tainted(self, tmp_path):
        """It is tried again by the next pass."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            (old,) = stage.first
            fault = RequestFault(matches=matching("PATCH", f"nodes/{old}"), status=403, times=None)
            stage.scene.cluster.frontend.faults.add(fault)
            stage.change()
            await stage.clock.sleep(60)
            assert stage.claims == stage.first
            assert stage.tainted == stage.reasoned == set()
            assert stage.decided("replace", "drifted", "") == (0, 0)

            stage.scene.cluster.frontend.faults.remove(fault)
            await stage.until(lambda: old not in stage.claims, seconds=120)
            assert stage.decided("replace", "drifted", "") == (1, 1)

        staged(tmp_path, scenario)

    def test_the_old_node_is_kept_until_its_replacement_is_initialized(self, tmp_path):
        """Cases 254, 255 and 257: until it is given up; then everything is taken back."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            stage.cloud_fails(NO_NODES)
            stage.change()
            await stage.until(lambda: len(stage.claims) == 2)
            await stage.clock.sleep(14 * 60)
            assert stage.tainted == stage.reasoned == stage.first
            assert len(stage.claims) == 2
            assert stage.leaving == set()

            failures = (
                'karpenter_voluntary_disruption_queue_failures_total{consolidation_type="replace",'
                'decision="replace",reason="drifted"}'
            )
            assert stage.running.metric(failures) == 0
            await stage.until(lambda: not stage.tainted, seconds=120)
            assert stage.reasoned == set()
            assert stage.running.metric(failures) == 1
            assert len(stage.scene.pods("Running")) == 1

        staged(tmp_path, scenario)

    def test_a_command_whose_nodes_cannot_be_deleted_is_rolled_back_in_time(self, tmp_path):
        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            (old,) = stage.first
            deletion = matching("DELETE", f"nodeclaims/{old}")
            refusal = RequestFault(matches=deletion, status=403, times=None)
            stage.scene.cluster.frontend.faults.add(refusal)
            stage.change()
            await stage.until(lambda: old in stage.tainted, seconds=60)
            limit = command_timeout(1).total_seconds()
            await stage.until(lambda: old not in stage.tainted, seconds=limit + 60)
            assert old in stage.claims

        staged(tmp_path, scenario)

    def test_a_replacement_that_vanishes_takes_the_command_with_it(self, tmp_path):
        """Cases 183 and 264."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            stage.cloud_fails(NO_NODES)
            stage.change()
            await stage.until(lambda: len(stage.claims) == 2)
            await stage.until(lambda: stage.tainted == stage.first)
            (new,) = stage.claims - stage.first
            stage.scene.cluster.delete(NODE_CLAIMS, new)
            await stage.until(lambda: not stage.tainted and not stage.reasoned, seconds=10)
            assert stage.leaving == set()

        staged(tmp_path, scenario)

    def test_a_node_that_went_by_itself_meanwhile_is_no_failure(self, tmp_path):
        """Nothing is left to delete when its replacement is ready."""

        async def story(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            stage.change()
            await stage.until(lambda: len(stage.claims) == 2)
            await stage.until(lambda: stage.tainted == stage.first)
            (old,) = stage.first
            registry = stage.scene.cluster.server.registry
            registry.patch(NODE_CLAIMS, {"metadata": {"finalizers": None}}, old, "")
            stage.scene.cluster.delete(NODE_CLAIMS, old)
            assert stage.claims.isdisjoint(stage.first)
            await stage.clock.sleep(20 * 60)

            failures = (
                'karpenter_voluntary_disruption_queue_failures_total{consolidation_type="replace",'
                'decision="replace",reason="drifted"}'
            )
            assert stage.running.metric(failures) == 0
            assert stage.tainted == set()

        staged(tmp_path, story)

    def test_all_replacements_of_a_command_are_waited_for(self, tmp_path):
        """Cases 182 and 259: three small nodes for one large one."""

        async def scenario(stage):
            size = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In"}
            large = {"requirements": [{**size, "values": ["8"]}]}
            small = {"requirements": [{**size, "values": ["4"]}]}
            web = deployment("web", 3, cpu="2100m", memory="1Gi")
            await stage.begin(fixed(template=large), web, pods=3)
            assert len(stage.first) == 1
            held = names(stage.scene.claims())
            patch = {"spec": {"template": {"spec": small}}}
            stage.scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")
            await stage.until(lambda: len(stage.claims) == 4)
            new = stage.claims - held
            assert stage.leaving == set()
            await stage.until(lambda: stage.claims == new, seconds=180)
            await stage.until(lambda: len(stage.scene.pods("Running")) == 3)
            assert stage.decided("replace", "drifted", "") == (1, 1)

        staged(tmp_path, scenario)

    def test_a_pod_created_during_a_command_uses_the_new_node(self, tmp_path):
        """Case 227: what is ordered for one is room for the other; two claims, not three."""

        async def scenario(stage):
            size = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"]}
            pool = fixed(template={"requirements": [size]})
            await stage.begin(pool, deployment("web", 1, cpu="3"), pods=1)
            stage.change()
            await stage.until(lambda: len(stage.claims) == 2)
            stage.scene.cluster.apply([deployment("late", 1, cpu="2")])
            most = 0
            for _ in range(90):
                await stage.clock.sleep(1)
                most = max(most, len(stage.claims))
            assert most == 2
            assert (len(stage.scene.pods("Running")), len(stage.claims)) == (2, 1)

        staged(tmp_path, scenario)

    def test_replacements_are_created_once_while_creation_hangs(self, tmp_path):
        """Case 267: until the replacement is there, its pods are at home."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            creates = matching("POST", "/nodeclaims")
            stage.scene.cluster.frontend.faults.add(
                RequestFault(matches=creates, times=None, latency_seconds=20.0)
            )
            stage.change()
            await stage.until(lambda: stage.tainted == stage.first)
            most = 0
            for _ in range(120):
                await stage.clock.sleep(1)
                most = max(most, len(stage.claims))
            assert most == 2
            assert stage.leaving == stage.first
            assert len(stage.claims) == 1

        staged(tmp_path, scenario)

    def test_a_node_takes_pods_while_its_replacement_cannot_be_created(self, tmp_path):
        """A policy or quota may refuse the claim for days, and passes try again."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            attempts = noted_times(stage, creation := matching("POST", "/nodeclaims"))
            refusal = RequestFault(matches=creation, status=403, times=None)
            stage.scene.cluster.frontend.faults.add(refusal)
            stage.change()
            for _ in range(300):
                await stage.clock.sleep(1)
                assert stage.tainted == stage.reasoned == set()
            first, second, third, *_ = attempts
            assert 30 < second - first < 70
            assert 60 < third - second < 130

            stage.scene.cluster.frontend.faults.remove(refusal)
            await stage.until(lambda: stage.leaving == stage.first, seconds=400)

        staged(tmp_path, scenario)


class TestDeletion:
    def test_command_without_replacements_does_not_wait(self, tmp_path):
        """Cases 176 and 260: drift has no validation either."""

        async def scenario(stage):
            pool = fixed(template={"requirements": [{**CPU, "values": ["8"]}]})
            await stage.begin(pool, deployment("web", 4, cpu="3"), pods=4)
            assert len(stage.first) == 2
            stage.scene.cluster.scale(DEPLOYMENTS, "web", 2)
            await stage.clock.sleep(30)
            stage.change()
            await stage.until(lambda: len(stage.leaving) == 1, seconds=15)
            assert stage.claims <= stage.first
            assert sum(stage.decided("delete", "drifted", "")) >= 2

        staged(tmp_path, scenario)

    def test_load_balancer_label_is_set_with_the_taint(self, tmp_path):
        """One write, as nothing can take the command back; a replacement is waited for first."""

        async def scenario(stage):
            pool = fixed(template={"requirements": [{**CPU, "values": ["4"]}]})
            await stage.begin(pool, deployment("web", 2, cpu="3"), pods=2)
            stage.scene.cluster.scale(DEPLOYMENTS, "web", 1)
            await stage.clock.sleep(30)
            seen = []

            def note(change):
                node = change.stored.obj
                if "deletionTimestamp" not in node["metadata"]:
                    tainted = any(t["key"] == TAINT for t in node["spec"].get("taints", ()))
                    regarding = BALANCERS in node["metadata"]["labels"]
                    seen.append((node["metadata"]["name"], tainted, regarding))

            stage.scene.cluster.server.registry.store.listen(NODES, note)
            (kept,) = {pod["spec"]["nodeName"] for pod in stage.scene.pods()}
            stage.change()
            await stage.until(lambda: stage.leaving == stage.first, seconds=120)
            marks = {(name == kept, regarding) for name, tainted, regarding in seen if tainted}
            assert marks == {(False, True), (True, False)}

        staged(tmp_path, scenario)

    def test_an_empty_node_that_cannot_be_marked_stays_while_the_others_go(self, tmp_path):
        """It is not deleted without its taint; once it can be marked, it goes too."""

        async def scenario(stage):
            await stage.begin(fixed(after="0s"), deployment("web", 3, affinity=ALONE), pods=3)
            kept = min(stage.first)
            fault = RequestFault(matches=matching("PATCH", f"nodes/{kept}"), status=403, times=None)
            stage.scene.cluster.frontend.faults.add(fault)
            stage.scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await stage.until(lambda: stage.leaving == stage.first - {kept}, seconds=60)

            await stage.clock.sleep(60)

            assert stage.claims == {kept}
            assert stage.leaving == stage.first - {kept}
            state_nodes = stage.running.process.cluster_state.snapshot().state_nodes
            assert [each.name for each in state_nodes if each.marked_for_deletion] == []

            stage.scene.cluster.frontend.faults.remove(fault)
            await stage.until(lambda: not stage.claims, seconds=60)

        staged(tmp_path, scenario)


class TestSeveral:
    def test_commands_of_two_pools_end_each_by_itself(self, tmp_path):
        """Case 261: one waits for its node, the other is done."""

        async def scenario(stage):
            on_pool = [
                deployment(name, 1, affinity=ALONE, nodeSelector={"karpenter.sh/nodepool": name})
                for name in ("general", "other")
            ]
            await stage.begin(fixed(), fixed("other"), *on_pool, pods=2)
            of_pool = {
                c["metadata"]["name"]: c["metadata"]["labels"]["karpenter.sh/nodepool"]
                for c in stage.scene.claims()
            }
            stage.cloud_fails({"fault": "failed-node", "nodeClaims": ["general-*"]})
            stage.change("general")
            await stage.until(lambda: len(stage.claims) == 3)
            stage.change("other")
            await stage.until(lambda: len(stage.leaving) == 1, seconds=60)
            (gone,) = stage.leaving
            assert of_pool[gone] == "other"
            assert {of_pool[name] for name in stage.tainted if name in of_pool} >= {"general"}

        staged(tmp_path, scenario)

    def test_an_error_of_one_command_is_counted_and_does_not_hold_up_the_others(
        self, tmp_path, monkeypatch
    ):
        advance = CommandQueue._advance

        async def failing(queue, entry):
            if entry.command.candidates[0].state_node.pool == "general":
                raise RuntimeError("no such thing")
            await advance(queue, entry)

        monkeypatch.setattr(CommandQueue, "_advance", failing)

        async def scenario(stage):
            on_pool = [
                deployment(name, 1, affinity=ALONE, nodeSelector={"karpenter.sh/nodepool": name})
                for name in ("general", "other")
            ]
            await stage.begin(fixed(), fixed("other"), *on_pool, pods=2)
            stage.change("general")
            await stage.until(lambda: len(stage.claims) == 3)
            stage.change("other")
            await stage.until(lambda: len(stage.leaving) == 1, seconds=60)
            failed = 'karpenter_reconcile_errors_total{controller="disruption.queue"}'
            assert stage.running.metric(failed) > 0

        staged(tmp_path, scenario)

    def test_budgets_count_running_commands(self, tmp_path):
        """Cases 184 and 266: ten drifted nodes, three at a time, and never more."""

        async def scenario(stage):
            web = deployment("web", 10, affinity=ALONE)
            await stage.begin(fixed(nodes="3"), web, pods=10)
            assert len(stage.first) == 10
            stage.cloud_fails(NO_NODES)
            stage.change()
            counts = []
            for _ in range(120):
                await stage.clock.sleep(1)
                if not counts or counts[-1] != len(stage.claims):
                    counts.append(len(stage.claims))
            assert counts[-1] == 13
            assert counts == sorted(counts)
            assert len(stage.tainted & stage.first) == 3
            budgets = 'karpenter_nodepools_allowed_disruptions{nodepool="general",reason="Drifted"}'
            assert stage.running.metric(budgets) == 3

        staged(tmp_path, scenario)

    def test_a_claim_with_a_foreign_finalizer_does_not_delay_the_next(self, tmp_path):
        """Neither budget nor node count includes it once its instance is gone."""

        async def scenario(stage):
            pool = fixed(nodes="1")
            await stage.begin(pool, deployment("web", 2, affinity=ALONE), pods=2)
            for name in stage.first:
                held = [*stage.finalizers(name), "example.com/audit"]
                patch = {"metadata": {"finalizers": held}}
                stage.scene.cluster.server.registry.patch(NODE_CLAIMS, patch, name, "")
            stage.change()
            await stage.until(lambda: stage.leaving == stage.first, seconds=300)
            await stage.until(lambda: len(stage.scene.nodes()) == 2, seconds=120)
            assert stage.claims > stage.first

        staged(tmp_path, scenario, arguments=("--max-nodes-total=3",))

    def test_a_pool_whose_replacements_fail_does_not_hold_up_the_next(self, tmp_path):
        """Beyond the reference: it rests, longer each time; there it is tried first for ever."""

        async def scenario(stage):
            on_pool = [
                deployment(name, 2, affinity=ALONE, nodeSelector={"karpenter.sh/nodepool": name})
                for name in ("general", "other")
            ]
            await stage.begin(fixed(nodes="1"), fixed("other", nodes="1"), *on_pool, pods=4)
            stage.cloud_fails({"fault": "failed-node", "nodeClaims": ["general-*"]})
            stage.change("general")
            await stage.until(lambda: len(stage.claims) == 5)
            stage.change("other")
            tries = set()
            for _ in range(300):
                for name in stage.claims - stage.first:
                    if name.startswith("general-"):
                        tries.add(name)
                        stage.scene.cluster.delete(NODE_CLAIMS, name)
                await stage.clock.sleep(1)
            assert {name for name in stage.first if name.startswith("other-")} == stage.leaving
            assert 2 <= len(tries) <= 8, "half a minute, one, two"

        staged(tmp_path, scenario)

    def test_a_pool_whose_claims_are_refused_does_not_hold_up_the_next(self, tmp_path):
        """Each pass plans one command for drift, and would plan the refused one again."""

        async def scenario(stage):
            pools = [fixed(name, nodes="1") for name in ("general", "other")]
            on_pool = [
                deployment(name, 1, affinity=ALONE, nodeSelector={"karpenter.sh/nodepool": name})
                for name in ("general", "other")
            ]
            await stage.begin(*pools, *on_pool, pods=2)
            creation = matching("POST", "/nodeclaims")
            refusal = RequestFault(
                matches=lambda request: creation(request) and b"general-" in request.body,
                status=403,
                times=None,
            )
            stage.scene.cluster.frontend.faults.add(refusal)
            stage.change("general")
            await stage.clock.sleep(30)
            stage.change("other")
            old = {name for name in stage.first if name.startswith("other-")}
            await stage.until(lambda: stage.leaving == old, seconds=120)

        staged(tmp_path, scenario)


class TestLeftOver:
    def test_stale_marks_are_removed(self, tmp_path):
        """Case 263."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 1, affinity=ALONE), pods=1)
            (name,) = stage.first
            taint = {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}
            stage.scene.cluster.server.registry.patch(NODES, taint, name, "")
            assert stage.tainted == {name}
            await stage.until(lambda: not stage.tainted, seconds=15)
            assert stage.claims == stage.first

        staged(tmp_path, scenario)

    @pytest.mark.parametrize("seconds", [20.0, 70.0])
    def test_replacements_of_a_dead_process_are_used(self, tmp_path, seconds):
        """They boot or are empty when it is gone, and need not be launched again."""

        async def scenario(stage):
            pool = fixed(after="0s", nodes="1")
            await stage.begin(pool, deployment("web", 2, affinity=ALONE), pods=2)
            stage.cloud_fails({"fault": "slow-node", "delay": "1m"})
            stage.change()
            await stage.until(lambda: len(stage.claims) == 3)
            replacements = stage.claims - stage.first
            await stage.running.kill()
            await stage.clock.sleep(seconds)
            stage.running = stage.scene.start(*stage._arguments)
            await stage.until(lambda: stage.leaving == stage.first, seconds=400)
            await stage.until(lambda: len(stage.claims) == 2)
            assert replacements < stage.claims

        staged(tmp_path, scenario)

    @pytest.mark.parametrize("seconds", [1.0, 6.0])
    def test_commands_of_a_dead_process_are_ended_or_rolled_back(self, tmp_path, seconds):
        """The next one finds taints, conditions and claims, and the cluster comes to rest."""

        async def scenario(stage):
            await stage.begin(fixed(), deployment("web", 2, affinity=ALONE), pods=2)
            stage.change()
            await stage.until(lambda: bool(stage.tainted))
            await stage.clock.sleep(seconds)
            await stage.running.kill()
            await stage.clock.sleep(30)
            stage.running = stage.scene.start("--disable-leader-election")
            await stage.until(lambda: stage.leaving == stage.first, seconds=400)
            await stage.until(
                lambda: not stage.tainted and len(stage.scene.pods("Running")) == 2, seconds=200
            )
            assert len(stage.scene.nodes()) == len(stage.claims) == 2

        staged(tmp_path, scenario)


@pytest.mark.parametrize("succeeded", [True, False])
def test_only_commands_for_drift_begin_or_end_its_back_off(succeeded):
    now = datetime(2030, 1, 1, tzinfo=UTC)
    backed_off = DriftBackoff().with_failure("general", now, "c")
    expected = {
        DisruptionReason.DRIFTED: {} if succeeded else dict(backed_off.entries),
        DisruptionReason.UNDERUTILIZED: {"general": (1, now)} if succeeded else {},
    }
    for reason, entries in expected.items():
        queue = SimpleNamespace(
            _steady=SimpleNamespace(now=lambda: now),
            _drift_backoff=DriftBackoff({"general": (1, now)} if succeeded else {}),
        )
        command = SimpleNamespace(reason=reason, pools=("general",), id="c")
        CommandQueue._record_drift_result(queue, command, succeeded=succeeded)
        assert queue._drift_backoff.entries == entries
