"""Objects and queries for tests of ProvisioningRequests on the embedded cluster."""

from __future__ import annotations

import json

from karpenter_core.api.crd import render_crd
from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CONSUMED_REQUEST,
    ProvisioningRequest,
)
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.wire.codecs import PROVISIONING_REQUESTS
from tests.controllers.whole_controller import NODE_CLASS, cloud, node_pool, run_controller

SERVING = ("--disable-leader-election", "--provisioning-requests")
FOUR_CORES = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
    ]
}
"""Instances that hold three of the pods of `template`."""


def template(name="workers", *, cpu="1", **pod):
    requests = {"cpu": cpu, "memory": "100Mi"}
    container = {"name": "work", "image": "busybox", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {
            "metadata": {"labels": {"job": name}},
            "spec": {"containers": [container], **pod},
        },
    }


def request(name="job", *pod_sets, provisioning_class=ATOMIC_SCALE_UP, **parameters):
    """A request for pods, given as pairs of template and count."""
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "provisioningClassName": provisioning_class,
            "podSets": [
                {"podTemplateRef": {"name": name}, "count": count}
                for name, count in pod_sets or (("workers", 6),)
            ],
            **({"parameters": parameters} if parameters else {}),
        },
    }


def consumer(name, job="job", *, cpu="1", annotation=CONSUMED_REQUEST, **spec):
    """A pod that uses the capacity of a request."""
    requests = {"cpu": cpu, "memory": "100Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {annotation: job}},
        "spec": {
            "containers": [
                {"name": "work", "image": "busybox", "resources": {"requests": requests}}
            ],
            **spec,
        },
    }


class Gangs:
    """A cluster with a pool of four-core nodes, and what tests ask about it."""

    def __init__(self, harness, folder):
        self.harness, self.cluster, self._folder = harness, harness.cluster, folder

    def prepare(self, *objects, **pool):
        self.cluster.apply([render_crd(ProvisioningRequest)])
        self.cluster.apply([NODE_CLASS, node_pool(template=FOUR_CORES, **pool), template()])
        self.cluster.apply(objects)

    def status(self, name="job"):
        found = self.cluster.find(PROVISIONING_REQUESTS, name, namespace="default")
        return found.get("status", {})

    def condition(self, kind, name="job"):
        conditions = self.status(name).get("conditions", ())
        return next((each for each in conditions if each["type"] == kind), {})

    def is_true(self, kind, name="job"):
        return self.condition(kind, name).get("status") == "True"

    def is_empty(self):
        return not (self.harness.claims() or self.harness.nodes() or self.instances())

    def instances(self):
        if not (self._folder / "kwok.sqlite3").exists():
            return []
        return cloud(self.harness, self._folder)["instances"]

    def launches(self):
        return cloud(self.harness, self._folder)["launches"]

    def break_cloud(self, *faults):
        (self._folder / "faults.json").write_text(json.dumps(faults))

    def bound(self):
        return [pod for pod in self.cluster.list(PODS) if pod["spec"].get("nodeName")]

    def nodes(self):
        return self.cluster.list(NODES)

    async def until(self, holds, seconds=900.0):
        await self.harness.settle(holds, seconds=seconds)

    async def passes(self, seconds):
        await self.cluster.clock.sleep(seconds)


def run_gangs(folder, story, *arguments, **cluster):
    """Run a story against a cluster with faults of the cloud."""

    async def scenario(harness):
        await story(Gangs(harness, folder))

    folder.mkdir(parents=True, exist_ok=True)
    faults = f"--kwok-faults-file={folder / 'faults.json'}"
    run_controller(folder, scenario, arguments=[*SERVING, *arguments, faults], **cluster)
