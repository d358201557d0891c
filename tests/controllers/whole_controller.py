"""Objects and helpers for tests that run a whole controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.dump import dump_file
from karpenter_provider_kwok.plugin import KwokProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

GROUP = "karpenter.kwok.sh"
NODE_CLASS: dict[str, Any] = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}


def node_pool(name: str = "general", *, disruption: dict[str, Any] | None = None, **spec: Any):
    """A NodePool of on-demand instances whose empty nodes are deleted at once."""
    template = {
        "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        ],
        **spec.pop("template", {}),
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": template},
            "disruption": disruption
            or {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
            **spec,
        },
    }


def deployment(name: str, replicas: int, *, cpu: str = "1", memory: str = "1Gi", **pod: Any):
    """A Deployment of pods that ask for a core."""
    requests = {"cpu": cpu, "memory": memory}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [
                        {"name": "web", "image": "nginx", "resources": {"requests": requests}}
                    ],
                    **pod,
                },
            },
        },
    }


def run_controller(
    folder: Path,
    scenario: Callable[[ControllerHarness], Awaitable[None]],
    *,
    arguments: Sequence[str] = (),
    plugins: Mapping[str, object] | None = None,
    **cluster: Any,
) -> None:
    """Run a scenario on an embedded cluster, in simulated time; `plugins` run with kwok's."""

    async def run_scenario() -> None:
        async with ControllerHarness(
            lambda: {"kwok": KwokProvider(), **(plugins or {})},
            folder=folder,
            arguments=arguments,
            **cluster,
        ) as harness:
            await scenario(harness)

    run_virtual(run_scenario())


def cloud(harness: ControllerHarness, folder: Path) -> dict[str, Any]:
    """Return the provider's own account of its instances and calls."""
    return dump_file(str(folder / "kwok.sqlite3"), now=harness.cluster.clock.now())
