"""`karpenter explain` names the right first cause for every pod and every node of large mixed sets."""

from __future__ import annotations

import asyncio
import json

import pytest

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.explain.node import find_state_node, node_explanation
from karpenter_core.cli.explain.pod import pod_explanation
from karpenter_core.cli.plan import solve_cluster
from tests.cli.blocked_nodes import NODE_FAILURES, mixed_nodes
from tests.cli.explain_failures import POD_FAILURES, TYPES, mixed_pods
from tests.cli.inputs import write
from tests.cli.test_explain_node import INSTANCE_TYPES
from tests.support.run_selection import others_as_cluster_runs


def read(folder, objects, types):
    file = folder / "types.json"
    file.write_text(json.dumps(types))
    cluster = write(folder / "cluster.yaml", *objects)
    source = ClusterSource(files=(cluster,), offline=True, instance_types_file=file)
    return asyncio.run(source.read())


@pytest.mark.parametrize("seed", range(2))
def test_each_pod_of_a_mixed_set_of_a_thousand_has_the_right_first_cause(tmp_path, seed):
    """37 kinds of pods at once, in NodePools of ten kinds, each refused for a reason of its own."""
    objects, expected = mixed_pods(1000, seed)
    cluster = read(tmp_path, objects, TYPES).cluster
    plan = solve_cluster(cluster)

    answers = {
        pod.name: pod_explanation(cluster, pod, plan, is_live=False)["answer"]
        for pod in cluster.snapshot.pods.values()
        if pod.name in expected
    }

    assert len(answers) == 1000
    assert {name.rpartition("-")[0] for name in answers} == set(POD_FAILURES)
    wrong = {
        name: answers[name]
        for name, texts in expected.items()
        if not all(text in answers[name] for text in texts)
    }
    assert wrong == {}


@pytest.mark.parametrize("copies", others_as_cluster_runs([3, 10]))
def test_each_blocked_node_has_the_right_first_cause(tmp_path, copies):
    """17 kinds of nodes at once, so many of each; the larger set is one of the cluster runs."""
    objects, expected = mixed_nodes(copies * len(NODE_FAILURES), seed=1)
    command_input = read(tmp_path, objects, INSTANCE_TYPES)

    wrong = {}
    for name, texts in expected.items():
        state_node = find_state_node(command_input.cluster, name)
        answer = node_explanation(command_input, state_node)["answer"]
        if not all(text in answer for text in texts):
            wrong[name] = answer
    assert wrong == {}
