"""Pods as the acceptance cases speak of them: no requests unless said, labels `test: test`."""

from __future__ import annotations

import json

import msgspec

from karpenter_core.api.labels import HOSTNAME
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    LabelSelectorRequirement,
    TopologySpread,
    VolumeView,
    WeightedAffinityTerm,
)
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.testing.builders import node_term, pod_shape

TEST = {"test": "test"}
"""Labels of the pods of most topology cases."""

_GROUPS = {
    "DaemonSet": "apps",
    "StorageClass": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "PodDisruptionBudget": "policy",
}


def decoded(manifest):
    """Read a manifest the way it comes from the API server."""
    kind = manifest["kind"]
    codec = Codecs().find(_GROUPS.get(kind, ""), kind)
    return codec.decode(json.dumps(manifest).encode())


def selector(labels=None, *expressions):
    """Make a label selector of labels and `(key, operator, *values)`."""
    return LabelSelector(
        match_labels=dict(labels or {}),
        match_expressions=tuple(
            LabelSelectorRequirement(key=key, operator=operator, values=tuple(values))
            for key, operator, *values in expressions
        ),
    )


def _selector_of(chosen):
    return chosen if chosen is None or isinstance(chosen, LabelSelector) else selector(chosen)


def spread(
    key,
    max_skew=1,
    *,
    of=TEST,
    soft=False,
    min_domains=None,
    node_affinity="Honor",
    node_taints="Ignore",
    label_keys=(),
):
    """Make a spread constraint over pods with the labels `of` (or a selector, or none)."""
    return TopologySpread(
        topology_key=key,
        max_skew=max_skew,
        when_unsatisfiable="ScheduleAnyway" if soft else "DoNotSchedule",
        selector=_selector_of(of),
        min_domains=min_domains,
        node_affinity_policy=node_affinity,
        node_taints_policy=node_taints,
        match_label_keys=tuple(label_keys),
    )


def term(of, key=HOSTNAME, *, namespaces=(), namespace_selector=None):
    """Make a term of pod affinity or anti-affinity towards pods with the labels `of`."""
    return AffinityTerm(
        topology_key=key,
        selector=_selector_of(of),
        namespaces=tuple(namespaces),
        namespace_selector=namespace_selector,
    )


def wish(weight, affinity_term):
    """Make a preferred term of pod affinity or anti-affinity."""
    return WeightedAffinityTerm(weight=weight, term=affinity_term)


def claimed(name, claim):
    """Make a volume on a PersistentVolumeClaim."""
    return VolumeView(name=name, claim_name=claim)


def ephemeral(name, storage_class=None):
    """Make a volume whose claim is made for the pod, named `<pod>-<volume>`."""
    return VolumeView(name=name, ephemeral=True, storage_class=storage_class)


def template(
    *,
    where=(),
    spread=(),
    near=(),
    away=(),
    wish_near=(),
    wish_away=(),
    volumes=(),
    annotations=None,
    limits=None,
    **basics,
):
    """Make the shape of a case's pods.

    `where` is one required node affinity term; `near` and `away` are required terms of pod
    affinity and anti-affinity, `wish_…` the preferred ones. Limits count as requests, as the API
    server has it.
    """
    if where:
        basics["required"] = [node_term(*where)]
    if limits:
        basics["requests"] = {**limits, **basics.get("requests", {})}
    shape = pod_shape(**{"cpu": "", "memory": "", **basics})
    return msgspec.structs.replace(
        shape,
        annotations=dict(annotations or {}),
        limits=parse_resources(limits or {}),
        topology_spread=tuple(spread),
        pod_affinity=tuple(near),
        pod_anti_affinity=tuple(away),
        preferred_pod_affinity=tuple(wish_near),
        preferred_pod_anti_affinity=tuple(wish_away),
        volumes=tuple(volumes),
    )


def _terms(expressions):
    """Write one term per list of `(key, operator, *values)`."""
    return [
        {
            "matchExpressions": [
                {"key": label, "operator": operator, "values": list(values)}
                for label, operator, *values in listed
            ]
        }
        for listed in expressions
    ]


def storage_class(name, *terms, provisioner="fake.csi.provider", mode="WaitForFirstConsumer"):
    """Read a StorageClass; a term of its allowed topologies maps labels to values."""
    allowed = [
        {"matchLabelExpressions": [{"key": k, "values": list(v)} for k, v in term.items()]}
        for term in terms
    ]
    return decoded(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "uid": f"uid-class-{name}"},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
            "allowedTopologies": allowed,
        }
    )


def volume(name, *terms, source=None, deleted=False):
    """Read a PersistentVolume with node affinity terms of `(key, operator, *values)`."""
    meta = {"name": name, "uid": f"uid-volume-{name}"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = dict(source or {"csi": {"driver": "fake.csi.provider", "volumeHandle": name}})
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": _terms(terms)}}
    return decoded({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})


def volume_claim(name, *, of=None, to="", completed=True, phase=None, deleted=False):
    """Read a PersistentVolumeClaim of a class (None: says nothing) and bound to a volume."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-claim-{name}"}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if to and completed:
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    spec = {"volumeName": to} if of is None else {"volumeName": to, "storageClassName": of}
    phase = phase or ("Bound" if to else "Pending")
    return decoded(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": spec,
            "status": {"phase": phase},
        }
    )


def csi_node(name, **limits):
    """Read a CSINode: how many volumes of each driver (`__` for a dot) the node attaches."""
    drivers = [
        {
            "name": driver.replace("__", "."),
            "nodeID": "fake-node-id",
            "allocatable": {"count": count},
        }
        for driver, count in limits.items()
    ]
    return decoded(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name, "uid": f"uid-csi-{name}"},
            "spec": {"drivers": drivers},
        }
    )


def _amounts(cpu, memory):
    return {"requests": {"cpu": cpu, "memory": memory}}


def pod_of(name, containers, *, init=(), resources=None, overhead=None):
    """Read a pod that waits: containers as `(cpu, memory)`, sidecars with a third `Always`."""

    def listed(parts):
        return [
            {
                "name": f"c{number}",
                "resources": _amounts(cpu, memory),
                **({"restartPolicy": policy[0]} if policy else {}),
            }
            for number, (cpu, memory, *policy) in enumerate(parts)
        ]

    spec = {"containers": listed(containers), "initContainers": listed(init)}
    if resources:
        spec["resources"] = _amounts(*resources)
    if overhead:
        spec["overhead"] = overhead
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return decoded(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": spec,
            "status": {"phase": "Pending", "conditions": [unschedulable]},
        }
    )
