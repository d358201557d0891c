"""Measures the seconds and memory that a provider adds to a controller's start.

For each provider, first in a bare process that has the core's own modules already: the import of the
whole provider with the clients of its SDK. Then `karpenter run` against the provider's simulated cloud
and the embedded API server: seconds from the start of the process until it says that it is ready and
until a NodeClass is, which takes the SDK, and what is resident a while after that.

"Not compiled" is an image whose SDK came without byte code, and where none may be written: everything
but the SDK is compiled. Runs of all kinds take turns, and medians are told.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.scale_up import install
from karpenter_core.cli.demo.cloud_scenario import controller_environment
from karpenter_core.cli.demo.demo_kubelets import find_simulated_cloud
from karpenter_core.cli.demo.demo_manifests import find_node_class
from karpenter_core.kube.resources import custom_kind
from karpenter_core.testing.cluster import ClusterClient
from karpenter_core.testing.scenarios import ScenarioNodePool
from tests.support.controller import ControllerProcess
from tests.support.local_clusters import EmbeddedLocalCluster
from tests.support.runner import NODE_POOLS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["SDKS", "ImportCost", "StartCost", "StartupFigures", "as_rows", "holds", "measure"]

ROOT: Final = Path(__file__).resolve().parents[1]
MOST_IMPORT_SECONDS: Final = 1.0
MOST_IMPORT_MIB: Final = 100.0
LIMIT_SECONDS: Final = 300.0
SETTLE_SECONDS: Final = 10.0
"""The idle time after the NodeClass is ready, in which the controller reads catalogue and prices."""


@dataclass(frozen=True, slots=True)
class SdkVariant:
    """The import of a provider's SDK, and its packages."""

    clients: str
    """Python that loads whatever calls of all its services take."""
    packages: tuple[str, ...]
    """Beginnings of the names of its packages."""


SDKS: Final = {
    "alibabacloud": SdkVariant(
        "from karpenter_provider_alibabacloud.credentials import find_credential\n"
        "from karpenter_provider_alibabacloud.sdk_caller import SdkCaller, ServiceEndpoint\n"
        "names = ('ALIBABA_CLOUD_ACCESS_KEY_ID', 'ALIBABA_CLOUD_ACCESS_KEY_SECRET')\n"
        "keys = find_credential(dict.fromkeys(names, 'any'))\n"
        "seconds = dict.fromkeys(('connect_seconds', 'read_seconds', 'launch_read_seconds'), 1)\n"
        "for service in ('ecs', 'vpc', 'cs'):\n"
        "    endpoint = ServiceEndpoint(region='cn-hangzhou', network='public', address='', protocol='')\n"
        "    SdkCaller(service, endpoint, credential=keys, connections=1, **seconds)\n",
        ("alibabacloud_", "darabonba", "Tea"),
    ),
    "aws": SdkVariant(
        # botocore reads what a service is like when its client is made.
        "from karpenter_provider_aws.sdk import CloudClients\n"
        "clients = CloudClients(region='us-east-1')\n"
        "clients.ec2, clients.iam, clients.eks, clients.sqs, clients.ssm, clients.pricing\n",
        ("botocore", "jmespath"),
    ),
    "azure": SdkVariant(
        "from azure.identity import DefaultAzureCredential\n"
        "from azure.mgmt.core import ARMPipelineClient\n"
        "DefaultAzureCredential(), ARMPipelineClient('https://any', policies=[])\n",
        ("azure", "isodate", "msal", "requests"),
    ),
}

_CACHE: Final = "PYTHONPYCACHEPREFIX"
_WRITE_NOTHING: Final = "PYTHONDONTWRITEBYTECODE"

_PROBE: Final = """
import json, time
import karpenter_core.cli.main, karpenter_core.operator.process

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024

memory, started, cpu_started = resident_mib(), time.perf_counter(), time.process_time()
import karpenter_provider_{name}.plugin, karpenter_provider_{name}.started_provider
{clients}
print(json.dumps({{
    "seconds": time.perf_counter() - started,
    "cpu_seconds": time.process_time() - cpu_started,
    "resident_mib": resident_mib() - memory}}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCost:
    """The cost of a provider's import, SDK included, beyond what the core had loaded."""

    seconds: float
    cpu_seconds: float
    resident_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCost:
    """The cost of one controller's start; seconds count from the start of its process."""

    ready_seconds: float
    ready_cpu_seconds: float
    usable_seconds: float
    """Until a NodeClass was ready."""
    usable_cpu_seconds: float
    resident_mib: float
    peak_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupFigures:
    """The runs of one provider, of one kind."""

    provider: str
    compiled: bool
    imported: Sequence[ImportCost]
    started: Sequence[StartCost]


def holds(figures: StartupFigures) -> bool:
    """Tell whether a provider with compiled SDK is loaded within a second of CPU and 100 MiB.

    CPU time is what a warm import takes on a machine that has nothing else to do.
    """
    return not figures.compiled or (
        median(each.cpu_seconds for each in figures.imported) < MOST_IMPORT_SECONDS
        and median(each.resident_mib for each in figures.imported) < MOST_IMPORT_MIB
    )


def as_rows(all_figures: Sequence[StartupFigures]) -> list[dict[str, Any]]:
    """Return the medians of each provider and kind, and what they are to those of the last provider."""
    base = {each.compiled: _medians(each) for each in all_figures}
    rows: list[dict[str, Any]] = []
    for each in all_figures:
        found = _medians(each)
        ratios = {name: found[name] / base[each.compiled][name] for name in found}
        rows.append(
            {
                "provider": each.provider,
                "compiled": each.compiled,
                "runs": len(each.started),
                **{name: round(value, 2) for name, value in found.items()},
                "ratio": {name: round(value, 2) for name, value in ratios.items()},
                "holds": holds(each),
            }
        )
    return rows


def _medians(figures: StartupFigures) -> dict[str, float]:
    found: dict[str, float] = {}
    for prefix, runs in (("import_", figures.imported), ("", figures.started)):
        for name in asdict(runs[0]):
            found[f"{prefix}{name}"] = median(getattr(run, name) for run in runs)
    return found


def measure_import(provider: str, environment: Mapping[str, str]) -> ImportCost:
    """Load a provider and its SDK in a process of its own."""
    program = _PROBE.format(name=provider, clients=SDKS[provider].clients)
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=dict(environment),
        timeout=LIMIT_SECONDS,
    )
    return ImportCost(**json.loads(done.stdout))


async def measure_start(provider: str, environment: Mapping[str, str]) -> StartCost:
    """Start a controller for one provider on a fresh API server and a fresh simulated cloud."""
    model = find_node_class(provider)
    async with AsyncExitStack() as stack:
        cloud = stack.enter_context(find_simulated_cloud(provider))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        local_cluster = await stack.enter_async_context(EmbeddedLocalCluster())
        client = await stack.enter_async_context(ClusterClient(local_cluster.kubeconfig))
        await install(client, [ROOT / "crds"])
        await client.create(custom_kind(model.resource), _node_class(model, cloud.node_class_spec))
        await client.create(NODE_POOLS, _pool(model))
        controller = ControllerProcess(
            "karpenter",
            kubeconfig=local_cluster.kubeconfig,
            folder=folder,
            options={"providers": provider, "disable-leader-election": "true"},
            environment={**environment, **controller_environment(cloud)},
        )
        started = time.monotonic()
        await controller.start(wait=False)
        stack.push_async_callback(controller.process.stop)
        await controller.process.ready(controller.is_ready, seconds=LIMIT_SECONDS)
        ready, ready_cpu = time.monotonic() - started, controller.process.cpu_seconds()

        async def is_usable() -> bool:
            return any(map(_is_ready, await client.list(custom_kind(model.resource))))

        await controller.process.ready(is_usable, seconds=LIMIT_SECONDS)
        usable, usable_cpu = time.monotonic() - started, controller.process.cpu_seconds()
        await asyncio.sleep(SETTLE_SECONDS)
        return StartCost(
            ready_seconds=ready,
            ready_cpu_seconds=ready_cpu,
            usable_seconds=usable,
            usable_cpu_seconds=usable_cpu,
            resident_mib=controller.process.memory_bytes() / 2**20,
            peak_mib=controller.process.peak_memory_bytes() / 2**20,
        )


def _node_class(model: type[NodeClass], spec: Mapping[str, object]) -> dict[str, Any]:
    return {
        "apiVersion": model.resource.api_version,
        "kind": model.resource.kind,
        "metadata": {"name": "default"},
        "spec": dict(spec),
    }


def _pool(model: type[NodeClass]) -> dict[str, Any]:
    resource = model.resource
    return ScenarioNodePool(
        name="general", node_class_group=resource.group, node_class_kind=resource.kind
    ).manifest()


def _is_ready(manifest: Mapping[str, Any]) -> bool:
    conditions = manifest.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def environments(provider: str, folder: Path) -> dict[bool, dict[str, str]]:
    """Return the variables of processes whose SDK is compiled, and of such whose SDK is not.

    Byte code is kept in folders of its own; those of the SDK are taken out of the second one.
    """
    compiled, source = folder / f"{provider}-compiled", folder / f"{provider}-source"
    others = {name: value for name, value in os.environ.items() if name != _WRITE_NOTHING}
    writing = {**others, _CACHE: str(compiled)}
    measure_import(provider, writing)
    asyncio.run(measure_start(provider, writing))
    shutil.copytree(compiled, source)
    for package in [*source.rglob("site-packages/*")]:
        if package.name.startswith(SDKS[provider].packages):
            shutil.rmtree(package) if package.is_dir() else package.unlink()
    return {
        is_compiled: {**others, _CACHE: str(cache), _WRITE_NOTHING: "1"}
        for is_compiled, cache in ((True, compiled), (False, source))
    }


def measure(providers: Sequence[str], runs: int) -> list[StartupFigures]:
    """Measure all providers, in turns; compiled SDKs come first."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        kinds = [
            (provider, is_compiled, environment)
            for provider in providers
            for is_compiled, environment in environments(provider, Path(folder)).items()
        ]
        imported: dict[tuple[str, bool], list[ImportCost]] = {}
        started: dict[tuple[str, bool], list[StartCost]] = {}
        for _ in range(runs):
            for provider, is_compiled, environment in kinds:
                key = (provider, is_compiled)
                imported.setdefault(key, []).append(measure_import(provider, environment))
                found = asyncio.run(measure_start(provider, environment))
                started.setdefault(key, []).append(found)
    return [
        StartupFigures(
            provider=key[0], compiled=key[1], imported=imported[key], started=started[key]
        )
        for key in imported
    ]
