"""Reads custom data as the first boot of an AKS node image does.

A node image has the provisioning scripts. Custom data is a shell script, plain or compressed, or a
cloud-config that writes one: it sets variables and starts `provision_start.sh`, which starts the
kubelet with `KUBELET_FLAGS` and `KUBELET_NODE_LABELS`. Written after the images' scripts and cloud-init,
and independent of the provider's writer: a mistake in the writer is a node that does not come up here.
"""

from __future__ import annotations

import binascii
import gzip
import re
import shlex
from base64 import b64decode
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.kubelets import BootError, NodeTaint, read_taints

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KubeletSettings", "read_kubelet_settings"]

_GZIP: Final = b"\x1f\x8b"
_PROVISION: Final = "provision_start.sh"
_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*", re.IGNORECASE)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[-+.\w]*")
_LABEL_LENGTH: Final = 63
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
_KUBELET_MAY_SET: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
"""Labels of Kubernetes' own domains that a kubelet accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The start of a kubelet."""

    flags: Mapping[str, str]
    """By name without dashes."""
    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """All variables of the script."""

    @property
    def max_pods(self) -> int:
        """`--max-pods`; the kubelet's default without it."""
        return int(self.flags.get("max-pods", "110"))

    @property
    def kubernetes_version(self) -> str:
        """The version of the kubelet; empty for that of the image."""
        found = _VERSION.search(self.variables.get("KUBERNETES_VERSION", ""))
        return found[0] if found else ""

    def amounts(self, flag: str) -> Mapping[str, str]:
        """Return the quantities of a flag, `cpu=100m,memory=1843Mi`."""
        return dict(_pairs(self.flags.get(flag, ""), "="))

    @property
    def eviction_thresholds(self) -> Mapping[str, str]:
        """The thresholds of hard eviction by signal, `memory.available`."""
        return dict(_pairs(self.flags.get("eviction-hard", ""), "<"))


@lru_cache(maxsize=1024)
def read_kubelet_settings(custom_data: str, command: str = "") -> KubeletSettings:
    """Return the start of the kubelet of a virtual machine.

    Reading takes milliseconds, and Nodes are asked for every quarter of a second: kept by argument.
    `custom_data` is base64, as it was put; `command` is that of the custom script extension, if the
    virtual machine has one.

    Raises:
        BootError: no kubelet starts.
    """
    text = f"{_decode(custom_data)}\n{command}"
    if _PROVISION not in text:
        raise BootError(f"the custom data does not start {_PROVISION}")
    variables = _variables(text)
    flags = _flags(variables.get("KUBELET_FLAGS", ""))
    if not flags:
        raise BootError("the custom data does not set KUBELET_FLAGS")
    if not (variables.get("TLS_BOOTSTRAP_TOKEN") or variables.get("SECURE_TLS_BOOTSTRAPPING")):
        raise BootError("the custom data has no bootstrap token")
    labels = dict(_pairs(variables.get("KUBELET_NODE_LABELS", ""), "="))
    labels |= dict(_pairs(flags.get("node-labels", ""), "="))
    for key, value in labels.items():
        _check_label(key, value)
    return KubeletSettings(
        flags=flags,
        labels=labels,
        taints=read_taints(flags.get("register-with-taints", "")),
        variables=variables,
    )


def _decode(custom_data: str) -> str:
    try:
        content = b64decode(custom_data, validate=True)
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        text = content.decode()
    except (binascii.Error, ValueError, OSError, EOFError) as error:
        raise BootError(f"cloud-init cannot read the custom data: {error}") from None
    if not text.lstrip().startswith(("#!", "#cloud-config")):
        raise BootError(f"the custom data is neither a script nor a cloud-config: {text[:40]!r}")
    return text


def _variables(text: str) -> dict[str, str]:
    """Return the variables that the words of a script set, the last value of each."""
    # Continued lines are one line; lines that the shell syntax of Python cannot read set nothing.
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            if "KUBELET_" in line:
                raise BootError(f"the shell cannot read the variables: {error}") from None
            continue
        for word in words:
            name, equals, value = word.partition("=")
            if equals and _NAME.fullmatch(name):
                found[name] = value
    return found


def _logical_lines(text: str) -> list[str]:
    """Return the lines of a script; a quoted value may span several."""
    lines: list[str] = []
    open_line = ""
    for line in text.replace("\\\n", " ").splitlines():
        joined = f"{open_line}\n{line}" if open_line else line
        if joined.count('"') % 2 and "KUBELET_" in joined:
            open_line = joined
            continue
        lines.append(joined)
        open_line = ""
    return [*lines, open_line] if open_line else lines


def _flags(text: str) -> dict[str, str]:
    flags: dict[str, str] = {}
    for word in text.split():
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise BootError(f"the kubelet cannot read the flag {word!r}")
        flags[name] = value
    if "max-pods" in flags and not flags["max-pods"].isdigit():
        raise BootError(f"--max-pods={flags['max-pods']} is not a number")
    return flags


def _pairs(text: str, separator: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for each in filter(None, text.split(",")):
        key, found, value = each.partition(separator)
        if not key or not found:
            raise BootError(f"the kubelet cannot read {each!r}")
        pairs.append((key, value))
    return pairs


def _check_label(key: str, value: str) -> None:
    domain = key.partition("/")[0] if "/" in key else ""
    own = domain.endswith((".kubernetes.io", ".k8s.io")) or domain in {"kubernetes.io", "k8s.io"}
    allowed = key in _KUBELET_MAY_SET or any(
        domain == each or domain.endswith(f".{each}")
        for each in ("kubelet.kubernetes.io", "node.kubernetes.io")
    )
    if own and not allowed:
        raise BootError(f"the kubelet may not set the label {key}")
    if len(value) > _LABEL_LENGTH or not _LABEL_VALUE.fullmatch(value):
        raise BootError(f"the label {key} has the value {value!r}, which no label can have")
