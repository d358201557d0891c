"""Windows of NodePools' schedules on a cluster: controllers act at their edges, in simulated time."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, EVENTS, POD_DISRUPTION_BUDGETS
from karpenter_core.kube.wire.codecs import NODE_POOLS
from tests.controllers.test_static_pools import all_ready, condition, live
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

ALONE = "--disable-leader-election"
STATIC = (ALONE, "--feature-gates=StaticCapacity=true")
KEPT = {
    "consolidationPolicy": "WhenEmpty",
    "consolidateAfter": "Never",
    "budgets": [{"nodes": "100%"}],
}


def window_in(scene, minutes, duration="30m", name="window", **changes):
    """A window that opens in so many minutes, once a year."""
    start = scene.cluster.clock.now() + timedelta(minutes=minutes)
    schedule = f"{start.minute} {start.hour} {start.day} {start.month} *"
    return {"name": name, "schedule": schedule, "duration": duration, **changes}


def scheduled(pool, *windows):
    text = windows[0] if isinstance(windows[0], str) else json.dumps(windows)
    return {
        **pool,
        "metadata": {**pool["metadata"], "annotations": {"karpenter.sh/schedules": text}},
    }


def stored(scene):
    return scene.pool("general")


def events(scene, reason):
    return [one for one in scene.cluster.list(EVENTS) if one["reason"] == reason]


def bound(scene):
    return [pod for pod in scene.pods() if pod["spec"].get("nodeName")]


def test_pods_get_nodes_as_soon_as_a_window_raises_the_limit(tmp_path):
    """No change of an object wakes the controller: the edge does, within seconds."""

    async def scenario(scene):
        window = window_in(scene, 30, limits={"cpu": "20"})
        pool = scheduled(node_pool(disruption=KEPT, limits={"cpu": "1"}), window)
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 2)])
        scene.start(ALONE)
        await scene.cluster.clock.sleep(28 * 60)
        assert scene.claims() == []
        assert condition(stored(scene), "ScheduleWindowOpen") is None

        await scene.settle(lambda: len(bound(scene)) == 2, seconds=200)

        opened = condition(stored(scene), "ScheduleWindowOpen")
        assert opened["reason"] == "WindowOpen"
        assert 'window "window" of karpenter.sh/schedules until' in opened["message"]
        assert stored(scene)["spec"]["limits"] == {"cpu": "1"}
        await scene.settle(lambda: events(scene, "ScheduleWindowOpen"))
        await scene.cluster.clock.sleep(35 * 60)
        assert len(bound(scene)) == 2  # a limit removes nothing
        assert condition(stored(scene), "ScheduleWindowOpen") is None

    run_controller(tmp_path, scenario)


def test_pool_is_empty_in_its_shutdown_hours_and_comes_back_after_them(tmp_path):
    """One node at a time, as the budget has it; the pods wait with the reason."""

    async def scenario(scene):
        disruption = {**KEPT, "budgets": [{"nodes": "1"}]}
        pool = scheduled(
            node_pool(
                disruption=disruption,
                template={
                    "requirements": [
                        {
                            "key": "karpenter.kwok.sh/instance-cpu",
                            "operator": "In",
                            "values": ["2"],
                        }
                    ]
                },
            ),
            window_in(scene, 10, "60m", name="night", shutdown=True),
        )
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 3)])
        running = scene.start(ALONE)
        await scene.settle(lambda: len(bound(scene)) == 3, seconds=120)
        assert len(scene.nodes()) == 3
        await scene.cluster.clock.sleep(8 * 60)
        assert len(live(scene)) == 3

        fewest = []

        def leaving():
            fewest.append(sum("deletionTimestamp" in claim["metadata"] for claim in scene.claims()))
            return not scene.nodes() and not scene.claims()

        await scene.settle(leaving, seconds=15 * 60)
        assert max(fewest) == 1
        await scene.cluster.clock.sleep(10 * 60)
        assert scene.claims() == []
        reasons = [one["message"] for one in events(scene, "FailedScheduling")]
        assert any('shut down by window "night"' in reason for reason in reasons)
        assert condition(stored(scene), "ScheduleWindowOpen")["reason"] == "ShutDown"
        await running.stop()
        scene.start(ALONE)  # a new process finds itself within the window
        await scene.cluster.clock.sleep(5 * 60)
        assert scene.claims() == []

        await scene.settle(lambda: len(bound(scene)) == 3, seconds=45 * 60)

    run_controller(tmp_path, scenario)


def test_shutdown_respects_a_pod_disruption_budget(tmp_path):
    """The node goes once the budget allows the eviction."""

    async def scenario(scene):
        pool = scheduled(node_pool(disruption=KEPT), window_in(scene, 5, "120m", shutdown=True))
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0},
        }
        scene.cluster.apply([NODE_CLASS, pool, budget, deployment("web", 1)])
        scene.start(ALONE)
        await scene.settle(lambda: len(bound(scene)) == 1, seconds=120)
        await scene.cluster.clock.sleep(30 * 60)
        assert len(live(scene)) == 1

        scene.cluster.delete(POD_DISRUPTION_BUDGETS, "web", namespace="default")

        await scene.settle(lambda: not scene.claims(), seconds=10 * 60)

    run_controller(tmp_path, scenario)


def test_replicas_of_a_static_pool_follow_its_windows(tmp_path):
    """Up at the start, down at the end, and `spec.replicas` stays as it is."""

    async def scenario(scene):
        pool = scheduled(node_pool(replicas=1), window_in(scene, 10, replicas=3))
        scene.cluster.apply([NODE_CLASS, pool])
        scene.start(*STATIC)
        await scene.settle(lambda: all_ready(scene, 1), seconds=120)
        await scene.cluster.clock.sleep(7 * 60)
        assert len(live(scene)) == 1

        await scene.settle(lambda: all_ready(scene, 3), seconds=5 * 60)
        await scene.cluster.clock.sleep(20 * 60)
        assert len(live(scene)) == 3
        await scene.settle(lambda: len(live(scene)) == 1, seconds=12 * 60)
        assert stored(scene)["spec"]["replicas"] == 1

    run_controller(tmp_path, scenario)


def test_a_window_that_opened_and_one_that_closed_while_no_controller_ran_are_seen(tmp_path):
    """The present time decides, and the next edge comes when it is due."""

    async def scenario(scene):
        windows = (
            window_in(scene, 10, "60m", replicas=3),
            window_in(scene, 120, "10m", name="missed", replicas=5),
        )
        scene.cluster.apply([NODE_CLASS, scheduled(node_pool(replicas=1), *windows)])
        first = scene.start(*STATIC)
        await scene.settle(lambda: all_ready(scene, 1), seconds=120)
        await first.kill()
        await scene.cluster.clock.sleep(30 * 60)
        second = scene.start(*STATIC)
        await scene.settle(lambda: all_ready(scene, 3), seconds=120)
        await second.kill()
        await scene.cluster.clock.sleep(60 * 60)
        third = scene.start(*STATIC)
        await scene.settle(lambda: all_ready(scene, 1), seconds=120)
        await third.kill()
        await scene.cluster.clock.sleep(60 * 60)
        scene.start(*STATIC)
        await scene.cluster.clock.sleep(10 * 60)
        assert len(live(scene)) == 1
        assert len({event["involvedObject"]["name"] for event in events(scene, "Launched")}) <= 3

    run_controller(tmp_path, scenario)


def test_shutdown_of_a_static_pool_keeps_to_its_budgets(tmp_path):
    """Unlike a change of the replicas, which takes all surplus nodes at once."""

    async def scenario(scene):
        disruption = {**KEPT, "budgets": [{"nodes": "1"}]}
        pool = node_pool(replicas=3, disruption=disruption)
        scene.cluster.apply(
            [NODE_CLASS, scheduled(pool, window_in(scene, 10, "60m", shutdown=True))]
        )
        scene.start(*STATIC)
        await scene.settle(lambda: all_ready(scene, 3), seconds=120)
        deleting = []

        def is_empty():
            deleting.append(len(scene.claims()) - len(live(scene)))
            return not scene.claims()

        await scene.settle(is_empty, seconds=20 * 60)
        assert max(deleting) == 1
        await scene.cluster.clock.sleep(10 * 60)
        assert scene.claims() == []
        await scene.settle(lambda: all_ready(scene, 3), seconds=60 * 60)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("replicas", [None, 2])
def test_unreadable_schedules_stop_launches_and_removals(tmp_path, replicas):
    """The condition names annotation and value; the nodes stay, and the correction ends it."""

    async def scenario(scene):
        static = {} if replicas is None else {"replicas": replicas}
        pool = node_pool(**static)
        good = scheduled(pool, window_in(scene, 600, shutdown=True))
        scene.cluster.apply([NODE_CLASS, good, deployment("web", 1)])
        scene.start(*STATIC)
        await scene.settle(lambda: scene.claims() and all_ready(scene, replicas or 1), seconds=120)
        count = len(live(scene))

        scene.cluster.apply([scheduled(pool, "[{}]")])
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        if replicas is not None:
            scene.cluster.patch(NODE_POOLS, "general", {"spec": {"replicas": 0}})
        await scene.cluster.clock.sleep(20 * 60)

        problem = condition(stored(scene), "ValidationSucceeded")
        assert problem["status"] == "False"
        assert "annotation karpenter.sh/schedules: " in problem["message"]
        assert "[{}]" in problem["message"]
        assert len(live(scene)) == count
        scene.cluster.apply([good])
        if replicas is not None:
            scene.cluster.patch(NODE_POOLS, "general", {"spec": {"replicas": 0}})
        await scene.settle(lambda: not scene.claims(), seconds=10 * 60)

    run_controller(tmp_path, scenario)


def test_metrics_show_open_windows_and_the_next_edge(tmp_path):
    """Series of removed windows go."""

    async def scenario(scene):
        window = window_in(scene, 10, limits={"cpu": "9"})
        pool = node_pool(disruption=KEPT)
        scene.cluster.apply([NODE_CLASS, scheduled(pool, window)])
        running = scene.start(ALONE)
        starts = scene.cluster.clock.now() + timedelta(minutes=10)
        await scene.cluster.clock.sleep(60)
        labels = {"nodepool": "general", "window": "window"}

        def value(name, **of):
            return running.process.metrics.registry.get_sample_value(
                f"karpenter_nodepools_schedule_{name}", of
            )

        assert value("window_open", **labels) == 0
        edge = value("next_edge_timestamp_seconds", nodepool="general")
        assert edge == starts.replace(second=0, microsecond=0).timestamp()
        await scene.cluster.clock.sleep(10 * 60)
        assert value("window_open", **labels) == 1
        scene.cluster.patch(
            NODE_POOLS, "general", {"metadata": {"annotations": {"karpenter.sh/schedules": None}}}
        )
        await scene.cluster.clock.sleep(10)
        assert value("window_open", **labels) is None

    run_controller(tmp_path, scenario)
