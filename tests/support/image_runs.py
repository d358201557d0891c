"""Runs `karpenter run` of an image against the embedded API server and a simulated cloud."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from images.run import ENVIRONMENT
from karpenter_core.cli.demo.demo_kubelets import DemoKubelets, find_simulated_cloud
from karpenter_core.cli.demo.demo_manifests import find_node_class
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.resources import custom_kind
from karpenter_core.operator.clock import SystemClock
from karpenter_core.testing.expectations import CloudAccount
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.support.local_clusters import EmbeddedLocalCluster
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.provider.kit.demo_cloud import DemoCloud
    from tests.support.controller import ControllerProcess
    from tests.support.local_clusters import LocalCluster

__all__ = ["PODS", "ImageRun", "image_environment", "run_image"]

ROOT: Final = Path(__file__).resolve().parents[2]
CRDS: Final = tuple(sorted((ROOT / "crds").glob("*.yaml")))
CACHE: Final = "/var/cache/karpenter"
PODS: Final = 3
LIMIT_SECONDS: Final = 120.0
END_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRun:
    """The figures of one run, and how the process was restricted and ended."""

    ready_seconds: float
    ready_cpu_seconds: float
    """CPU time of the program until its ready probe answered."""
    idle_mib: float
    """Resident, with the NodeClass ready and nothing to do."""
    used_mib: float
    """Resident, after pods became nodes."""
    nodes: int
    status: Mapping[str, str]
    """Fields of /proc/PID/status while it ran."""
    libraries: frozenset[str]
    """File names of the libraries that it had loaded with nothing to do."""
    exit_code: int
    log: str

    def figures(self) -> str:
        """Return start and memory in one line."""
        return (
            f"ready in {self.ready_seconds:.2f} s ({self.ready_cpu_seconds:.2f} s CPU), "
            f"{self.idle_mib:.1f} MiB idle, {self.used_mib:.1f} MiB with {self.nodes} nodes"
        )


class _OutsideCloud:
    """A cloud that the runner need not know: what it launched is seen by its Nodes."""

    def options(self, folder: Path) -> Mapping[str, str]:
        del folder
        return {}

    async def account(self, folder: Path) -> CloudAccount:
        del folder
        return CloudAccount()

    def suffer(self, folder: Path, faults: Sequence[dict[str, Any]]) -> None:
        raise NotImplementedError


class _KwokInImage(_OutsideCloud):
    """The cloud of the provider kwok, kept where the image may write."""

    def options(self, folder: Path) -> Mapping[str, str]:
        del folder
        return {"kwok-state-file": f"{CACHE}/cloud.sqlite3"}


def image_environment() -> dict[str, str]:
    """Return the variables that the Dockerfile sets."""
    text = (ROOT / "images" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = re.findall(r"^ENV (.*)$", text, re.MULTILINE)
    return dict(word.split("=", 1) for line in lines for word in line.split())


async def run_image(
    provider: str, *, base: Path, layer: Path, folder: Path, settle_seconds: float = 5.0
) -> ImageRun:
    """Start the image's program, let pods become nodes, and end it by SIGTERM."""
    model = find_node_class(provider)
    async with AsyncExitStack() as stack:
        cloud = None
        if provider != "kwok":
            cloud = stack.enter_context(find_simulated_cloud(provider))
        local_cluster = await stack.enter_async_context(EmbeddedLocalCluster())
        _let_others_read(local_cluster)
        world = await stack.enter_async_context(
            ScenarioWorld(
                local_cluster,
                _KwokInImage() if cloud is None else _OutsideCloud(),
                folder,
                crds=CRDS,
                kinds=[custom_kind(model.resource)],
            )
        )
        await world.create(_node_class(model, {} if cloud is None else cloud.node_class_spec))
        resource = model.resource
        pool = ScenarioNodePool(
            name="general", node_class_group=resource.group, node_class_kind=resource.kind
        )
        await world.create(pool.manifest())
        if cloud is not None:
            await _register_instances(stack, local_cluster, cloud)
        controller = _controller(world, provider, cloud, base=base, layer=layer, folder=folder)
        started = time.monotonic()
        await controller.start(wait=False)
        process = controller.process
        await process.ready(controller.is_ready, seconds=LIMIT_SECONDS)
        ready_seconds, cpu_seconds = time.monotonic() - started, process.cpu_seconds()

        async def is_usable() -> bool:
            return any(map(_is_ready, await world.client.list(custom_kind(model.resource))))

        await process.ready(is_usable, seconds=LIMIT_SECONDS)
        await asyncio.sleep(settle_seconds)
        idle_bytes = process.memory_bytes()
        text = (Path("/proc") / str(process.pid) / "status").read_text()
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        mapped = (Path("/proc") / str(process.pid) / "maps").read_text()
        libraries = frozenset(re.findall(r"/([^/\n]+\.so[^/\n]*)$", mapped, re.MULTILINE))
        deployment = ScenarioDeployment(name="web", replicas=PODS, cpu="1", memory="1Gi")
        await world.create(deployment.manifest())
        running = ExpectedPods(running=CountBounds(at_least=PODS, at_most=PODS))
        await world.expect(
            Expectation(
                within=timedelta(seconds=LIMIT_SECONDS),
                pods=running,
                nodes=CountBounds(at_least=1),
            )
        )
        used_bytes, nodes = process.memory_bytes(), len(world.observe().nodes)
        process.signal(signal.SIGTERM)
        exit_code = await process.wait(END_SECONDS)
        world.expendable.add("karpenter")
        return ImageRun(
            ready_seconds=ready_seconds,
            ready_cpu_seconds=cpu_seconds - _entering_cpu_seconds(process.log_text()),
            idle_mib=idle_bytes / 2**20,
            used_mib=used_bytes / 2**20,
            nodes=nodes,
            status=status,
            libraries=libraries,
            exit_code=exit_code,
            log=process.log_text(),
        )


