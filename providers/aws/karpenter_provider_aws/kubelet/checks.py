"""Finds all mistakes in `spec.kubelet` at once.

The API server accepts any content. A setting that the kubelet would refuse, or silently ignore,
keeps the NodeClass from being Ready instead: an instance that never joins costs money until a user
notices it. All mistakes are reported together, so that users can correct them at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.durations import parse_nanoseconds
from karpenter_core.api.quantities import parse_quantity
from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.node_class.findings import NodeClassFinding
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.kubelet.expressions import (
    EvaluationErrors,
    expression_error,
    kubelet_expressions,
)
from karpenter_provider_aws.kubelet.fields import unreadable_fields
from karpenter_provider_aws.kubelet.sizing import kubelet_sizing, read_kubelet_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from karpenter_provider_aws.api.nodeclass import AmiFamily, EC2NodeClass
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo

__all__ = [
    "EVALUATION_FAILED",
    "EXPRESSIONS_DISABLED",
    "EXPRESSION_INVALID",
    "INVALID",
    "SUPPORTED_BY_ALL",
    "UNSUPPORTED",
    "evaluation_finding",
    "invalid_settings",
    "kubelet_finding",
    "unsupported_settings",
]

# Reasons of the condition ValidationSucceeded, in the order in which they are looked for
INVALID: Final = "InvalidKubeletConfiguration"
EXPRESSIONS_DISABLED: Final = "KubeletExpressionsDisabled"
EXPRESSION_INVALID: Final = "KubeletExpressionInvalid"
UNSUPPORTED: Final = "UnsupportedKubeletConfiguration"
EVALUATION_FAILED: Final = "KubeletExpressionEvaluationFailed"

FIELD: Final = "spec.kubelet"

_SIGNALS: Final = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
_RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
_THRESHOLDS: Final = ("evictionHard", "evictionMinimumReclaim", "evictionSoft")
_GRACE: Final = "evictionSoftGracePeriod"
_HIGH, _LOW = "imageGCHighThresholdPercent", "imageGCLowThresholdPercent"
_GC_DEFAULTS: Final = {_HIGH: 85, _LOW: 80}
"""Percentages that the kubelet takes for thresholds that are not set."""
_GC_NAMES: Final = {
    _HIGH: re.compile(rf"{_HIGH}|image-gc-high-threshold", re.IGNORECASE),
    _LOW: re.compile(rf"{_LOW}|image-gc-low-threshold", re.IGNORECASE),
}
"""The names of the thresholds in user data: field of KubeletConfiguration, and flag or Bottlerocket setting."""
_PERCENT: Final = re.compile(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)%")
_FULL_PERCENT: Final = 100

_PROVIDER_FIELDS: Final = {"registerWithTaints": "taints come from the NodePool"}
"""Fields that are always overwritten when a node is bootstrapped, and why."""

SUPPORTED_BY_ALL: Final = frozenset(
    {
        "clusterDNS",
        "maxPods",
        "podsPerCore",
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        "evictionSoft",
        _GRACE,
        "evictionMaxPodGracePeriod",
        _HIGH,
        _LOW,
        "cpuCFSQuota",
    }
)
"""Fields that every family's bootstrap can hand over; some families hand over anything."""


def kubelet_finding(
    node_class: EC2NodeClass, *, expressions_enabled: bool
) -> NodeClassFinding | None:
    """Return the first reason why `spec.kubelet` cannot be used, with all complaints of that kind."""
    kubelet = node_class.spec.kubelet
    expressions = kubelet_expressions(kubelet)
    disabled = [] if expressions_enabled else [f"{FIELD}.{place}" for place in expressions]
    unusable = (
        f'{FIELD}.{place}: "{text}": {problem}'
        for place, text in expressions.items()
        if (problem := expression_error(text))
    )
    problems = (
        _finding(INVALID, (*invalid_settings(kubelet), *_lone_thresholds(node_class))),
        _finding(
            EXPRESSIONS_DISABLED,
            [f"the feature gate NodeClassCEL is off, but expressions stand in {_listed(disabled)}"]
            if disabled
            else [],
        ),
        _finding(EXPRESSION_INVALID, unusable if expressions_enabled else []),
        _finding(UNSUPPORTED, unsupported_settings(kubelet, node_class.ami_family)),
    )
    return next((problem for problem in problems if problem is not None), None)


def evaluation_finding(
    node_class: EC2NodeClass, infos: Iterable[InstanceTypeInfo], *, reserved_enis: int
) -> NodeClassFinding | None:
    """Say which expressions fail for one of these instance types (all there are), if any do.

    To be asked when `kubelet_finding` finds nothing and expressions are enabled.
    """
    if not kubelet_expressions(node_class.spec.kubelet):
        return None
    notes = EvaluationErrors()
    beyond = ""
    options, traits = read_kubelet_options(node_class), TRAITS[node_class.ami_family]
    for info in infos:
        try:
            kubelet_sizing(
                info, node_class, options, traits, reserved_enis=reserved_enis, evaluate=notes
            )
        except BadInputError as error:
            beyond = beyond or str(error)
    return _finding(EVALUATION_FAILED, [*notes.messages, *([beyond] if beyond else [])])


def invalid_settings(kubelet: Mapping[str, object]) -> tuple[str, ...]:
    """Say what no kubelet can do with these settings, whatever the family."""
    # Its text is an expression, which no kubelet ever sees.
    readable = {
        name: value
        for name, value in kubelet.items()
        if not (name == "maxPods" and isinstance(value, str))
    }
    return (
        *unreadable_fields(readable, place=FIELD),
        *_provider_field_findings(kubelet),
        *_evictions(kubelet),
        *_soft_evictions(kubelet),
        *_reservations(kubelet),
        *_amounts(kubelet),
    )


