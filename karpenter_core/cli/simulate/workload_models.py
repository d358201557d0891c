"""Fields of a workload file, as in `docs/reference/simulate.md`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from karpenter_core.api.cron_schedule import CronSchedule
from karpenter_core.api.durations import parse_duration
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.spelling import did_you_mean

__all__ = [
    "CronStep", "DeploymentSpec", "JobSpec", "PodSpec", "SineCurve", "Step", "WorkloadFile",
    "described",
]  # fmt: skip


_POD_FIELDS: Final = frozenset(
    [
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
        "workloadRef",
    ]
)
"""Fields of `spec` of a pod (API reference of Kubernetes 1.36)."""


def _seconds(value: object) -> float:
    """Read a duration as Go writes it, or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        try:
            seconds = parse_duration(str(value)) / timedelta(seconds=1)
        except ValueError:
            raise ValueError("must be a duration such as 90s or 8h30m") from None
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError("must not be negative")
    return seconds


def _longer_than_zero(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("must be longer than zero")
    return seconds


def _quantity(value: object) -> str:
    text = str(value)
    try:
        amount = parse_quantity(text)
    except ValueError:
        raise ValueError("must be a quantity such as 500m or 2Gi") from None
    if amount < 0:
        raise ValueError("must not be negative")
    return text


def _schedule(text: str) -> str:
    try:
        CronSchedule.parse(text)
    except BadInputError as error:
        raise ValueError(str(error)) from None
    return text


def _pod_fields(spec: dict[str, object]) -> dict[str, object]:
    """Refuse a field that no pod has: without a misspelt selector or toleration it costs something else."""
    for name in sorted(spec.keys() - _POD_FIELDS):
        raise ValueError(f'a pod has no field "{name}"{did_you_mean(name, _POD_FIELDS)}')
    return spec


_Seconds = Annotated[float, BeforeValidator(_seconds)]
_Period = Annotated[_Seconds, AfterValidator(_longer_than_zero)]
_Quantity = Annotated[str, BeforeValidator(_quantity)]
_Schedule = Annotated[str, AfterValidator(_schedule)]
_Replicas = Annotated[int, Field(ge=0, le=100_000)]


class _FileModel(BaseModel):
    """Base of the models: immutable, camelCase, unknown fields are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class PodSpec(_FileModel):
    """The pods of a Deployment or of a job."""

    cpu: _Quantity | None = None
    memory: _Quantity | None = None
    resources: dict[str, _Quantity] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    spec: Annotated[dict[str, object], AfterValidator(_pod_fields)] = Field(default_factory=dict)


class Step(_FileModel):
    """A number of replicas from a time on."""

    at: _Seconds
    replicas: _Replicas


class CronStep(_FileModel):
    """A number of replicas from each time of a schedule on."""

    schedule: _Schedule
    replicas: _Replicas


class SineCurve(_FileModel):
    """Replicas as an autoscaler sets them for a load that rises and falls."""

    low: _Replicas
    high: _Replicas
    period: _Period = 86400.0
    lowest_at: _Seconds = 0.0
    every: _Period = 300.0
    noise: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            message = f"low ({self.low}) is above high ({self.high})"
            raise ValueError(message)
        return self


class DeploymentSpec(PodSpec):
    """A Deployment and its replicas over time."""

    name: str
    namespace: str = "default"
    replicas: _Replicas | None = None
    steps: tuple[Step, ...] = ()
    cron: tuple[CronStep, ...] = ()
    sine: SineCurve | None = None
    max_unavailable: int | str | None = None
    min_available: int | str | None = None

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        if self.sine is not None and (self.steps or self.cron):
            raise ValueError("sine excludes steps and cron")
        if self.replicas is None and not (self.steps or self.cron or self.sine):
            raise ValueError("needs replicas, steps, cron or sine")
        if self.max_unavailable is not None and self.min_available is not None:
            raise ValueError("maxUnavailable excludes minAvailable")
        return self


class JobSpec(PodSpec):
    """Pods that run for a time and end."""

    name: str
    namespace: str = "default"
    pods: Annotated[int, Field(ge=1, le=100_000)] = 1
    duration: _Seconds
    at: _Seconds | None = None
    every: _Period | None = None
    cron: _Schedule | None = None

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.cron is not None and (self.at is not None or self.every is not None):
            raise ValueError("cron excludes at and every")
        return self


class WorkloadFile(_FileModel):
    """A document of a workload file."""

    deployments: tuple[DeploymentSpec, ...] = ()
    jobs: tuple[JobSpec, ...] = ()


_SHOWN: Final = 80
_MESSAGES: Final[dict[str, str]] = {
    "extra_forbidden": "unknown field",
    "missing": "missing",
}


def described(error: ValidationError) -> str:
    """Return the first error of a document: field, cause and value."""
    first = error.errors(include_url=False)[0]
    parts = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in first["loc"]]
    field = "".join(parts).lstrip(".")
    cause = first["msg"].removeprefix("Value error, ")
    text = _MESSAGES.get(first["type"], cause[:1].lower() + cause[1:])
    place = f'field "{field}": ' if field else ""
    value: object = first["input"]
    if first["type"] in _MESSAGES or isinstance(value, dict | list | tuple | BaseModel):
        return f"{place}{text}"
    return f"{place}{text}, not {str(value)[:_SHOWN]!r}"
