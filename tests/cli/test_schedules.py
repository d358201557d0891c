"""Windows of NodePools' schedules in plans and explanations."""

from __future__ import annotations

import json

import pytest

from tests.cli.inputs import pod, pool, write

NOW = "2026-01-01T09:00:00Z"
NIGHT = {"name": "night", "schedule": "0 8 * * *", "duration": "2h", "shutdown": True}
LATER = {**NIGHT, "schedule": "0 20 * * *"}
LOW = {"name": "low", "schedule": "0 8 * * *", "duration": "2h", "limits": {"cpu": "1"}}


def scheduled(*windows, name="general", **spec):
    text = windows[0] if isinstance(windows[0], str) else json.dumps(windows)
    made = pool(name, **spec)
    made["metadata"]["annotations"] = {"karpenter.sh/schedules": text}
    return made


@pytest.fixture
def ask(program, types_file, tmp_path):
    """Run a command on these objects and a pod that was made just now."""

    def call(*command, objects, as_json=False):
        file = write(
            tmp_path / "cluster.yaml", *objects, pod("web", metadata={"creationTimestamp": NOW})
        )
        options = ("-o", "json") if as_json else ()
        shown = program(*command, "--offline", file, "--instance-types-file", types_file, *options)
        return json.loads(shown.out) if as_json else f"{shown.err}{shown.out}"

    return call


def plan(ask, *objects):
    return ask("plan", objects=objects, as_json=True)


def test_plan_has_no_node_of_a_pool_that_is_shut_down(ask):
    """The note names the window, its end and the next edge."""
    assert plan(ask, scheduled(NIGHT))["nodeClaims"] == []
    assert len(plan(ask, scheduled(LATER))["nodeClaims"]) == 1

    text = " ".join(ask("plan", objects=[scheduled(NIGHT)]).split())
    assert (
        'nodepool "general": window "night" of karpenter.sh/schedules until '
        '2026-01-01T10:00:00Z shuts it down; window "night" closes at 2026-01-01T10:00:00Z'
    ) in text
    text = " ".join(ask("plan", objects=[scheduled(LATER)]).split())
    assert (
        'no window of karpenter.sh/schedules is open; window "night" opens at 2026-01-01T20:00:00Z'
    ) in text


def test_plan_keeps_to_the_limit_of_an_open_window(ask):
    """The smallest type has two cores."""
    assert plan(ask, scheduled(LOW))["nodeClaims"] == []
    text = " ".join(ask("plan", objects=[scheduled(LOW)]).split())
    assert "sets limits.cpu to 1" in text


def test_plan_uses_another_pool_during_a_shutdown(ask):
    """Only pools that fit are tried."""
    (claim,) = plan(ask, scheduled(NIGHT, weight=50), pool("other"))["nodeClaims"]

    assert claim["nodePool"] == "other"


def test_replicas_of_an_open_window_are_planned(ask):
    """Three instead of one."""
    window = {**NIGHT, "shutdown": False, "replicas": 3}
    (entry,) = plan(ask, scheduled(window, replicas=1))["staticNodePools"]

    assert (entry["replicas"], entry["create"]) == (3, 3)


def test_explanation_of_a_pod_names_the_window(ask):
    """As the reason of its NodePool."""
    found = ask("explain", "pod", "shop/web", objects=[scheduled(NIGHT)], as_json=True)

    assert found["state"] == "unschedulable"
    assert 'shut down by window "night"' in found["message"]
    assert 'shut down by window "night"' in found["unusablePools"]["general"]


def test_unreadable_schedules_are_named(ask):
    """The pool is not used."""
    objects = [scheduled('[{"name": "a"}]')]
    text = " ".join(ask("plan", objects=objects).split())

    assert plan(ask, *objects)["nodeClaims"] == []
    assert "annotation karpenter.sh/schedules: " in text
