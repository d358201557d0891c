"""User data and images of Bottlerocket: a TOML document of settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

import tomli_w

from karpenter_core.errors import BadInputError
from karpenter_provider_aws.families.bootstrap import RAID0, cluster_dns
from karpenter_provider_aws.families.bottlerocket_settings import KUBERNETES_SETTINGS
from karpenter_provider_aws.families.images import (
    LATEST,
    NEURON,
    NVIDIA,
    STANDARD,
    ImageParameter,
)
from karpenter_provider_aws.families.kubelet_flags import text_map, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import TaintSpec
    from karpenter_provider_aws.api.nodeclass import Ami, AmiTerm
    from karpenter_provider_aws.families.bootstrap import BootstrapInput

__all__ = ["ami_version", "binds_by_default", "image_parameters", "unknown_settings", "user_data"]

_MOUNT_COMMAND: Final = "000-mount-instance-storage"
"""Runs first: commands run in the order of their names."""
_BIND_DIRECTORIES: Final = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
_DEFAULT_BIND_SINCE: Final = (1, 46, 0)
"""The version from which `ephemeral-storage bind` knows by itself which directories to bind."""
_VERSION: Final = re.compile(r"v*(\d+)\.(\d+)\.(\d+)")
_NAMED_VERSION: Final = re.compile(r"-(v\d+(?:\.\d+)+)(?:-|$)")
_TABLES: Final = (
    ("system-reserved", "systemReserved"),
    ("kube-reserved", "kubeReserved"),
    ("eviction-hard", "evictionHard"),
    ("eviction-soft", "evictionSoft"),
    ("eviction-soft-grace-period", "evictionSoftGracePeriod"),
)
_PLAIN: Final = (
    ("max-pods", "maxPods"),
    ("eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"),
    ("cpu-cfs-quota-enforced", "cpuCFSQuota"),
)
_AS_TEXT: Final = (
    ("image-gc-high-threshold-percent", "imageGCHighThresholdPercent"),
    ("image-gc-low-threshold-percent", "imageGCLowThresholdPercent"),
)


def image_parameters(version: str, kubernetes_version: str) -> tuple[ImageParameter, ...]:
    """Return where the images of an alias are; `kubernetes_version` is a minor one (`1.33`).

    Versions begin with a `v` on release pages, and not in these paths.
    """
    base = f"/aws/service/bottlerocket/aws-k8s-{kubernetes_version}"
    variants = (
        ("", "x86_64", (STANDARD, NEURON)),
        ("", "arm64", (STANDARD,)),
        ("-nvidia", "x86_64", (NVIDIA,)),
        ("-nvidia", "arm64", (NVIDIA,)),
    )
    return tuple(
        ImageParameter(
            path=f"{base}{suffix}/{arch}/{version.lstrip('v')}/image_id",
            requirement_sets=requirement_sets,
            mutable=version == LATEST,
        )
        for suffix, arch, requirement_sets in variants
    )


def ami_version(terms: Iterable[AmiTerm], amis: Sequence[Ami]) -> str:
    """Return the version of a NodeClass's images, as far as selectors and names tell it.

    An alias says it; else the name that is selected by; else the name of the image selected by
    id; else that of any image found. Empty when none does.
    """
    terms = tuple(terms)
    names = {ami.id: ami.name for ami in amis}
    versions = [
        *(term.alias.partition("@")[2] for term in terms if term.alias),
        *(_version_in(term.name) for term in terms if term.name),
        *(_image_version(names.get(term.id, "")) for term in terms if term.id),
        *(_image_version(ami.name) for ami in amis),
    ]
    return next((version for version in versions if version), "")


def binds_by_default(version: str) -> bool:
    """Whether images of this version know which directories go to local disks."""
    match = _VERSION.fullmatch(version)
    numbers = tuple(int(number) for number in match.groups()) if match else (0,)
    return version == LATEST or numbers >= _DEFAULT_BIND_SINCE


def unknown_settings(text: str) -> tuple[str, ...]:
    """Return the settings under `settings.kubernetes` that are left out of a user's document.

    Raises:
        BadInputError: the text is no such document.
    """
    return tuple(sorted(_kubernetes(_settings(_read(text))).keys() - KUBERNETES_SETTINGS.keys()))


def user_data(bootstrap: BootstrapInput) -> str:
    """Return the user's document with what a node of ours needs written over it.

    Raises:
        BadInputError: the user's text is no TOML, or a setting has another type than it must.
    """
    document = _read(bootstrap.user_data)
    settings = dict(_settings(document))
    kubernetes = {
        name: value for name, value in _kubernetes(settings).items() if name in KUBERNETES_SETTINGS
    }
    for name, value in kubernetes.items():
        if not KUBERNETES_SETTINGS[name].admits(value):
            raise BadInputError(
                f"spec.userData: settings.kubernetes.{name} is {value!r}, "
                f"and must be {KUBERNETES_SETTINGS[name].value}"
            )
    settings["kubernetes"] = _by_name({**kubernetes, **_ours(bootstrap, kubernetes)})
    if bootstrap.instance_store_policy == RAID0:
        commands = _table(settings, "bootstrap-commands", "settings.bootstrap-commands")
        settings["bootstrap-commands"] = {
            **commands,
            _MOUNT_COMMAND: _mount_command(bootstrap.ami_version),
        }
    return tomli_w.dumps({**document, "settings": settings})


def _ours(bootstrap: BootstrapInput, theirs: Mapping[str, object]) -> dict[str, object]:
    kubelet = bootstrap.kubelet
    written: dict[str, object] = {
        "cluster-name": bootstrap.cluster_name,
        "api-server": bootstrap.cluster_endpoint,
        "node-labels": _by_name({**text_map(theirs.get("node-labels")), **bootstrap.labels}),
        "node-taints": _taints(bootstrap.taints),
    }
    if bootstrap.ca_bundle:
        written["cluster-certificate"] = bootstrap.ca_bundle
    dns = cluster_dns(kubelet)
    if dns:
        written["cluster-dns-ip"] = dns[0]
    for name, field in _TABLES:
        if kubelet.get(field) is not None:
            written[name] = _by_name(text_map(kubelet[field]))
    written |= {name: kubelet[field] for name, field in _PLAIN if kubelet.get(field) is not None}
    written |= {
        name: text_of(kubelet[field]) for name, field in _AS_TEXT if kubelet.get(field) is not None
    }
    return written


def _taints(taints: Iterable[TaintSpec]) -> dict[str, object]:
    by_key: dict[str, list[str]] = {}
    for taint in taints:
        by_key.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return _by_name(by_key)


def _mount_command(version: str) -> dict[str, object]:
    bind = ["apiclient", "ephemeral-storage", "bind"]
    if not binds_by_default(version):
        bind += ["--dirs", *_BIND_DIRECTORIES]
    return {
        "commands": [["apiclient", "ephemeral-storage", "init"], bind],
        "essential": True,
        "mode": "always",
    }


def _read(text: str) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"spec.userData is not TOML: {error}") from error


def _settings(document: Mapping[str, object]) -> dict[str, object]:
    return _table(document, "settings", "settings")


def _kubernetes(settings: Mapping[str, object]) -> dict[str, object]:
    return _table(settings, "kubernetes", "settings.kubernetes")


def _table(parent: Mapping[str, object], key: str, path: str) -> dict[str, object]:
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise BadInputError(f"spec.userData: {path} is {value!r}, and must be a table")
    return cast("dict[str, object]", value)


def _by_name(entries: Mapping[str, object]) -> dict[str, object]:
    return {name: entries[name] for name in sorted(entries)}


def _image_version(name: str) -> str:
    return _version_in(name) if "bottlerocket" in name else ""


def _version_in(name: str) -> str:
    """Return `v1.46.0` of `bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a`."""
    match = _NAMED_VERSION.search(name)
    return match[1] if match else ""
