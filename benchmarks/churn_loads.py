"""The loads and the policies of the simulated churn, and the objects that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import cos, pi
from typing import TYPE_CHECKING, Any

from karpenter_core.api.labels import SAVINGS_FLOOR

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LOADS", "NONE", "POLICIES", "STEP", "Policy", "ServiceLoad", "node_pool", "wave"]

GROUP = "karpenter.kwok.sh"
STEP = timedelta(minutes=10)
"""The interval at which the load may change."""


@dataclass(frozen=True, kw_only=True)
class ServiceLoad:
    """A Deployment, and how many replicas it has at each step of ten minutes."""

    name: str
    cpu: str
    memory: str
    replicas: Callable[[int], int]
    is_stateful: bool = False

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Deployment, and for stateful pods the budget that lets one go at a time."""
        labels = {"app": self.name}
        requests = {"cpu": self.cpu, "memory": self.memory}
        container = {"name": "app", "image": "app", "resources": {"requests": requests}}
        metadata = {"name": self.name, "namespace": "default"}
        made: list[dict[str, Any]] = [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": metadata,
                "spec": {
                    "replicas": self.replicas(0),
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [container]},
                    },
                },
            }
        ]
        if self.is_stateful:
            made.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": metadata,
                    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
                }
            )
        return made


def _still(count: int) -> Callable[[int], int]:
    return lambda _step: count


def _zigzag(count: int, *, phase: int = 0) -> Callable[[int], int]:
    """One more, one less, and so on."""
    return lambda step: count + (step + phase) % 2


def _wave(low: int, high: int, *, period: timedelta) -> Callable[[int], int]:
    """Go from low to high and back."""
    steps = period / STEP
    return lambda step: round(low + (high - low) * (1 - cos(2 * pi * step / steps)) / 2)


def wave(period: timedelta) -> tuple[ServiceLoad, ...]:
    """Return services of which two go up and down together."""
    return (
        ServiceLoad(name="web", cpu="900m", memory="1500Mi", replicas=_wave(10, 60, period=period)),
        ServiceLoad(name="api", cpu="1900m", memory="3Gi", replicas=_wave(4, 16, period=period)),
        ServiceLoad(name="jobs", cpu="400m", memory="3500Mi", replicas=_still(15)),
    )


LOADS: dict[str, tuple[ServiceLoad, ...]] = {
    "hpa": (
        ServiceLoad(name="web", cpu="900m", memory="1500Mi", replicas=_zigzag(24)),
        ServiceLoad(name="api", cpu="1900m", memory="3Gi", replicas=_zigzag(9, phase=1)),
        ServiceLoad(name="jobs", cpu="400m", memory="3500Mi", replicas=_still(15)),
    ),
    "day-night": wave(timedelta(days=1)),
    "redis-flap": (
        ServiceLoad(
            name="redis", cpu="8", memory="200G", replicas=_zigzag(6, phase=1), is_stateful=True
        ),
        ServiceLoad(name="web", cpu="500m", memory="1Gi", replicas=_zigzag(8)),
    ),
}

Policy = tuple[dict[str, Any], dict[str, str]]
"""`spec.disruption` of the NodePool, and its annotations."""


def _policy(name: str, *, after: str = "1m", **annotations: str) -> Policy:
    disruption = {"consolidationPolicy": name, "consolidateAfter": after}
    return disruption, {key.replace("_", "-"): value for key, value in annotations.items()}


NONE = "none"
POLICIES: dict[str, Policy] = {
    NONE: _policy("WhenEmpty", after="Never"),
    "WhenEmpty": _policy("WhenEmpty"),
    "WhenEmptyOrUnderutilized": _policy("WhenEmptyOrUnderutilized"),
    "Balanced": _policy("Balanced"),
    "floor 10%": (_policy("WhenEmptyOrUnderutilized")[0], {SAVINGS_FLOOR: "10%"}),
}


def node_pool(policy: Policy) -> list[dict[str, Any]]:
    """Return a NodePool of on-demand instances with a policy, and its NodeClass."""
    disruption, annotations = policy
    ref = {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"}
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    return [
        {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
            "spec": {},
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "general", "annotations": annotations},
            "spec": {
                "template": {"spec": {"nodeClassRef": ref, "requirements": [on_demand]}},
                "disruption": {**disruption, "budgets": [{"nodes": "100%"}]},
            },
        },
    ]
