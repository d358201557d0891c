"""Reads user data as the software of each image does.

The programs are nodeadm, bootstrap.sh, Bottlerocket and the Windows script. Written against their
documentation, and independent of the provider's writer: a mistake in the writer is a node that does
not come up here.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import dataclass, field
from email import message_from_string
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.kit.simulated.kubelets import BootError, NodeTaint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from email.message import Message

__all__ = ["KubeletSettings", "read_user_data"]

_NODE_CONFIG: Final = "application/node.eks.aws"
_BOOTSTRAP: Final = "/etc/eks/bootstrap.sh"
_POWERSHELL_OPTION: Final = re.compile(
    r"""-(?P<name>[A-Za-z0-9]+)\s+(?:'(?P<single>(?:[^']|'')*)'|"(?P<double>[^"]*)"|(?P<bare>[^\s'"-]\S*))"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """With what a kubelet is started."""

    cluster: str
    endpoint: str
    certificate: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[NodeTaint, ...] = ()
    max_pods: int | None = None
    pods_per_core: int = 0
    kube_reserved: Mapping[str, str] = field(default_factory=dict[str, str])
    system_reserved: Mapping[str, str] = field(default_factory=dict[str, str])
    eviction_hard: Mapping[str, str] = field(default_factory=dict[str, str])
    cluster_dns: tuple[str, ...] = ()
    local_disks: str = ""
    """`raid0` when local disks become the kubelet's."""


@lru_cache(maxsize=256)  # asked at every look at an instance; nobody changes the answer
def read_user_data(text: str, *, image: str) -> KubeletSettings:
    """Read user data as the image of this name does; images of one's own by what the text is.

    Raises:
        BootError: no kubelet would join a cluster.
    """
    if "al2023" in image:
        return _nodeadm(text)
    if image.startswith("amazon-eks-"):
        return _bootstrap_script(text)
    if image.startswith("bottlerocket"):
        return _bottlerocket(text)
    if image.startswith("Windows"):
        return _windows(text)
    if _NODE_CONFIG in text:
        return _nodeadm(text)
    if "<powershell>" in text:
        return _windows(text)
    return _bootstrap_script(text) if _BOOTSTRAP in text else _bottlerocket(text)


def _parts(text: str) -> Sequence[tuple[str, str]]:
    """Return content types and texts of an archive's parts, as cloud-init finds them."""
    message = message_from_string(text)
    if not message.is_multipart():
        kind = "" if message.get("Content-Type") is None else message.get_content_type()
        return [(kind, text)]
    found: list[tuple[str, str]] = []
    for part in cast("Iterable[Message]", message.walk()):
        if not part.is_multipart():
            content = cast("bytes", part.get_payload(decode=True))
            found.append((part.get_content_type(), content.decode()))
    return found


def _nodeadm(text: str) -> KubeletSettings:
    import yaml

    documents = [content for kind, content in _parts(text) if kind == _NODE_CONFIG]
    if not documents and text.lstrip().startswith(("apiVersion:", "---")):
        documents = [text]
    merged: dict[str, object] = {}
    for document in documents:
        try:
            config: object = yaml.safe_load(document)
        except yaml.YAMLError as error:
            raise BootError(f"nodeadm: a NodeConfig is no YAML: {error}") from error
        if not isinstance(config, dict):
            raise BootError("nodeadm: a NodeConfig is no mapping")
        fields = cast("dict[str, object]", config)
        kind = (fields.get("apiVersion"), fields.get("kind"))
        if kind != ("node.eks.aws/v1alpha1", "NodeConfig"):
            raise BootError(f"nodeadm: {kind[0]}/{kind[1]} is not node.eks.aws/v1alpha1/NodeConfig")
        merged = _merged(merged, _mapping(fields.get("spec")))
    if not merged:
        raise BootError("nodeadm: there is no NodeConfig")
    cluster = _mapping(merged.get("cluster"))
    for needed in ("name", "apiServerEndpoint", "certificateAuthority", "cidr"):
        if not cluster.get(needed):
            raise BootError(f"nodeadm: spec.cluster.{needed} is empty")
    kubelet = _mapping(merged.get("kubelet"))
    config = _mapping(kubelet.get("config"))
    flags = _flags(str(flag) for flag in _sequence(kubelet.get("flags")))
    storage = _mapping(_mapping(merged.get("instance")).get("localStorage"))
    return KubeletSettings(
        cluster=str(cluster["name"]),
        endpoint=str(cluster["apiServerEndpoint"]),
        certificate=str(cluster["certificateAuthority"]),
        labels=_pairs(flags.get("node-labels", ""), "="),
        taints=(
            *(
                _config_taint(_mapping(each))
                for each in _sequence(config.get("registerWithTaints"))
            ),
            *_flag_taints(flags.get("register-with-taints", "")),
        ),
        max_pods=_number(config.get("maxPods")),
        pods_per_core=_number(config.get("podsPerCore")) or 0,
        kube_reserved=_texts(config.get("kubeReserved")),
        system_reserved=_texts(config.get("systemReserved")),
        eviction_hard=_texts(config.get("evictionHard")),
        cluster_dns=tuple(str(each) for each in _sequence(config.get("clusterDNS"))),
        local_disks=str(storage.get("strategy", "")).lower(),
    )


