"""The control plane, controller and kwok provider that the scenarios run on."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import yaml

from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from karpenter_core.testing.cluster import ClusterClient
from karpenter_provider_kwok.dump import dump_file
from tests.e2e.upstream.suite import module_folder
from tests.support.controller import ControllerProcess
from tests.support.controlplane import ControlPlane, find_binaries
from tests.support.processes import wait_until

OUR_CRDS = Path(__file__).parents[3] / "crds"
THEIR_CRDS = "pkg/apis/crds"
CATALOGUE = "kwok/cloudprovider/instance_types.json"
STAGES = "hack/kwok/stages"
KWOK = "0.6"
"""Version that `hack/install-kwok.sh` of Karpenter v1.14.0 installs."""

OPTIONS = {
    "providers": "kwok",
    "log-level": "debug",
    "feature-gates": "NodeRepair=true,StaticCapacity=true,CapacityBuffer=true",
}
SHARED_GROUPS = ("autoscaling.x-k8s.io",)
"""API groups whose kinds other projects own: their definitions are used unchanged."""
CRD_SECONDS = 30.0
COLLECTION_SECONDS = 300.0
"""An instance whose claim has vanished is looked for every two minutes."""
LOGS = ("karpenter.log", "kwok.log", "kube-scheduler.log", "kube-controller-manager.log")


class ScenarioEnvironment:
    """A control plane and a controller for one scenario after the other; a context manager."""

    def __init__(self, folder, *, kubernetes, options=None):
        folder.mkdir(parents=True, exist_ok=True)
        binaries = find_binaries(kubernetes, kwok=KWOK)
        stages = folder / "stages.yaml"
        stages.write_text(_stages(binaries.kwok_stages))
        self.folder = folder
        self._cloud = folder / "cloud.sqlite3"
        self.control_plane = ControlPlane(
            dataclasses.replace(binaries, kwok_stages=stages), folder=folder
        )
        self.controller = ControllerProcess(
            "karpenter",
            kubeconfig=self.control_plane.kubeconfig,
            folder=folder,
            options={
                **OPTIONS,
                "instance-types-file": str(module_folder() / CATALOGUE),
                "kwok-state-file": str(self._cloud),
                **(options or {}),
            },
            environment=os.environ,
        )

    @property
    def kubeconfig(self):
        """The administrator's way in."""
        return self.control_plane.kubeconfig

    async def left_behind(self):
        """Return the instances and Nodes that remain after garbage collection."""
        left = []
        async with ClusterClient(self.kubeconfig) as client:

            async def empty():
                dump = dump_file(str(self._cloud), now=datetime.now(UTC))
                left[:] = [each["providerID"] for each in dump["instances"]]
                left.extend(node["metadata"]["name"] for node in await client.list(NODES))
                return not left

            with contextlib.suppress(TimeoutError):
                await wait_until(empty, seconds=COLLECTION_SECONDS, interval_seconds=1.0)
        return left

    async def __aenter__(self):
        try:
            await self.control_plane.start_api_server()
            await self._install_crds()
            await self.control_plane.start()
            await self.controller.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_):
        try:
            await self.controller.process.stop()
        finally:
            await self.control_plane.stop()
            shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    async def _install_crds(self):
        kind = CUSTOM_RESOURCE_DEFINITIONS
        crds = _crds()
        async with ClusterClient(self.kubeconfig) as client:
            for crd in crds.values():
                await client.create(kind, crd)

            async def served():
                return all(_is_established(crd) for crd in await client.list(kind))

            await wait_until(served, seconds=CRD_SECONDS)


def _crds():
    """Return our CRDs by name, and Karpenter's own where we have none, or share the kind."""
    result = {}
    for folder in (module_folder() / THEIR_CRDS, OUR_CRDS):
        for path in sorted(folder.glob("*.yaml")):
            crd = yaml.safe_load(path.read_text())
            if folder == OUR_CRDS and crd["spec"]["group"] in SHARED_GROUPS:
                continue
            result[crd["metadata"]["name"]] = crd
    return result


def _is_established(crd):
    conditions = crd.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _stages(defaults):
    """Return kwok's stages with those that the scenarios bring instead of their namesakes.

    Pods may ask how long their deletion takes, or to be unhealthy.
    """
    result = {}
    for path in (defaults, *sorted((module_folder() / STAGES).glob("*.yaml"))):
        for stage in yaml.safe_load_all(path.read_text()):
            result[stage["metadata"]["name"]] = stage
    return yaml.safe_dump_all(result.values())
