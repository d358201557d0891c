"""Converts VerticalPodAutoscalers from raw JSON to views."""

from __future__ import annotations

import msgspec

from karpenter_core.api.autoscalers import (
    ContainerScaling,
    StartupBoost,
    VerticalPodAutoscalerView,
)
from karpenter_core.api.labels import CPU
from karpenter_core.kube.wire.raw import Amount, Amounts, RawMeta
from karpenter_core.kube.wire.requests import amounts

__all__ = ["RawVerticalPodAutoscaler", "vertical_pod_autoscaler_view"]

_OFF = "Off"
_FACTOR, _QUANTITY = "Factor", "Quantity"


class _Target(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class _CpuBoost(msgspec.Struct):
    type: str = ""
    factor: int | None = None
    quantity: Amount | None = None


class _Boost(msgspec.Struct):
    cpu: _CpuBoost | None = None


class _UpdatePolicy(msgspec.Struct, rename="camel"):
    update_mode: str | None = None


class _ContainerPolicy(msgspec.Struct, rename="camel"):
    container_name: str = ""
    mode: str | None = None
    min_allowed: Amounts | None = None
    max_allowed: Amounts | None = None
    controlled_resources: list[str] | None = None
    startup_boost: _Boost | None = None


class _ResourcePolicy(msgspec.Struct, rename="camel"):
    container_policies: list[_ContainerPolicy] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    target_ref: _Target | None = None
    update_policy: _UpdatePolicy | None = None
    resource_policy: _ResourcePolicy | None = None
    startup_boost: _Boost | None = None


class _ContainerRecommendation(msgspec.Struct, rename="camel"):
    container_name: str = ""
    target: Amounts | None = None


class _Recommendation(msgspec.Struct, rename="camel"):
    container_recommendations: list[_ContainerRecommendation] | None = None


class _Status(msgspec.Struct):
    recommendation: _Recommendation | None = None


class RawVerticalPodAutoscaler(msgspec.Struct):
    """The fields of a VerticalPodAutoscaler that decide the requests of pods."""

    metadata: RawMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


def vertical_pod_autoscaler_view(raw: RawVerticalPodAutoscaler) -> VerticalPodAutoscalerView:
    """Read a VerticalPodAutoscaler."""
    meta, spec = raw.metadata, raw.spec
    target = spec.target_ref or _Target()
    policies = spec.resource_policy.container_policies if spec.resource_policy else None
    recommendation = raw.status.recommendation if raw.status else None
    found = recommendation.container_recommendations if recommendation else None
    return VerticalPodAutoscalerView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        created=meta.creation_timestamp,
        target_group=target.api_version.rpartition("/")[0],
        target_kind=target.kind,
        target_name=target.name,
        is_off=spec.update_policy is not None and spec.update_policy.update_mode == _OFF,
        policies=tuple(_policy(policy) for policy in policies or ()),
        startup_boost=_boost(spec.startup_boost),
        targets={one.container_name: amounts(one.target) for one in found or ()},
    )


def _policy(raw: _ContainerPolicy) -> ContainerScaling:
    controlled = raw.controlled_resources
    return ContainerScaling(
        container=raw.container_name,
        is_off=raw.mode == _OFF,
        controlled=None if controlled is None else tuple(controlled),
        minimum=amounts(raw.min_allowed),
        maximum=amounts(raw.max_allowed),
        startup_boost=_boost(raw.startup_boost),
    )


def _boost(raw: _Boost | None) -> StartupBoost | None:
    if raw is None:
        return None
    cpu = raw.cpu or _CpuBoost()
    if cpu.type == _FACTOR and cpu.factor is not None:
        return StartupBoost(factor=max(cpu.factor, 1))
    if cpu.type == _QUANTITY and cpu.quantity is not None:
        return StartupBoost(added=amounts({CPU: cpu.quantity})[CPU])
    return StartupBoost()