def _bootstrap_script(text: str) -> KubeletSettings:
    scripts = [content for kind, content in _parts(text) if _BOOTSTRAP in content or not kind]
    words = [
        shlex.split(line)
        for script in scripts
        for line in script.replace("\\\n", " ").splitlines()
        if line.strip().startswith(_BOOTSTRAP)
    ]
    if not words:
        raise BootError(f"nothing in the user data runs {_BOOTSTRAP}")
    options: dict[str, str] = {}
    positional: list[str] = []
    rest = iter(words[-1][1:])
    for word in rest:
        if word.startswith("--"):
            options[word.removeprefix("--")] = next(rest, "")
        else:
            positional.append(word)
    if not positional:
        raise BootError("bootstrap.sh: the cluster's name is missing")
    dns = options.get("dns-cluster-ip", "")
    return _from_flags(
        options.get("kubelet-extra-args", ""),
        cluster=positional[0],
        endpoint=options.get("apiserver-endpoint", ""),
        certificate=options.get("b64-cluster-ca", ""),
        cluster_dns=(dns,) if dns else (),
        local_disks=options.get("local-disks", ""),
    )


def _windows(text: str) -> KubeletSettings:
    if "<powershell>" not in text or "</powershell>" not in text:
        raise BootError("there is no <powershell> block")
    options = {
        found["name"]: (found["single"] or "").replace("''", "'")
        or found["double"]
        or found["bare"]
        for line in text.splitlines()
        if "-EKSClusterName" in line
        for found in _POWERSHELL_OPTION.finditer(line)
    }
    if not options.get("EKSClusterName"):
        raise BootError("the EKS bootstrap script is not given -EKSClusterName")
    dns = options.get("DNSClusterIP", "")
    return _from_flags(
        options.get("KubeletExtraArgs") or "",
        cluster=options["EKSClusterName"],
        endpoint=options.get("APIServerEndpoint") or "",
        certificate=options.get("Base64ClusterCA") or "",
        cluster_dns=(dns,) if dns else (),
    )


def _from_flags(
    extra_args: str,
    *,
    cluster: str,
    endpoint: str,
    certificate: str,
    cluster_dns: tuple[str, ...],
    local_disks: str = "",
) -> KubeletSettings:
    flags = _flags(shlex.split(extra_args))
    return KubeletSettings(
        cluster=cluster,
        endpoint=endpoint,
        certificate=certificate,
        labels=_pairs(flags.get("node-labels", ""), "="),
        taints=_flag_taints(flags.get("register-with-taints", "")),
        max_pods=_number(flags.get("max-pods")),
        pods_per_core=_number(flags.get("pods-per-core")) or 0,
        kube_reserved=_pairs(flags.get("kube-reserved", ""), "="),
        system_reserved=_pairs(flags.get("system-reserved", ""), "="),
        eviction_hard=_pairs(flags.get("eviction-hard", ""), "<"),
        cluster_dns=cluster_dns,
        local_disks=local_disks,
    )


def _bottlerocket(text: str) -> KubeletSettings:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BootError(f"Bottlerocket: the settings are no TOML: {error}") from error
    settings = _mapping(document.get("settings"))
    kubernetes = _mapping(settings.get("kubernetes"))
    for needed in ("cluster-name", "api-server", "cluster-certificate"):
        if not kubernetes.get(needed):
            raise BootError(f"Bottlerocket: settings.kubernetes.{needed} is empty")
    taints = [
        NodeTaint(key=key, value=value, effect=effect)
        for key, entries in _mapping(kubernetes.get("node-taints")).items()
        for entry in _sequence(entries)
        for value, _, effect in (str(entry).partition(":"),)
    ]
    mounts = "ephemeral-storage" in str(settings.get("bootstrap-commands", ""))
    dns = str(kubernetes.get("cluster-dns-ip", ""))
    return KubeletSettings(
        cluster=str(kubernetes["cluster-name"]),
        endpoint=str(kubernetes["api-server"]),
        certificate=str(kubernetes["cluster-certificate"]),
        labels=_texts(kubernetes.get("node-labels")),
        taints=tuple(taints),
        max_pods=_number(kubernetes.get("max-pods")),
        kube_reserved=_texts(kubernetes.get("kube-reserved")),
        system_reserved=_texts(kubernetes.get("system-reserved")),
        eviction_hard=_texts(kubernetes.get("eviction-hard")),
        cluster_dns=(dns,) if dns else (),
        local_disks="raid0" if mounts else "",
    )


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Merge as nodeadm does: maps by key, the later value wins, flags are put together."""
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        if _mapping(value) and _mapping(before):
            merged[key] = _merged(_mapping(before), _mapping(value))
        elif key == "flags":
            merged[key] = [*_sequence(before), *_sequence(value)]
        else:
            merged[key] = value
    return merged


def _flags(words: Iterable[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        found[name] = value.strip('"')
    return found


def _flag_taints(text: str) -> tuple[NodeTaint, ...]:
    taints: list[NodeTaint] = []
    for entry in filter(None, text.split(",")):
        rest, _, effect = entry.rpartition(":")
        key, _, value = rest.partition("=")
        if not key or not effect:
            raise BootError(f"kubelet: --register-with-taints: {entry!r} is no taint")
        taints.append(NodeTaint(key=key, value=value, effect=effect))
    return tuple(taints)


def _config_taint(taint: Mapping[str, object]) -> NodeTaint:
    return NodeTaint(
        key=str(taint["key"]), value=str(taint.get("value") or ""), effect=str(taint["effect"])
    )


def _pairs(text: str, sign: str) -> Mapping[str, str]:
    return {
        key: value
        for entry in filter(None, text.split(","))
        for key, _, value in (entry.partition(sign),)
    }


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def _texts(value: object) -> Mapping[str, str]:
    return {key: str(each) for key, each in _mapping(value).items()}


def _number(value: object) -> int | None:
    if value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        raise BootError(f"kubelet: {value!r} is no number") from None
