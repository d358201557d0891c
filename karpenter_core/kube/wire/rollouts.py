"""Converts Deployments from raw JSON to the view of their rollout."""

from __future__ import annotations

from typing import Final

import msgspec

from karpenter_core.api.records import LabelSelector
from karpenter_core.api.rollouts import RolloutView
from karpenter_core.errors import BadInputError
from karpenter_core.kube.wire.raw import RawGenerationMeta, RawSelector
from karpenter_core.kube.wire.selectors import label_selector

__all__ = ["read_rollout"]

_DEFAULT_LIMIT: Final = "25%"  # Kubernetes' default of both limits of a rolling update
_ROLLING: Final = "RollingUpdate"


class _Limits(msgspec.Struct, rename="camel"):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class _Strategy(msgspec.Struct, rename="camel"):
    type: str = _ROLLING
    rolling_update: _Limits | None = None


class _Spec(msgspec.Struct, rename="camel"):
    selector: RawSelector
    replicas: int | None = None
    strategy: _Strategy = msgspec.field(default_factory=_Strategy)
    paused: bool = False


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[_Condition, ...] | None = None


class _Deployment(msgspec.Struct):
    metadata: RawGenerationMeta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_decoder: Final = msgspec.json.Decoder(_Deployment)


def read_rollout(body: bytes) -> RolloutView:
    """Read the rollout of a Deployment.

    Raises:
        BadInputError: it cannot be read, naming the field.
    """
    try:
        raw = _decoder.decode(body)
        replicas = 1 if raw.spec.replicas is None else raw.spec.replicas
        surge, unavailable = _rolling_limits(raw.spec.strategy, replicas)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInputError(f"Deployment: {error}") from error
    meta, status = raw.metadata, raw.status
    return RolloutView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        selector=label_selector(raw.spec.selector) or LabelSelector(),
        replicas=replicas,
        strategy=raw.spec.strategy.type,
        surge=surge,
        unavailable=unavailable,
        paused=raw.spec.paused,
        is_deleting=meta.deletion_timestamp is not None,
        is_settled=(
            status.observed_generation >= meta.generation
            and status.updated_replicas >= replicas
            and status.replicas <= status.updated_replicas
            and status.available_replicas >= status.updated_replicas
        ),
        is_stuck=any(
            one.type == "Progressing"
            and one.status == "False"
            and one.reason == "ProgressDeadlineExceeded"
            for one in status.conditions or ()
        ),
    )


def _rolling_limits(strategy: _Strategy, replicas: int) -> tuple[int, int]:
    """Return how many pods more and less than wanted a rollout may have, as its controller counts."""
    if strategy.type != _ROLLING:
        return 0, 0
    limits = strategy.rolling_update or _Limits()
    surge = _resolved(limits.max_surge, "maxSurge", replicas, up=True)
    unavailable = _resolved(limits.max_unavailable, "maxUnavailable", replicas, up=False)
    # Without either, the controller could replace no pod, so that it lets one be unavailable.
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _resolved(value: int | str | None, field: str, replicas: int, *, up: bool) -> int:
    value = _DEFAULT_LIMIT if value is None else value
    if isinstance(value, int):
        return value
    if not (value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit()):
        raise ValueError(f'{field} "{value}" is neither a number nor a percentage')
    share = int(value[:-1]) * replicas
    return -(-share // 100) if up else share // 100
