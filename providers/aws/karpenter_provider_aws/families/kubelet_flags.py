"""Writes kubelet settings as command-line flags for bootstrap scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import TaintSpec
    from karpenter_provider_aws.families.bootstrap import BootstrapInput

__all__ = ["kubelet_flags", "node_labels_flag", "text_map", "text_of"]

_MAPS = (
    ("--system-reserved", "systemReserved", "="),
    ("--kube-reserved", "kubeReserved", "="),
    ("--eviction-hard", "evictionHard", "<"),
    ("--eviction-soft", "evictionSoft", "<"),
    ("--eviction-soft-grace-period", "evictionSoftGracePeriod", "="),
)
_BEFORE_MAPS = (("--max-pods", "maxPods"), ("--pods-per-core", "podsPerCore"))
_AFTER_MAPS = (
    ("--eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"),
    ("--image-gc-high-threshold", "imageGCHighThresholdPercent"),
    ("--image-gc-low-threshold", "imageGCLowThresholdPercent"),
    ("--cpu-cfs-quota", "cpuCFSQuota"),
)


def kubelet_flags(bootstrap: BootstrapInput) -> tuple[str, ...]:
    """Return labels, taints and the fields that every family takes, entries of maps sorted.

    The same settings give the same text: another one would be another launch template.
    """
    kubelet = bootstrap.kubelet
    flags = [
        node_labels_flag(bootstrap.labels),
        _taints_flag(bootstrap.taints),
        *(_scalar_flag(flag, kubelet.get(name)) for flag, name in _BEFORE_MAPS),
        *(_map_flag(flag, text_map(kubelet.get(name)), sign) for flag, name, sign in _MAPS),
        *(_scalar_flag(flag, kubelet.get(name)) for flag, name in _AFTER_MAPS),
    ]
    return tuple(flag for flag in flags if flag)


def node_labels_flag(labels: Mapping[str, str]) -> str:
    """Return the flag that labels the node, sorted by key; empty when there are none."""
    return _map_flag("--node-labels", labels, "=")


def text_map(value: object) -> dict[str, str]:
    """Return a map of the kubelet's as text; what is no map is empty."""
    if not isinstance(value, dict):
        return {}
    entries = cast("dict[object, object]", value)
    return {str(key): text_of(entry) for key, entry in entries.items()}


def text_of(value: object) -> str:
    """Return a value as flags write it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _map_flag(flag: str, entries: Mapping[str, str], sign: str) -> str:
    return _joined(flag, (f"{key}{sign}{entries[key]}" for key in sorted(entries)))


def _taints_flag(taints: Iterable[TaintSpec]) -> str:
    return _joined("--register-with-taints", (_taint(taint) for taint in taints))


def _taint(taint: TaintSpec) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _joined(flag: str, entries: Iterable[str]) -> str:
    text = ",".join(entries)
    return f'{flag}="{text}"' if text else ""


def _scalar_flag(flag: str, value: object) -> str:
    return "" if value is None else f"{flag}={text_of(value)}"
