"""Differences that are meant (docs/reference/differences.md), told by what makes them go away."""

from __future__ import annotations

import copy

from tests.peer.choices import ARCH, CAPACITY_TYPE, LEVEL, RACK, TEAM, ZONE

WE_LEAVE = "we leave a pod"
THEY_LEAVE = "the reference leaves a pod"
CUSTOM = (LEVEL, RACK, TEAM, "example.com/unheard")
ALIASES = {"failure-domain.beta.kubernetes.io/zone": ZONE}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NONE = " DoesNotExist"


def explanation(cluster, types, theirs, kind, differs):
    """Return why both sides differ; empty when nothing that is known explains it.

    `differs(cluster, types)` says whether they still do, on a changed cluster.
    """
    if any(_is_beside(run, cluster) for run in theirs):
        return "their plan puts a pod where it must not go"
    if kind == THEY_LEAVE and all(_leaves_companions(run) for run in theirs):
        return "pods that want to be on one node choose one with room"
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
    """Whether a plan puts a pod on a machine that lacks a label that it asks for.

    Two demands that exclude each other end there as "must not exist", and a label that pods only
    say what it is not counts as being there.
    """
    pods = {_key(pod): pod["spec"] for pod in cluster["pods"] + cluster["boundPods"]}
    pools = {pool["metadata"]["name"]: _made(pool) for pool in cluster["nodePools"]}
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in cluster["nodes"]}
    for claim in run["nodeClaims"] or ():
        absent = {key for key in CUSTOM if key not in pools[claim["nodePool"]]}
        absent |= {text.partition(" ")[0] for text in claim["requirements"] if _NONE in text}
        if any(absent & _wanted(pods[pod]) for pod in claim["pods"]):
            return True
    return any(
        node in labels and _wanted(pods[pod]) - set(labels[node])
        for node, placed in (run["existingNodes"] or {}).items()
        for pod in placed
    )


def _key(pod):
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _made(pool):
    """Return the labels that machines of a pool have by its own words."""
    template = pool["spec"]["template"]
    asked = template["spec"].get("requirements", ())
    keys = {r["key"] for r in asked if r["operator"] != "DoesNotExist"}
    return keys | set(template["metadata"].get("labels", ()))


def _wanted(spec):
    """Return the labels that a pod wants to be there, in one of its terms at least."""
    keys = set(spec.get("nodeSelector", ()))
    affinity = spec.get("affinity", {})
    required = affinity.get("nodeAffinity", {}).get(_REQUIRED, {})
    for term in required.get("nodeSelectorTerms", ()):
        keys |= {
            expression["key"]
            for expression in term.get("matchExpressions", ())
            if expression["operator"] in {"In", "Exists", "Gt", "Lt"}
        }
    keys |= {term["topologyKey"] for term in affinity.get("podAffinity", {}).get(_REQUIRED, ())}
    return {ALIASES.get(key, key) for key in keys}


def _leaves_companions(run):
    text = "pod affinity, key=kubernetes.io/hostname"
    return any(text in why for why in run["unschedulable"].values())


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
