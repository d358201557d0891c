"""The types of Bottlerocket's settings under `settings.kubernetes`.

Bottlerocket refuses to boot with a setting that it does not know, so unknown settings are removed
from the user's text. From its settings reference (`settings.kubernetes.*`), as far as Karpenter
lets users set them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, cast

__all__ = ["KUBERNETES_SETTINGS", "SettingType"]


class SettingType(Enum):
    """Types of a setting's value."""

    STRING = "a string"
    INTEGER = "an integer"
    BOOLEAN = "true or false"
    STRINGS = "a list of strings"
    STRING_OR_STRINGS = "a string or a list of strings"
    TABLE = "a table"

    def admits(self, value: object) -> bool:
        """Whether a value that was read has this type."""
        match self:
            case SettingType.STRING:
                return isinstance(value, str)
            case SettingType.INTEGER:
                return isinstance(value, int) and not isinstance(value, bool)
            case SettingType.BOOLEAN:
                return isinstance(value, bool)
            case SettingType.STRINGS:
                return _are_strings(value)
            case SettingType.STRING_OR_STRINGS:
                return isinstance(value, str) or _are_strings(value)
            case SettingType.TABLE:
                return isinstance(value, dict)


def _are_strings(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, str) for item in cast("list[object]", value))


_BY_TYPE: Final = {
    SettingType.STRING: (
        "api-server",
        "cloud-provider",
        "cluster-certificate",
        "cluster-domain",
        "cluster-name",
        "container-log-max-size",
        "container-log-monitor-interval",
        "cpu-manager-policy",
        "cpu-manager-reconcile-period",
        "hostname-override-source",
        "image-gc-high-threshold-percent",
        "image-gc-low-threshold-percent",
        "memory-manager-policy",
        "shutdown-grace-period",
        "shutdown-grace-period-for-critical-pods",
        "topology-manager-policy",
        "topology-manager-scope",
    ),
    SettingType.INTEGER: (
        "container-log-max-files",
        "container-log-max-workers",
        "event-burst",
        "event-qps",
        "eviction-max-pod-grace-period",
        "ids-per-pod",
        "kube-api-burst",
        "kube-api-qps",
        "log-level",
        "max-pods",
        "pod-pids-limit",
        "registry-burst",
        "registry-qps",
    ),
    SettingType.BOOLEAN: (
        "cpu-cfs-quota-enforced",
        "device-ownership-from-security-context",
        "seccomp-default",
        "server-tls-bootstrap",
        "single-process-oom-kill",
    ),
    SettingType.STRINGS: ("allowed-unsafe-sysctls", "cpu-manager-policy-options"),
    SettingType.STRING_OR_STRINGS: ("cluster-dns-ip",),
    SettingType.TABLE: (
        "credential-providers",
        "eviction-hard",
        "eviction-soft",
        "eviction-soft-grace-period",
        "kube-reserved",
        "memory-manager-reserved-memory",
        "node-labels",
        "node-taints",
        "static-pods",
        "system-reserved",
        "topology-manager-policy-options",
    ),
}

KUBERNETES_SETTINGS: Final = {
    name: setting_type for setting_type, names in _BY_TYPE.items() for name in names
}
"""Type by name."""
