"""Builds the manifests that the demo applies to a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import API_VERSION, CAPACITY_TYPE, NODE_POOL, ON_DEMAND, ZONE
from karpenter_core.errors import PluginError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["DEPLOYMENT", "NAME", "DemoManifests", "find_node_class"]

NAME: Final = "karpenter-demo"
"""Name of namespace, NodePool, NodeClass, taint and Lease of the demo."""

DEPLOYMENT: Final = "nginx"


def find_node_class(provider: str) -> type[NodeClass]:
    """Return the default NodeClass of a provider.

    Raises:
        SettingsError: that provider is not installed.
    """
    from karpenter_core.provider.host.manager import load_plugins

    try:
        return load_plugins(selected=[provider]).providers[provider].info.node_classes[0]
    except (PluginError, LookupError) as error:
        raise SettingsError(f"the demo needs the provider {provider}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoManifests:
    """The objects of the demo.

    The NodePool is tainted and the pods select it, so that the demo and other workloads of the
    cluster do not affect each other.
    """

    node_class: type[NodeClass]
    node_class_spec: Mapping[str, object] = field(default_factory=dict[str, object])
    capacity_types: tuple[str, ...] = (ON_DEMAND,)
    requirements: Sequence[Mapping[str, object]] = ()
    """Requirements of the NodePool besides the capacity types."""
    budget: str = "100%"
    """Disruption budget: nodes that may be disrupted at the same time."""
    pod_cpu: str = "1"
    is_spread: bool = False
    """Whether the pods are spread evenly over zones."""

    def namespace(self) -> dict[str, object]:
        """Return the namespace."""
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}

    def node_class_manifest(self) -> dict[str, object]:
        """Return the NodeClass."""
        resource = self.node_class.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": NAME},
            "spec": dict(self.node_class_spec),
        }

    def node_pool(self) -> dict[str, object]:
        """Return the NodePool: nodes for several pods, removed as soon as they are empty."""
        resource = self.node_class.resource
        reference = {"group": resource.group, "kind": resource.kind, "name": NAME}
        return {
            "apiVersion": API_VERSION,
            "kind": "NodePool",
            "metadata": {"name": NAME},
            "spec": {
                "template": {
                    "spec": {
                        "nodeClassRef": reference,
                        "requirements": [
                            {
                                "key": CAPACITY_TYPE,
                                "operator": "In",
                                "values": list(self.capacity_types),
                            },
                            *(dict(requirement) for requirement in self.requirements),
                        ],
                        "taints": [{"key": NAME, "effect": "NoSchedule"}],
                        "expireAfter": "Never",
                    }
                },
                "disruption": {
                    "consolidationPolicy": "WhenEmpty",
                    "consolidateAfter": "0s",
                    "budgets": [{"nodes": self.budget}],
                },
            },
        }

    def deployment(self) -> dict[str, object]:
        """Return the Deployment, without replicas."""
        labels = {"app": DEPLOYMENT}
        container = {
            "name": DEPLOYMENT,
            "image": "nginx",
            "resources": {"requests": {"cpu": self.pod_cpu, "memory": "1Gi"}},
        }
        pod: dict[str, object] = {
            "nodeSelector": {NODE_POOL: NAME},
            "tolerations": [{"key": NAME, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        if self.is_spread:
            pod["topologySpreadConstraints"] = [
                {
                    "topologyKey": ZONE,
                    "maxSkew": 1,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": labels},
                }
            ]
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": DEPLOYMENT, "namespace": NAME},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }
