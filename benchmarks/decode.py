"""Measure what reading pods costs: objects a CPU second, and memory for each pod kept.

    python benchmarks/decode.py [--pods 5000] [--apps 200]

Each way of reading runs in a process of its own, so that none profits from another's memory. The
pods look like a cluster's: managed fields, probes, environment, statuses; about 13 KB of JSON each.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_WAYS = ("interned views", "official client")


def main() -> None:
    """Measure every way and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--apps", type=int, default=200)
    parser.add_argument("--way", choices=_WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(_measure(arguments.way, arguments.pods, arguments.apps)))
        return
    print(f"{arguments.pods} pods of {arguments.apps} apps")
    print(f"{'way':<18}{'objects/CPU s':>15}{'KiB/pod':>10}  notes")
    for way in _WAYS:
        command = [sys.executable, __file__, "--way", way]
        command += ["--pods", str(arguments.pods), "--apps", str(arguments.apps)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print(f"{way:<18}{result['rate']:>15,.0f}{result['kib']:>10.2f}  {result['notes']}")


def _measure(way: str, pods: int, apps: int) -> dict[str, Any]:
    pages = [_page(range(start, min(start + 500, pods)), apps) for start in range(0, pods, 500)]
    decode, notes = _reader(way)
    decode(pages[0])  # imports and caches are not what is measured
    gc.collect()
    started = time.process_time()
    held = [decode(page) for page in pages]
    seconds = time.process_time() - started
    remarks = notes()
    del held
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    held = [decode(page) for page in pages]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    assert sum(map(len, held)) == pods
    return {"rate": pods / seconds, "kib": (after - before) / 1024 / pods, "notes": remarks}


def _reader(way: str) -> tuple[Callable[[bytes], Any], Callable[[], str]]:
    if way == "interned views":
        from karpenter_core.kube.resources import PODS
        from karpenter_core.kube.wire.codecs import Codecs

        codecs = Codecs()
        codec = codecs.for_kind(PODS)
        return (lambda page: codec.decode_list(page).objects), (
            lambda: f"{len(codecs.shapes)} shapes"
        )
    from kubernetes.client import V1PodList

    return (lambda page: V1PodList.model_validate_json(page).items), (
        lambda: "V1PodList.model_validate_json, collector on"
    )


def _page(numbers: range, apps: int) -> bytes:
    items = [_pod(number, number % apps) for number in numbers]
    document = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "1"},
        "items": items,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _pod(number: int, app: int) -> dict[str, Any]:
    name, moment = f"app-{app}-6d4b75cb6d-{number:05d}", "2026-03-01T10:00:00Z"
    labels = {"app": f"app-{app}", "pod-template-hash": "6d4b75cb6d", "team": f"team-{app % 20}"}
    resources = {
        "requests": {"cpu": f"{100 + app}m", "memory": "256Mi"},
        "limits": {"memory": "512Mi"},
    }
    managed = {f"f:field-{index}": {"f:name": {}, "f:value": {}, ".": {}} for index in range(80)}
    condition_types = ("PodReadyToStartContainers", "Initialized", "Ready", "PodScheduled")
    return {
        "metadata": {
            "name": name,
            "generateName": f"app-{app}-6d4b75cb6d-",
            "namespace": f"ns-{app % 10}",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": moment,
            "labels": labels,
            "annotations": {"checksum/config": "0" * 64},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"app-{app}-6d4b75cb6d",
                    "uid": f"rs-{app}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": moment,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": managed,
                }
                for manager in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "volumes": [
                {"name": f"kube-api-access-{number}", "projected": {"sources": []}},
                {"name": "config", "configMap": {"name": "config"}},
            ],
            "containers": [
                {
                    "name": container,
                    "image": "registry.example/app:1.2.3",
                    "env": [
                        {"name": f"SETTING_{index}", "value": "a value"} for index in range(15)
                    ],
                    "resources": resources,
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
                }
                for container in ("main", "proxy")
            ],
            "nodeName": f"node-{number % 300}",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": f"app-{app}"}},
                }
            ],
            "priority": 0,
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
        },
        "status": {
            "phase": "Running",
            "startTime": moment,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": moment}
                for kind in condition_types
            ],
            "containerStatuses": [
                {
                    "name": container,
                    "image": "registry.example/app:1.2.3",
                    "imageID": "sha256:" + "0" * 64,
                    "ready": True,
                    "restartCount": 0,
                    "allocatedResources": resources["requests"],
                    "resources": resources,
                }
                for container in ("main", "proxy")
            ],
        },
    }


if __name__ == "__main__":
    main()
