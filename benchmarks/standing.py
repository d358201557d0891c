"""Serves a cluster that stands already: thousands of Nodes, their NodeClaims, and pods on them.

A small cluster is built by a controller in virtual time, packed tightly. Its NodeClaims, Nodes and
pods are then copied under new names until the cluster has the size asked for, and an API server
(karpenter_core.sim) lists them, streams their changes and takes writes. There are no kubelets, no
scheduler and no other controllers: they would need more CPU time than what is measured. Instead
of them pods change at an even rate: a pod goes, a successor waits for `WAIT_SECONDS`, and is bound
where the other one was, so that the cluster stays as tight as it is.

Pods carry what pods of real clusters carry: variables, limits, tolerations, status and
`managedFields`, about 4 KiB in all.

    python -m benchmarks.standing --nodes 5000 --pods 100000 --kubeconfig FILE
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import signal
import sys
import tempfile
import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import structlog

from karpenter_core.api.quantities import parse_amount
from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS, custom_kind
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.http_server import ApiHttpServer, write_kubeconfig
from karpenter_core.sim.registry import render_time
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_core.testing.scenarios import InitialObjects, ScenarioDeployment, ScenarioNodePool
from karpenter_provider_kwok.api import KWOKNodeClass
from karpenter_provider_kwok.plugin import KwokProvider
from tests.support.processes import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from karpenter_core.kube.resources import ResourceKind

__all__ = [
    "ClusterSize", "StandingCluster", "StandingServer", "Template", "build_template", "view_options",
]  # fmt: skip

Json = dict[str, Any]

CPU_MILLI: Final = 750
"""Mean of the pods' requests: about twenty pods fill an instance of 16 CPUs."""
MACHINE_CPU: Final = 16
PARTS: Final = (0.25, 0.5, 0.75, 1.0, 1.0, 1.25, 1.5, 1.75)
TEMPLATE_REPLICAS: Final = 120
"""Of each Deployment in the template; a multiple of the zones, so that copies are spread evenly."""
FULL_SHARE: Final = 0.96
"""Instances with more room than this are not copied: no consolidation is possible anywhere."""
WAIT_SECONDS: Final = 1.0
ZONE: Final = "topology.kubernetes.io/zone"
NODE_CLASSES: Final = custom_kind(KWOKNodeClass.resource)
READY_SECONDS: Final = 300.0
_TOLERATIONS: Final = [
    {
        "key": f"node.kubernetes.io/{name}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for name in ("not-ready", "unreachable")
]


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The least that a cluster has."""

    nodes: int
    pods: int


@dataclass(frozen=True, slots=True)
class Template:
    """State that a controller has built from a few Deployments."""

    shared: dict[ResourceKind, list[Json]]
    """Objects that are there once: CRDs, the NodeClass, the NodePool."""
    machines: list[tuple[Json, Json, list[Json]]]
    """NodeClaim, Node and pods of each instance."""

    @property
    def pods(self) -> int:
        """The pods of all instances."""
        return sum(len(pods) for _, _, pods in self.machines)


def workloads() -> list[ScenarioDeployment]:
    """Return Deployments of eight sizes, two of them spread over zones."""
    found: list[ScenarioDeployment] = []
    for number, part in enumerate(PARTS):
        app, cpu = f"app-{number}", round(CPU_MILLI * part)
        pod: Json = {"tolerations": _TOLERATIONS}
        if number in {0, 3}:
            pod["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            ]
        found.append(
            ScenarioDeployment(
                name=app, replicas=TEMPLATE_REPLICAS, cpu=f"{cpu}m", memory=f"{cpu * 2}Mi", pod=pod
            )
        )
    return found


def build_template(disruption: Json) -> Template:
    """Have a controller build a small cluster in virtual time."""
    with tempfile.TemporaryDirectory(prefix="standing-") as folder:
        return run_virtual(_build(Path(folder), disruption))


async def _build(folder: Path, disruption: Json) -> Template:
    harness = ControllerHarness(
        lambda: {"kwok": KwokProvider()},
        folder=folder,
        arguments=("--disable-leader-election",),
        preference="most-allocated",
    )
    async with harness:
        harness.start()
        sized = {
            "key": "karpenter.kwok.sh/instance-cpu",
            "operator": "In",
            "values": [str(MACHINE_CPU)],
        }
        pool = ScenarioNodePool(
            name="general", disruption=disruption, requirements=[sized], expire_after="Never"
        )
        deployments = [_with_weight(each.manifest()) for each in workloads()]
        harness.cluster.apply(InitialObjects(node_pools=[pool]).objects())
        harness.cluster.apply(deployments)
        wanted = TEMPLATE_REPLICAS * len(deployments)
        await harness.settle(lambda: len(harness.pods("Running")) == wanted, seconds=600)
        await asyncio.sleep(120.0)  # all conditions are there, all claims can be consolidated
        shared = {
            kind: harness.cluster.list(kind)
            for kind in (CUSTOM_RESOURCE_DEFINITIONS, NODE_CLASSES, NODE_POOLS)
        }
        pods_of = defaultdict[str, list[Json]](list)
        for pod in harness.pods():
            pods_of[pod["spec"]["nodeName"]].append(_with_managed_fields(pod))
        nodes = {node["metadata"]["name"]: node for node in harness.nodes()}
        claims = [(claim, claim["status"]["nodeName"]) for claim in harness.claims()]
        machines = [(claim, nodes[name], pods_of[name]) for claim, name in claims]
        return Template(shared, [each for each in machines if _is_full(*each[1:])])


def _is_full(node: Json, pods: Sequence[Json]) -> bool:
    used = sum(
        parse_amount("cpu", container["resources"]["requests"]["cpu"])
        for pod in pods
        for container in pod["spec"]["containers"]
    )
    return used >= FULL_SHARE * parse_amount("cpu", node["status"]["allocatable"]["cpu"])


def _with_weight(manifest: Json) -> Json:
    """Give each container what makes real pods large."""
    for container in manifest["spec"]["template"]["spec"]["containers"]:
        container["env"] = [{"name": f"VARIABLE_{n}", "value": f"value-{n}"} for n in range(20)]
        container["resources"]["limits"] = container["resources"]["requests"]
        container["volumeMounts"] = [
            {
                "name": "kube-api-access",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            }
        ]
    return manifest


def _with_managed_fields(pod: Json) -> Json:
    """Add what the API server keeps about who has set which field."""
    spec = pod["spec"]["containers"][0]
    variables = {f'k:{{"name":"{each["name"]}"}}': {".": {}, "f:value": {}} for each in spec["env"]}
    fields = {
        "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:containers": {'k:{"name":"main"}': {"f:env": variables, "f:resources": {}}}},
    }
    entry = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": pod["metadata"]["creationTimestamp"],
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**pod, "metadata": {**pod["metadata"], "managedFields": [entry]}}


@final
class StandingCluster:
    """The objects of a cluster in an API server, and their even change."""

    def __init__(self, clock: LoopClock, template: Template, size: ClusterSize) -> None:
        self.server: Final = ApiServer(clock, history_size=200_000)
        self.pods = 0
        self.nodes = 0
        self._clock: Final = clock
        self._random: Final = random.Random(7)
        self._names: list[str] = []
        """Names of the pods that run."""
        self._load(template, size)

    def _load(self, template: Template, size: ClusterSize) -> None:
        put = self.server.registry.store.put
        for kind, objects in template.shared.items():
            for found in objects:
                if kind == CUSTOM_RESOURCE_DEFINITIONS:
                    bare = {**found, "metadata": {"name": found["metadata"]["name"]}}
                    self.server.registry.create(kind, bare)
                else:
                    put(kind, found)
        copies = 0
        while self.nodes < size.nodes or self.pods < size.pods:
            for claim, node, pods in template.machines:
                self._put_machine(claim, node, pods, f"-{copies:04d}")
            copies += 1

    def _put_machine(self, claim: Json, node: Json, pods: list[Json], suffix: str) -> None:
        put = self.server.registry.store.put
        renamed = {
            claim["metadata"]["name"]: claim["metadata"]["name"] + suffix,
            claim["metadata"]["uid"]: self._uid(),
            node["metadata"]["uid"]: self._uid(),
        }
        put(NODE_CLAIMS, _replaced(claim, renamed))
        put(NODES, _replaced(node, renamed))
        node_name = renamed.get(node["metadata"]["name"], node["metadata"]["name"] + suffix)
        for pod in pods:
            metadata = {
                **pod["metadata"],
                "name": pod["metadata"]["name"] + suffix,
                "uid": self._uid(),
            }
            put(PODS, {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node_name}})
            self._names.append(metadata["name"])
        self.nodes += 1
        self.pods += len(pods)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    async def churn(self, per_second: float) -> None:
        """Replace pods at an even rate, for ever."""
        number = 0
        waiting = set[asyncio.Task[None]]()
        while True:
            await asyncio.sleep(1.0 / per_second)
            place = self._random.randrange(len(self._names))
            number += 1
            task = asyncio.create_task(self._replace(place, f"next-{number}"))
            waiting.add(task)
            task.add_done_callback(waiting.discard)

    async def _replace(self, place: int, name: str) -> None:
        store = self.server.registry.store
        stored = store.find(PODS, "default", self._names[place])
        if stored is None:
            return
        pod, now = stored.obj, render_time(self._clock.now())
        store.remove(stored)
        self._names[place] = name
        metadata = {
            **pod["metadata"],
            "name": name,
            "uid": self._uid(),
            "creationTimestamp": now,
        }
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": now,
        }
        status = {"phase": "Pending", "conditions": [refused]}
        store.put(PODS, {**pod, "metadata": metadata, "spec": spec, "status": status})
        await asyncio.sleep(WAIT_SECONDS)
        waiting = store.find(PODS, "default", name)
        if waiting is not None:
            bound = {**spec, "nodeName": pod["spec"]["nodeName"]}
            metadata = waiting.obj["metadata"]
            store.put(PODS, {**pod, "metadata": metadata, "spec": bound})


def _replaced(found: Json, names: dict[str, str]) -> Json:
    """Return an object in which names and UIDs are others, wherever they are."""
    text = msgspec.json.encode(found).decode()
    for old, new in names.items():
        text = text.replace(old, new)
    return msgspec.json.decode(text)


@final
class StandingServer:
    """The cluster in a process of its own, as an async context manager."""

    def __init__(self, size: ClusterSize, *, pods_per_second: float = 0.0) -> None:
        self._folder: Final = tempfile.TemporaryDirectory(prefix="standing-")
        folder = Path(self._folder.name)
        self.kubeconfig: Final = folder / "kubeconfig"
        self.process: Final = ChildProcess(
            "standing cluster",
            [
                sys.executable,
                "-m",
                "benchmarks.standing",
                f"--nodes={size.nodes}",
                f"--pods={size.pods}",
                f"--pods-per-second={pods_per_second}",
                f"--kubeconfig={self.kubeconfig}",
            ],
            log=folder / "log",
        )
        self.nodes = 0
        self.pods = 0

    async def __aenter__(self) -> Self:
        await self.process.start()
        await self.process.ready(self._is_ready, seconds=READY_SECONDS)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.process.stop()
        self._folder.cleanup()

    async def _is_ready(self) -> bool:
        found = re.search(
            r"^ready .* nodes=(\d+) pods=(\d+)$", self.process.log_text(), re.MULTILINE
        )
        if found is not None:
            self.nodes, self.pods = int(found[1]), int(found[2])
        return found is not None

    def start_churn(self) -> None:
        """Have pods change from now on."""
        self.process.signal(signal.SIGUSR1)


async def _serve(options: argparse.Namespace) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    template = await asyncio.to_thread(
        build_template,
        {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "30s",
            "budgets": [{"nodes": "10%"}],
        },
    )
    size = ClusterSize(options.nodes, options.pods)
    cluster = StandingCluster(LoopClock(), template, size)
    ended, changing = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, changing.set)
    http = ApiHttpServer(ServerFrontend(cluster.server))
    write_kubeconfig(options.kubeconfig, await http.start(options.port))
    kinds = len(template.machines)
    print(f"ready {http.url} kinds={kinds} nodes={cluster.nodes} pods={cluster.pods}", flush=True)

    async def churn() -> None:
        await changing.wait()
        await cluster.churn(options.pods_per_second)

    changes = asyncio.create_task(churn())
    await ended.wait()
    changes.cancel()
    await http.stop()


def view_options(
    description: str | None, arguments: Sequence[str] | None = None
) -> argparse.Namespace:
    """Return the options of a benchmark that measures a view of a standing cluster."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pods-per-second", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    """Serve until SIGTERM; pods change after SIGUSR1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--pods-per-second", type=float, default=20.0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
