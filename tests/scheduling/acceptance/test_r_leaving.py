"""Cases 288 to 290: pods of removed nodes that get another place."""

from __future__ import annotations

import pytest

from karpenter_core.testing.state_builders import disruption_budget
from tests.scheduling.acceptance.workloads import template

LABELS = {"pdb-test": "value"}


def leaving(cluster, *pods):
    """Have pods run on a node that is then deleted, make a pass, and return who was placed."""
    made = cluster.pod()
    cluster.provision(made)
    (node,) = cluster.nodes
    cluster.evict(made)
    for pod in pods:
        cluster.bind(pod, node)
    cluster.terminate(node)
    cluster.provision()
    placed = [pod.uid for claim in cluster.passes[-1].plan.claims for pod in claim.pods]
    return placed, len(cluster.nodes) - 1


def owned_by(cluster, kind, **own):
    return cluster.pods(1, shape=template(owner_kind=kind), **own)[0]


def test_case_288_active_pods_get_a_new_node(cluster):
    pods = cluster.pods(2)
    assert leaving(cluster, *pods) == ([pod.uid for pod in pods], 1)


def test_case_288_also_when_the_provider_takes_the_instance(cluster):
    """A claim whose instance is being terminated is on its way out, deleted or not."""
    from karpenter_core.api.nodeclaim import INSTANCE_TERMINATING
    from karpenter_core.testing.state_builders import with_claim_conditions

    pod = cluster.pod()
    cluster.provision(pod)
    (claim,) = cluster.claims
    cluster.apply(with_claim_conditions(claim, INSTANCE_TERMINATING, now=cluster.now))
    cluster.provision()
    assert len(cluster.nodes) == 2


@pytest.mark.parametrize(
    ("kind", "terminating", "moves"),
    [
        ("ReplicaSet", False, True),
        ("ReplicaSet", True, False),
        ("StatefulSet", False, True),
        ("StatefulSet", True, True),
        ("DaemonSet", False, False),
        ("DaemonSet", True, False),
        ("Node", False, False),
    ],
)
def test_case_289_pods_of_a_leaving_node_that_are_rescheduled(cluster, kind, terminating, moves):
    own = {"deletion_timestamp": cluster.now} if terminating else {}
    pod = owned_by(cluster, kind, **own)
    assert leaving(cluster, pod) == (([pod.uid], 1) if moves else ([], 0))


@pytest.mark.parametrize(
    "budgets",
    [
        [{"max_unavailable": "0"}],
        [{"max_unavailable": "0%"}],
        [{"min_available": "100%"}],
        [{"max_unavailable": "1"}, {"max_unavailable": "1"}],
    ],
    ids=["none unavailable", "no percent unavailable", "all available", "two budgets"],
)
def test_case_290_pods_that_a_budget_holds_stay(cluster, budgets):
    cluster.apply(
        *(
            disruption_budget(f"budget-{number}", labels=LABELS, **budget)
            for number, budget in enumerate(budgets)
        )
    )
    assert leaving(cluster, cluster.pod(labels=LABELS)) == ([], 0)


def test_case_290_a_budget_with_allowed_disruptions_holds_no_pod(cluster):
    cluster.apply(disruption_budget(labels=LABELS, max_unavailable="1"))
    pod = cluster.pod(labels=LABELS)
    assert leaving(cluster, pod) == ([pod.uid], 1)
