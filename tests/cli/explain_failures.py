"""Generates clusters in which pods and nodes fail for one known reason each, in a random mix.

Each kind of failure is a function of a number: it returns the pod, the objects beside it, and a text that the
answer must contain, which names the constraint and the object or value to blame.
"""

from __future__ import annotations

import random

from tests.cli.inputs import NODE_CLASS_REF, instance_type, node, offering, pod, pool

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
POOL_LABEL = "karpenter.sh/nodepool"
TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10), offering(0.11, zone="z2")),
    instance_type("medium", "4", "8Gi", offering(0.18), offering(0.19, zone="z2")),
    instance_type("large", "16", "32Gi", offering(1.00), offering(0.40, capacity_type="spot")),
    instance_type("sold-out", "64", "128Gi", offering(4.00, Available=False)),
]
PORT = 9100
"""Port of the host that a DaemonSet takes on every node."""


def only(name, **spec):
    """A selector by which a pod asks for one NodePool."""
    return {"nodeSelector": {POOL_LABEL: name, **spec}}


def needs(key, operator, *values):
    """A required node affinity."""
    term = {
        "matchExpressions": [
            {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        ]
    }
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}  # fmt: skip


def near(kind, app, key=ZONE):
    """A required affinity, or anti-affinity, to pods of an app."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(app, **fields):
    constraint = {
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}}, **fields,
    }  # fmt: skip
    return {"topologySpreadConstraints": [constraint], "metadata": {"labels": {"app": app}}}


def uses(claim):
    return {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]}


def volume_claim(name, **spec):
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }  # fmt: skip


def container_with(**fields):
    return {"containers": [{"name": "app", "image": "app", **fields}]}


def amounts(**requests):
    return container_with(resources={"requests": {"cpu": "100m", **requests}})


def shared_objects():
    """Return NodePools of every kind, and what is on all nodes."""
    taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    minimum = {
        "key": "node.kubernetes.io/instance-type",
        "operator": "In",
        "values": ["small", "medium"],
        "minValues": 2,
    }
    few = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small"]}
    spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    gone = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["sold-out"]}
    pools = [
        pool("general"),
        pool("tainted", template={"taints": [taint]}),
        pool("no-cpu", limits={"cpu": "0"}),
        pool("no-nodes", limits={"nodes": "0"}),
        pool("small-only", template={"requirements": [few]}),
        pool("spot-only", template={"requirements": [spot]}),
        pool("sold-out", template={"requirements": [gone]}),
        pool("two-types", template={"requirements": [minimum]}),
        pool("quota", labels={"team": "quota"}),
        pool("static", replicas=1),
    ]
    quota = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityQuota", "metadata": {"name": "team-quota"},
        "spec": {"selector": {"matchLabels": {"team": "quota"}}, "limits": {"resources": {"nodes": 0}}},
    }  # fmt: skip
    exporter = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "exporter", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "exporter"}},
            "template": {
                "metadata": {"labels": {"app": "exporter"}},
                "spec": container_with(ports=[{"containerPort": PORT, "hostPort": PORT}]) | {"tolerations": [{"operator": "Exists"}]},
            },
        },
    }  # fmt: skip
    classes = [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "far"},
         "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
         "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["z9"]}]}]},
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "at-once"},
         "provisioner": "disk.example.com", "volumeBindingMode": "Immediate"},
    ]  # fmt: skip
    far_volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "far-volume"},
        "spec": {
            "csi": {"driver": "disk.example.com", "volumeHandle": "far"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z9"]}]}]}},
        },
    }  # fmt: skip
    rival = node(
        "rival", cpu="64", labels={ZONE: "z1"}, taints=[{"key": "full", "effect": "NoSchedule"}]
    )
    rival_two = node(
        "rival-two", cpu="64", labels={ZONE: "z2"}, taints=[{"key": "full", "effect": "NoSchedule"}]
    )
    guards = [
        pod(f"guard-{zone}", cpu="10m", memory="1Mi", nodeName=name, metadata={"labels": {"app": "guard"}})
        for name, zone in (("rival", "z1"), ("rival-two", "z2"))
    ]  # fmt: skip
    return [
        *pools, quota, exporter, *classes, far_volume, rival, rival_two, *guards,
        volume_claim("bound-far", volumeName="far-volume"),
        volume_claim("class-far", storageClassName="far"),
        volume_claim("no-class", storageClassName="missing-class"),
        volume_claim("unbound", storageClassName="at-once"),
        volume_claim("lost", storageClassName="at-once", volumeName="gone-volume"),
    ]  # fmt: skip


GATED = {"schedulingGates": [{"name": "example.com/wait"}]}
DEVICE = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
WRONG_TOLERATION = {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "web"}]}
POD_FAILURES = {
    "arch": ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, ("requirement: ", "kubernetes.io/arch")),
    "system": ({"nodeSelector": {"kubernetes.io/os": "windows"}}, ("requirement: ", "kubernetes.io/os")),
    "label": ({"nodeSelector": {"color": "blue"}}, ("requirement: ", "color")),
    "absent-label": (needs("color", "Exists"), ("requirement: ", "color")),
    "zone": (needs(ZONE, "In", "z9"), ("requirement: ", ZONE)),
    "type": ({"nodeSelector": {"node.kubernetes.io/instance-type": "huge"}}, ("requirement: ", "node.kubernetes.io/instance-type")),
    "pool": (only("nobody"), ("requirement: ", POOL_LABEL)),
    "static": (only("static"), ('NodePool "static" is not used: it is static',)),
    "static-by-affinity": (needs(POOL_LABEL, "In", "static"), ('NodePool "static" is not used: it is static',)),
    "capacity": (only("spot-only", **{"karpenter.sh/capacity-type": "on-demand"}), ("requirement: ", "karpenter.sh/capacity-type")),
    "combination": (only("spot-only", **{ZONE: "z2"}), ('NodePool "spot-only": requirement: ', ZONE)),
    "cpu": ({"cpu": "100"}, ("resource: ", "cpu")),
    "memory": ({"memory": "4Ti"}, ("resource: ", "memory")),
    "disk": (amounts(**{"ephemeral-storage": "500Gi"}), ("resource: ", "ephemeral-storage")),
    "extended": (amounts(**{"example.com/gpu": "1"}), ("resource: ", "example.com/gpu")),
    "too-large-here": ({"cpu": "3", **only("small-only")}, ('NodePool "small-only": resource: ', "cpu")),
    "taint": (only("tainted"), ('NodePool "tainted": taint: ', "dedicated")),
    "toleration": ({**only("tainted"), **WRONG_TOLERATION}, ('NodePool "tainted": taint: ', "dedicated")),
    "limit": (only("no-cpu"), ('NodePool "no-cpu": limit: ', "cpu")),
    "node-limit": (only("no-nodes"), ('NodePool "no-nodes": limit: ', "nodes")),
    "quota": (only("quota"), ('NodePool "quota": limit: ', "team-quota")),
    "stock-out": (only("sold-out"), ('NodePool "sold-out": offering: ',)),
    "min-values": ({"cpu": "3", **only("two-types")}, ('NodePool "two-types": minValues: ',)),
    "spread": (spread("guard", minDomains=9), ("topology: ", ZONE)),
    "affinity": (near("podAffinity", "nobody"), ("affinity: ", "nobody")),
    "anti-affinity": (near("podAntiAffinity", "guard"), ("affinity: ", "guard")),
    "port": (container_with(ports=[{"containerPort": 80, "hostPort": PORT}]), ("port: ", str(PORT))),
    "volume": (uses("missing"), ("volume: ", "missing")),
    "volume-zone": (uses("bound-far"), ("volume: ", "z9")),
    "class-zone": (uses("class-far"), ("volume: ", "z9")),
    "no-class": (uses("no-class"), ("volume: ", "missing-class")),
    "unbound": (uses("unbound"), ("volume: ", '"shop/unbound" is to be bound', "(in all NodePools)")),
    "lost": (uses("lost"), ("volume: ", "gone-volume", "(in all NodePools)")),
    "device": (DEVICE, ("device: ", "gpu")),
    "expendable": (
        {"metadata": {"annotations": {"karpenter.sh/expendable": "true"}}},
        ("priority: ", "karpenter.sh/expendable"),
    ),
    "gated": (GATED, ("does not wait for a node: ", "example.com/wait")),
    "fits": ({}, ("a node of NodePool",)),
}  # fmt: skip
"""By kind: fields of the pod, and texts that the answer must contain."""


def mixed_pods(count, seed):
    """Return a cluster with so many pods of all kinds in random order, and the texts by name of a pod."""
    drawn = random.Random(seed)
    kinds = [list(POD_FAILURES)[number % len(POD_FAILURES)] for number in range(count)]
    drawn.shuffle(kinds)
    pods, expected = [], {}
    for number, kind in enumerate(kinds):
        fields, texts = POD_FAILURES[kind]
        made = pod(f"{kind}-{number}", **{"memory": "64Mi", **fields})
        pods.append(made)
        expected[made["metadata"]["name"]] = texts
    return [*shared_objects(), *pods], expected


__all__ = ["NODE_CLASS_REF", "POD_FAILURES", "TYPES", "mixed_pods"]
