"""Differences that are meant (docs/reference/differences.md), told by what makes them go away."""

from __future__ import annotations

import copy

from tests.peer.choices import ARCH, CAPACITY_TYPE, ZONE


def explanation(cluster, types, theirs, differs):
    """Return why both sides differ; empty when nothing that is known explains it.

    `differs(cluster, types)` says whether they still do, on a changed cluster.
    """
    if any(_is_beside(run, cluster) for run in theirs):
        return "their plan puts a pod where its node selector does not let it go"
    for name, change in _CHANGES:
        changed = copy.deepcopy(cluster)
        if change(changed) and not differs(changed, types):
            return name
    if _has_topology(cluster) and not any(
        differs(changed, types) for changed in _closed_pools(cluster, types)
    ):
        return "pods are counted on machines whose domain is open"
    return ""


def _is_beside(run, cluster):
    """Whether a plan puts a pod on a machine that lacks a label of its node selector."""
    wanted = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": _wanted(pod["spec"])
        for pod in cluster["pods"]
    }
    return any(
        f"{key} DoesNotExist" in claim["requirements"]
        for claim in run["nodeClaims"] or ()
        for pod in claim["pods"]
        for key in wanted.get(pod, ())
    )


def _wanted(spec):
    """Return the labels that a pod may require."""
    keys = set(spec.get("nodeSelector", ()))
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        keys |= {
            expression["key"]
            for expression in term.get("matchExpressions", ())
            if expression["operator"] in {"In", "Exists", "Gt", "Lt"}
        }
    return keys


def _without_node_limits(cluster):
    limits = [pool["spec"].get("limits", {}) for pool in cluster["nodePools"]]
    return bool([limit for limit in limits if limit.pop("nodes", None)])


def _without_soft_taints(cluster):
    changed = False
    for pool in cluster["nodePools"]:
        spec = pool["spec"]["template"]["spec"]
        hard = [t for t in spec.get("taints", ()) if t["effect"] != "PreferNoSchedule"]
        changed |= len(hard) != len(spec.get("taints", ()))
        spec["taints"] = hard
    return changed


def _closed_pools(cluster, types):
    """Return the cluster with pools that sell one domain only, for each domain that is sold."""
    sold = {
        (offering["Requirements"][1]["values"][0], offering["Requirements"][0]["values"][0], arch)
        for it in types
        for offering in it["offerings"]
        for arch in [it["architecture"]]
    }
    for zone, capacity_type, arch in sorted(sold):
        changed = copy.deepcopy(cluster)
        for pool in changed["nodePools"]:
            pool["spec"]["template"]["spec"]["requirements"] += [
                {"key": ZONE, "operator": "In", "values": [zone]},
                {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
                {"key": ARCH, "operator": "In", "values": [arch]},
            ]
        yield changed


def _has_topology(cluster):
    return any(
        "topologySpreadConstraints" in pod["spec"]
        or {"podAffinity", "podAntiAffinity"} & set(pod["spec"].get("affinity", ()))
        for pod in (*cluster["pods"], *cluster["boundPods"])
    )


_CHANGES = (
    ("`nodes` limits count within a pass", _without_node_limits),
    ("domains are known behind taints that are given up later", _without_soft_taints),
)