def _controller(
    world: ScenarioWorld,
    provider: str,
    cloud: DemoCloud | None,
    *,
    base: Path,
    layer: Path,
    folder: Path,
) -> ControllerProcess:
    given = {**image_environment(), "CLUSTER_NAME": "demo"}
    given |= {} if cloud is None else cloud.environment
    files = [world.local_cluster.kubeconfig.parent, *_named_paths(given)]
    environment = {**os.environ, **given}
    options = {
        "providers": provider,
        "cache-folder": CACHE,
        **({} if cloud is None else {"currency": cloud.currency}),
    }
    command = image_command(base, layer, folder / "root", mounts=files, variables=tuple(given))
    return world.add_controller(options=options, command=(*command, "run"), environment=environment)


def image_command(
    base: Path, layer: Path, root: Path, *, mounts: Sequence[Path], variables: Sequence[str]
) -> tuple[str, ...]:
    """Return the command that starts the program of an image; its arguments follow."""
    command = [sys.executable, "-m", "images.run"]
    command += [f"--base={base}", f"--layer={layer}", f"--root={root}"]
    command += [f"--mount={path}" for path in mounts]
    command += [f"--env={name}" for name in variables]
    return (*command, "--")


def _named_paths(environment: Mapping[str, str]) -> list[Path]:
    """Return the files of this machine that variables name, such as a certificate of the cloud."""
    paths = (Path(value) for value in environment.values() if value.startswith("/"))
    return [path for path in paths if path.exists() and str(path) not in {CACHE, *ENVIRONMENT}]


def _let_others_read(local_cluster: LocalCluster) -> None:
    local_cluster.kubeconfig.parent.chmod(0o755)
    local_cluster.kubeconfig.chmod(0o644)


def _entering_cpu_seconds(log: str) -> float:
    found = re.search(r"entered the image after ([\d.]+) s", log)
    if found is None:
        raise ValueError(f"the image was never entered: {log[:500]}")
    return float(found[1])


async def _register_instances(
    stack: AsyncExitStack, local_cluster: LocalCluster, cloud: DemoCloud
) -> None:
    """Do what kubelets and the cloud's controller do."""
    clock = SystemClock()
    api = KubeApi(await connect(kubeconfig=str(local_cluster.kubeconfig), clock=clock), clock=clock)
    stack.push_async_callback(api.close)
    task = asyncio.create_task(DemoKubelets(cloud, api).run())

    async def end() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(end)


def _node_class(model: type[Any], spec: Mapping[str, object]) -> dict[str, Any]:
    return {
        "apiVersion": model.resource.api_version,
        "kind": model.resource.kind,
        "metadata": {"name": "default"},
        "spec": dict(spec),
    }


def _is_ready(manifest: Mapping[str, Any]) -> bool:
    conditions = manifest.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
