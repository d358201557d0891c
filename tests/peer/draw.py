"""Draws random clusters as the files that `karpenter plan --offline` reads.

Labels, values and names are few, so that selectors, taints and spreads meet each other. Manifests
are complete where an API server would have completed them, so that no side has to guess.
"""

from __future__ import annotations

import random

from tests.peer import draw_capacity, draw_pods
from tests.peer.choices import Choices

FEATURES = (
    "affinity", "anti_affinity", "bound", "custom", "daemons", "deleting", "hugepages", "in_flight",
    "init", "limits", "min_values", "nodes", "overhead", "ports", "preferences", "shortage",
    "soft_taints", "spread", "taints", "terms", "volumes", "weights",
)  # fmt: skip


def random_cluster(seed, without=()):
    """Return a cluster (by keys) and its instance types, the same ones for the same seed."""
    generator = random.Random(seed)
    features = {name for name in FEATURES if generator.random() < 0.6}
    choices = Choices(generator, features - set(without))
    types = draw_capacity.instance_types(choices)
    pools = draw_capacity.node_pools(choices, types)
    cluster = {"nodePools": pools, "nodes": [], "nodeClaims": [], "boundPods": []}
    cluster |= draw_pods.storage(choices)
    templates = [draw_pods.template(choices) for _ in range(choices.number(1, 5))]
    if choices.has("daemons"):
        cluster["daemonSetPods"] = [
            draw_pods.daemon(choices, f"agent-{number}") for number in range(choices.number(1, 3))
        ]
    if choices.has("nodes"):
        nodes_and_claims = draw_capacity.nodes_and_claims(choices, pools, types)
        cluster["nodes"], cluster["nodeClaims"], cluster["csiNodes"] = nodes_and_claims
    cluster["namespaces"] = draw_pods.namespaces()
    if choices.has("bound"):
        cluster["boundPods"] = draw_pods.bound_pods(choices, cluster, templates)
    if choices.has("deleting") and choices.chance(30):
        cluster["podDisruptionBudgets"] = draw_pods.budgets(choices)
    cluster["pods"] = draw_pods.pending_pods(choices, cluster, templates)
    return cluster, types
