"""Start a controller on a real control plane where many pods wait already.

What a restart in the middle of an incident looks like: thousands of pods that the scheduler has
given up on, and a controller that has to list them, plan for all of them and order instances, in a
container of limited memory. Measured are the seconds from leadership to the first NodeClaim and to
the last one of the first plan, and the most memory that the process ever held (VmHWM of Linux,
which counts every page it shares with others too: no address space limit, since mapped libraries
and reserved but unused pages are no memory).

    python -m benchmarks.startup                 14,800 pods; the gate is 512 MiB and 10 s
    python -m benchmarks.startup --pods 5000

With `--provider` it is another question: what a provider and its SDK add to the start of a controller
that has nothing to do yet (benchmarks.provider_startup).

    python -m benchmarks.startup --provider alibabacloud aws
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import provider_startup
from benchmarks.scale_up import create, install
from karpenter_core.kube import resources
from karpenter_core.testing.cluster import ClusterClient, ClusterMirror
from karpenter_core.testing.scenarios import InitialObjects, ScenarioNodePool
from tests.support.controller import ControllerProcess
from tests.support.local_clusters import RealLocalCluster
from tests.support.processes import wait_until
from tests.support.runner import NODE_CLAIMS

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster
    from tests.support.processes import ChildProcess

__all__ = ["PODS", "StartupFigures", "measure", "wait_for_start", "waiting_pods"]

ROOT: Final = Path(__file__).resolve().parents[1]
PODS: Final = 14_800
MOST_MIB: Final = 512.0
MOST_SECONDS: Final = 10.0
AT_ONCE: Final = 48
LIMIT_SECONDS: Final = 900.0
SETTLE_SECONDS: Final = 15.0
"""The time for which memory is watched after the last claim, for its launch, node and nominations."""
NEVER: Final = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
LARGE: Final = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Gt", "values": ["31"]}
"""Instances of a size that clusters of so many pods have."""
ZONE: Final = "topology.kubernetes.io/zone"
LEADING: Final = "became the leader"

_SIZES: Final = (
    ("100m", "256Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("500m", "2Gi"),
    ("1", "2Gi"), ("1", "4Gi"), ("2", "4Gi"), ("4", "8Gi"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupFigures:
    """The figures of one start; seconds count from the moment of leadership."""

    pods: int
    first_claim_seconds: float
    last_claim_seconds: float
    claims: int
    peak_mib: float
    leaderships: int
    """More than one when the loop was so busy that the lease was lost."""

    @property
    def is_steady(self) -> bool:
        """Whether the process stayed the leader and within its memory."""
        return self.leaderships == 1 and self.peak_mib < MOST_MIB

    @property
    def holds(self) -> bool:
        """Whether the gate is held."""
        return self.is_steady and self.first_claim_seconds <= MOST_SECONDS


async def waiting_pods(client: ClusterClient, count: int) -> None:
    """Create pods of eight sizes and wait until the scheduler has given up on each of them."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turns:
            await client.create(resources.PODS, _pod(number))

    await asyncio.gather(*map(one, range(count)))

    async def all_wait() -> bool:
        return sum(map(_is_given_up, await client.list(resources.PODS))) >= count

    await wait_until(all_wait, seconds=LIMIT_SECONDS, interval_seconds=3.0)


async def wait_for_start(controller: ChildProcess, mirror: ClusterMirror) -> StartupFigures:
    """Wait until the first plan is carried out and has settled; tell what that took."""

    async def planned() -> bool:
        return _planned_claims(controller) is not None

    await controller.ready(planned, seconds=LIMIT_SECONDS)
    expected = _planned_claims(controller) or 0

    async def all_seen() -> bool:
        return len(mirror.ever(NODE_CLAIMS)) >= expected

    await controller.ready(all_seen, seconds=LIMIT_SECONDS)
    until = time.monotonic() + SETTLE_SECONDS

    async def settled() -> bool:
        return time.monotonic() >= until

    await controller.ready(settled, seconds=LIMIT_SECONDS)
    leading = _moment(controller, LEADING)
    clock = time.time() - asyncio.get_running_loop().time()
    seen = [clock + record.first_seen - leading for record in mirror.ever(NODE_CLAIMS)][:expected]
    return StartupFigures(
        pods=_planned_pods(controller),
        first_claim_seconds=min(seen),
        last_claim_seconds=max(seen),
        claims=len(seen),
        peak_mib=controller.peak_memory_bytes() / 2**20,
        leaderships=len(_lines(controller, LEADING)),
    )