def unsupported_settings(kubelet: Mapping[str, object], family: AmiFamily) -> tuple[str, ...]:
    """Return the kubelet fields that nodes of a family do not read."""
    traits = TRAITS[family]
    if traits.accepts_any_kubelet_field:
        return ()
    complaints = [
        f"{FIELD}.{name}: not supported by AMI family {family.value}"
        for name in sorted(kubelet)
        if name not in SUPPORTED_BY_ALL
        or (name == "podsPerCore" and not traits.honours_pods_per_core)
    ]
    servers = kubelet.get("clusterDNS")
    if isinstance(servers, list) and len(cast("list[object]", servers)) > 1:
        complaints.append(
            f"{FIELD}.clusterDNS: AMI family {family.value} supports one entry, not "
            f"{len(cast('list[object]', servers))}"
        )
    return tuple(complaints)


def _finding(reason: str, complaints: Iterable[str]) -> NodeClassFinding | None:
    message = "; ".join(complaints)
    return NodeClassFinding(reason=reason, message=message) if message else None


def _provider_field_findings(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name, why in _PROVIDER_FIELDS.items():
        if name in kubelet:
            yield f"{FIELD}.{name}: cannot be set, {why}"


def _evictions(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in (*_THRESHOLDS, _GRACE):
        complain = _grace_finding if name == _GRACE else _threshold_finding
        for signal, text in _texts(kubelet, name).items():
            if signal not in _SIGNALS:
                yield (
                    f'{FIELD}.{name}: "{signal}" is no eviction signal; there are '
                    f"{_listed(_SIGNALS)}"
                )
            if complaint := complain(text):
                yield f"{FIELD}.{name}[{signal}]: {complaint}"


def _soft_evictions(kubelet: Mapping[str, object]) -> Iterator[str]:
    """Compare the two maps: a threshold without a period is ignored, the other way is refused."""
    thresholds, periods = _texts(kubelet, "evictionSoft"), _texts(kubelet, _GRACE)
    for signal in sorted(thresholds.keys() - periods.keys()):
        yield f"{FIELD}.evictionSoft[{signal}]: has no counterpart in {_GRACE}"
    for signal in sorted(periods.keys() - thresholds.keys()):
        yield f"{FIELD}.{_GRACE}[{signal}]: has no counterpart in evictionSoft"


def _reservations(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in ("kubeReserved", "systemReserved"):
        for resource, text in _texts(kubelet, name).items():
            if resource not in _RESERVABLE:
                yield (
                    f'{FIELD}.{name}: "{resource}" cannot be reserved; there are '
                    f"{_listed(_RESERVABLE)}"
                )
            if text.startswith("-"):
                yield f'{FIELD}.{name}[{resource}]: must not be negative, but is "{text}"'


def _amounts(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in ("evictionMaxPodGracePeriod", "maxPods", "podsPerCore"):
        amount = _number(kubelet, name)
        if amount is not None and amount < 0:
            yield f"{FIELD}.{name}: must not be negative, but is {amount}"
    for name in (_HIGH, _LOW):
        percent = _number(kubelet, name)
        if percent is not None and not 0 <= percent <= _FULL_PERCENT:
            yield f"{FIELD}.{name}: must be from 0 to 100, not {percent}"
    high, low = _number(kubelet, _HIGH), _number(kubelet, _LOW)
    if high is not None and low is not None and high <= low:
        yield f"{FIELD}.{_HIGH}: must be more than {_LOW}, but {high} is not more than {low}"


def _lone_thresholds(node_class: EC2NodeClass) -> Iterator[str]:
    """Compare a threshold with the default of the other one, unless user data may set that.

    The kubelet does not start if the high one is not above the low one.
    """
    kubelet = node_class.spec.kubelet
    if TRAITS[node_class.ami_family].ignores_kubelet:
        return
    for name, other in ((_HIGH, _LOW), (_LOW, _HIGH)):
        percent, default = _number(kubelet, name), _GC_DEFAULTS[other]
        if percent is None or kubelet.get(other) is not None:
            continue
        if (percent > default) if name == _HIGH else (percent < default):
            continue
        if not _GC_NAMES[other].search(node_class.spec.user_data):
            yield (
                f"{FIELD}.{name}: must be {'more' if name == _HIGH else 'less'} than {other}, which "
                f"is {default} unless it is set, but is {percent}"
            )


def _threshold_finding(text: str) -> str:
    if text.endswith("%"):
        match = _PERCENT.fullmatch(text)
        if match is not None and float(match[1]) <= _FULL_PERCENT:
            return ""
        return f'must be from 0% to 100%, or a quantity, not "{text}"'
    try:
        amount = parse_quantity(text)
    except ValueError:
        return f'must be a percentage or a quantity, not "{text}"'
    return f'must not be negative, but is "{text}"' if amount < 0 else ""


def _grace_finding(text: str) -> str:
    try:
        period = parse_nanoseconds(text)
    except ValueError:
        return f'must be a duration such as 2m, not "{text}"'
    return f'must not be negative, but is "{text}"' if period < 0 else ""


def _texts(kubelet: Mapping[str, object], name: str) -> dict[str, str]:
    """Return a map of texts by key, sorted; values of other types are complained of elsewhere."""
    value = kubelet.get(name)
    if not isinstance(value, dict):
        return {}
    entries = sorted(cast("dict[str, object]", value).items())
    return {key: text for key, text in entries if isinstance(text, str)}


def _number(kubelet: Mapping[str, object], name: str) -> int | None:
    value = kubelet.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
