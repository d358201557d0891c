"""Recognises intended differences (docs/reference/differences.md)."""

from __future__ import annotations

import copy
import json

import msgspec

from karpenter_core.kube.wire.raw import RawPodSpec
from karpenter_core.kube.wire.requests import pod_requests
from tests.peer.choices import ARCH, CAPACITY_TYPE, LEVEL, RACK, TEAM, ZONE
from tests.peer.our_plans import faults, plan

WE_LEAVE = "we leave a pod"
THEY_LEAVE = "the reference leaves a pod"
CUSTOM = (LEVEL, RACK, TEAM, "example.com/unheard")
POOL_TAINTS = ("dedicated", "example.com/size", "soft")
ALIASES = {"failure-domain.beta.kubernetes.io/zone": ZONE}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NONE = " DoesNotExist"


def explanation(cluster, types, theirs, kind, compare, *, is_closed=False):
    """Return why both sides differ; empty when nothing that is known explains it.

    `compare(cluster, types)` returns what kind of difference a changed cluster shows, and the
    plans of the reference for it. `is_closed`: no pool sells more than one domain.
    """
    if any(_is_beside(run, cluster) for run in theirs):
        return "their plan puts a pod where it must not go"
    if kind == THEY_LEAVE and all(_leaves_companions(run) for run in theirs):
        return "pods that want to be on one node choose one with room"
    why = _by_changes(cluster, types, compare, is_closed=is_closed)
    if not why and kind == THEY_LEAVE and not _faults_of_plan(cluster, types):
        return "more pods are placed, and the plan holds"
    if not why and kind == WE_LEAVE and _misses_companions(cluster, types, theirs):
        return "pods that follow others find room by how those were packed"
    return why


def _faults_of_plan(cluster, types):
    """Return the faults of our plan, but those of a pool whose own label breaks its requirement.

    Both sides launch nodes for such a pool, and no node of it can be right.
    """
    broken = [
        f"({pool['metadata']['name']})"
        for pool in cluster["nodePools"]
        for key, value in pool["spec"]["template"]["metadata"].get("labels", {}).items()
        for item in pool["spec"]["template"]["spec"].get("requirements", ())
        if (item["key"], item["operator"]) == (key, "In") and value not in item["values"]
    ]
    return [
        fault
        for fault in faults(cluster, types, "first-fit")
        if ": the pool requires " not in fault or not any(name in fault for name in broken)
    ]


def _by_changes(cluster, types, compare, *, is_closed):
    changed = copy.deepcopy(cluster)
    names = []
    for name, change in _CHANGES:
        if change(changed):
            names.append(name)
            if not compare(changed, types)[0]:
                return " and ".join(names)
    if not is_closed and _has_topology(cluster):
        for closed in _closed_pools(changed, types):
            still, plans = compare(closed, types)
            if still and not explanation(closed, types, plans, still, compare, is_closed=True):
                return ""
        return "pods are counted on nodes whose domain is open"
    return ""


def _is_beside(run, cluster):
    """Return whether a plan puts a pod on a node without a label that it requires.

    Two demands that exclude each other end there as "must not exist", and a label that pods only
    say what it is not counts as being there.
    """
    pods = specs_of(cluster)
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


def specs_of(cluster):
    """Return the specs of all pods by name."""
    return {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["spec"]
        for pod in (*cluster["pods"], *cluster["boundPods"])
    }


def size_of(spec):
    """Return what of a pod decides about its place in the queue, as text: its requests.

    Limits stand for requests that are not there, as the API server defaults them.
    """
    raw = msgspec.convert(spec, RawPodSpec)
    requests = pod_requests(raw, None, pod_level=None, resize_infeasible=False)
    return json.dumps(requests, sort_keys=True)


def _made(pool):
    """Return the labels of a pool's nodes by its template."""
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


def _misses_companions(cluster, types, theirs):
    """Whether all that we leave beyond them are pods that follow others to their nodes."""
    ours = plan(cluster, types, "first-fit")["unschedulable"]
    left = set(ours) - {pod for run in theirs for pod in run["unschedulable"]}
    return all(
        "without room for it, and never on a new node" in ours[pod]["message"] for pod in left
    )


def _leaves_companions(run):
    text = "pod affinity, key=kubernetes.io/hostname"
    return any(text in why for why in run["unschedulable"].values())


def _without_node_limits(cluster):
    limits = [pool["spec"].get("limits", {}) for pool in cluster["nodePools"]]
    return bool([limit for limit in limits if limit.pop("nodes", None)])


def _without_taints(cluster):
    """Remove the taints of pools, also from their nodes."""
    specs = [pool["spec"]["template"]["spec"] for pool in cluster["nodePools"]]
    results = [spec for spec in specs if spec.pop("taints", None)]
    for spec in (item["spec"] for item in (*cluster["nodes"], *cluster["nodeClaims"])):
        if "taints" in spec:
            spec["taints"] = [t for t in spec["taints"] if t["key"] not in POOL_TAINTS]
    return bool(results)


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
        # They do not know the domains of nodes on their way that no pool sells any more.
        changed["nodeClaims"] = [c for c in changed["nodeClaims"] if "nodeName" in c["status"]]
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


def _with_one_term(cluster):
    """Leave pods the last one of their node affinity terms."""
    changed = False
    for spec in specs_of(cluster).values():
        required = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
        terms = required.get("nodeSelectorTerms", ())
        if len(terms) > 1:
            required["nodeSelectorTerms"] = terms[-1:]
            changed = True
    return changed


def _with_one_pod_affinity(cluster):
    """Leave pods the first one of their pod affinity terms."""
    changed = False
    for spec in specs_of(cluster).values():
        affinity = spec.get("affinity", {}).get("podAffinity", {})
        if len(affinity.get(_REQUIRED, ())) > 1:
            affinity[_REQUIRED] = affinity[_REQUIRED][:1]
            changed = True
    return changed


def _with_one_spread(cluster):
    """Leave pods the last one of their spread constraints."""
    changed = False
    for spec in specs_of(cluster).values():
        if len(spec.get("topologySpreadConstraints", ())) > 1:
            spec["topologySpreadConstraints"] = spec["topologySpreadConstraints"][-1:]
            changed = True
    return changed


def _without_daemon_ports(cluster):
    """Remove the ports of DaemonSets."""
    containers = [
        container
        for pod in cluster.get("daemonSetPods", ())
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])
    ]
    return bool([container for container in containers if container.pop("ports", None)])


_CHANGES = (
    ("`nodes` limits count within a pass", _without_node_limits),
    ("domains are known whatever taints are before them", _without_taints),
    ("constraints count pods placed before, also after giving up a term", _with_one_term),
    ("pods must meet all terms of a pod affinity", _with_one_pod_affinity),
    ("ports of daemons are taken before their pods are there", _without_daemon_ports),
    ("nodes count that have the labels of all spread constraints", _with_one_spread),
)
