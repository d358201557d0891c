"""Manifests for the tests of the embedded cluster."""

from __future__ import annotations

from typing import Any


def node(name: str, *, cpu: str = "4", zone: str = "", taints: Any = (), **labels: str):
    labels = {"kubernetes.io/hostname": name, **labels}
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"capacity": {"cpu": cpu, "memory": "32Gi", "pods": "110"}},
    }


def pod_spec(*, cpu: str = "1", **spec: Any):
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], **spec}


def pod(name: str, *, labels: dict[str, str] | None = None, cpu: str = "1", **spec: Any):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels or {}},
        "spec": pod_spec(cpu=cpu, **spec),
        "status": {},
    }


def workload(kind: str, name: str, *, replicas: int = 1, **spec: Any):
    labels = {"app": name}
    body: dict[str, Any] = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec(**spec)},
    }
    if kind != "DaemonSet":
        body["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def deployment(name: str, *, replicas: int = 1, **spec: Any):
    return workload("Deployment", name, replicas=replicas, **spec)


def budget(name: str, app: str, **spec: Any):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }
