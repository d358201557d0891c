"""The file of recorded answers keeps the right clusters."""

from __future__ import annotations

import pytest

from tests.peer import golden
from tests.peer.draw import random_cluster
from tests.peer.intended_differences import THEY_LEAVE, WE_LEAVE
from tests.peer.our_plans import plan


class ScriptedReference:
    """A reference whose runs leave what a test says."""

    def __init__(self, *verdicts):
        self._runs = [
            {"error": verdict} if isinstance(verdict, str) else {"unschedulable": sorted(verdict)}
            for verdict in verdicts
        ]

    def ask(self, _cluster, _types, *, runs):
        return [self._runs[number % len(self._runs)] for number in range(runs)]


@pytest.fixture(scope="module")
def drawn():
    """The first cluster of which we leave some pods, those pods, and all its pods."""
    for seed in range(1000):
        cluster, types = random_cluster(seed)
        pods = {f"{p['metadata']['namespace']}/{p['metadata']['name']}" for p in cluster["pods"]}
        left = set(plan(cluster, types, "first-fit")["unschedulable"])
        if left and left < pods:
            return cluster, types, left, pods
    raise AssertionError


def test_a_cluster_on_which_we_agree_has_no_difference(drawn):
    cluster, types, left, _ = drawn
    line = golden.kept(ScriptedReference(left), cluster, types)
    assert line["unschedulable"] == sorted(left)
    assert "difference" not in line


@pytest.mark.parametrize(
    ("kind", "why"), [(WE_LEAVE, "limits"), (THEY_LEAVE, "limits"), ("", "of one size")]
)
def test_a_cluster_on_which_we_differ_is_kept_with_the_reason(drawn, monkeypatch, kind, why):
    cluster, types, left, _ = drawn
    monkeypatch.setattr(golden, "difference", lambda *_: (kind, ()))
    monkeypatch.setattr(golden, "explanation", lambda *_: why)
    line = golden.kept(ScriptedReference(set()), cluster, types)
    assert (line["unschedulable"], line["ours"]) == ([], sorted(left))
    assert why in line["difference"]


@pytest.mark.parametrize("kind", [WE_LEAVE, THEY_LEAVE, "no constraint is named"])
def test_a_difference_that_nothing_explains_is_not_passed_over(drawn, monkeypatch, kind):
    cluster, types, _, _ = drawn
    monkeypatch.setattr(golden, "difference", lambda *_: (kind, ()))
    monkeypatch.setattr(golden, "explanation", lambda *_: "")
    with pytest.raises(golden.UnexplainedError, match=kind):
        golden.kept(ScriptedReference(set()), cluster, types)


def test_a_cluster_without_nodes_and_bound_pods_may_differ(drawn, monkeypatch):
    """The file leaves out their empty lists; comparing and explaining need them."""
    seen = {}

    def explained(cluster, *_):
        seen.update(cluster)
        return "limits"

    cluster, types, left, _ = drawn
    bare = {key: value for key, value in cluster.items() if "node" not in key.lower()}
    bare = {**bare, "nodePools": cluster["nodePools"], "boundPods": []}
    monkeypatch.setattr(golden, "explanation", explained)
    line = golden.kept(ScriptedReference(set()), bare, types)
    assert line["difference"] == "limits"
    assert "boundPods" not in line["cluster"]
    assert seen["nodes"] == seen["nodeClaims"] == seen["boundPods"] == []
    assert left


def test_dropped_are_clusters_that_no_answer_of_ours_decides_about(drawn):
    cluster, types, left, _ = drawn
    for reference, why in (
        (ScriptedReference(left, set()), "chance"),
        (ScriptedReference(left, "boom"), "fails"),
    ):
        with pytest.raises(golden.DroppedError, match=why):
            golden.kept(reference, cluster, types)