async def measure(pods: int, local_cluster: LocalCluster) -> StartupFigures:
    """Start once, on a fresh cluster, which is started and ended."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        await stack.enter_async_context(local_cluster)
        client = await stack.enter_async_context(ClusterClient(local_cluster.kubeconfig))
        await install(client, [ROOT / "crds"])
        pool = ScenarioNodePool(name="general", disruption=NEVER, requirements=[LARGE])
        for manifest in InitialObjects(node_pools=[pool]).objects():
            await create(client, manifest)
        await waiting_pods(client, pods)
        mirror = await stack.enter_async_context(ClusterMirror(client, [NODE_CLAIMS]))
        controller = ControllerProcess(
            "karpenter",
            kubeconfig=local_cluster.kubeconfig,
            folder=folder,
            options={"providers": "kwok", "kwok-state-file": str(folder / "cloud.sqlite3")},
            environment=os.environ,
        )
        await controller.start(wait=False)
        stack.push_async_callback(controller.process.stop)
        return await wait_for_start(controller.process, mirror)


def _pod(number: int) -> dict[str, Any]:
    """Return a pod of one of eight applications; a few of them are spread or choosy."""
    kind = number % len(_SIZES)
    cpu, memory = _SIZES[kind]
    app = f"app-{kind}"
    requests = {"cpu": cpu, "memory": memory}
    container: dict[str, Any] = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "env": [{"name": f"VARIABLE_{n}", "value": f"value-{n}"} for n in range(10)],
        "resources": {"requests": requests, "limits": requests},
    }
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    if kind in {0, 3}:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }
        ]
    if kind == 5:
        spec["nodeSelector"] = {"karpenter.sh/capacity-type": "on-demand"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app}-{number:05d}",
            "namespace": "default",
            "labels": {"app": app, "app.kubernetes.io/part-of": "startup"},
        },
        "spec": spec,
    }


def _is_given_up(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def _lines(controller: ChildProcess, message: str) -> list[dict[str, Any]]:
    """Return the controller's log lines with this message."""
    lines = (line for line in controller.log_text().splitlines() if message in line)
    return [found for found in map(json.loads, lines) if found["message"] == message]


def _moment(controller: ChildProcess, message: str) -> float:
    return datetime.fromisoformat(_lines(controller, message)[0]["time"]).timestamp()


def _planned_claims(controller: ChildProcess) -> int | None:
    plans = _lines(controller, "computed a plan")
    return int(plans[0]["nodeclaims"]) if plans else None


def _planned_pods(controller: ChildProcess) -> int:
    found = re.match(r"\d+", _lines(controller, "computed a plan")[0]["cause"])
    return int(found[0]) if found else 0


def main() -> None:
    """Measure, print the figures, fail when a gate is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--kubernetes", default="1.36", help="minor of the control plane")
    parser.add_argument(
        "--provider",
        nargs="+",
        choices=provider_startup.SDKS,
        help="what these providers add; ratios are to the last one",
    )
    parser.add_argument("--runs", type=int, default=5, help="of each provider; medians are told")
    options = parser.parse_args()
    if options.provider:
        measured = provider_startup.measure(options.provider, options.runs)
        for row in provider_startup.as_rows(measured):
            print(json.dumps(row))
        sys.exit(0 if all(map(provider_startup.holds, measured)) else 1)
    found = asyncio.run(measure(options.pods, RealLocalCluster(options.kubernetes)))
    print(json.dumps({**asdict(found), "holds": found.holds}))
    sys.exit(0 if found.holds else 1)


if __name__ == "__main__":
    main()
