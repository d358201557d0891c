"""Facts of AMI families for catalogue, checks and launch templates.

Facts only: the module of each family bootstraps its nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_provider_aws.api.families import AmiFamily

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_ROOT_GIB", "TRAITS", "DefaultDevice", "FamilyTraits"]

DEFAULT_ROOT_GIB: Final = 20
"""Default size of a root volume, without block device mappings and a family's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultDevice:
    """A volume that is attached when the NodeClass maps none: gp3, encrypted."""

    device_name: str
    size_gib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTraits:
    """Facts of one AMI family."""

    default_devices: tuple[DefaultDevice, ...]
    """None for Custom: the image's own mappings hold."""
    ephemeral_device: str
    """The device with kubelet's root directory; empty when only the image knows."""
    default_ephemeral_gib: int = DEFAULT_ROOT_GIB
    """Size of that device when no mapping tells."""
    has_eni_density: bool = True
    """Pods are limited by the addresses of the network interfaces; 110 pods otherwise."""
    kube_reserved_uses_eni_pods: bool = True
    """Memory is reserved for the pods that interfaces allow (none kept back), whatever maxPods is.

    Otherwise for the pods that the node really takes.
    """
    honours_pods_per_core: bool = True
    accepts_any_kubelet_field: bool = False
    """Every field of KubeletConfiguration reaches the kubelet, several clusterDNS entries too."""
    ignores_kubelet: bool = False
    """Nothing of `spec.kubelet` reaches the kubelet: the user's own text bootstraps the node.

    It still sizes nodes, so any field is accepted.
    """
    is_windows: bool = False
    windows_build: str = ""
    """Value of `node.kubernetes.io/windows-build`."""
    windows_year: str = ""


_AMAZON_LINUX_DEVICES: Final = (DefaultDevice(device_name="/dev/xvda", size_gib=20),)


def _windows(year: str, build: str) -> FamilyTraits:
    return FamilyTraits(
        default_devices=(DefaultDevice(device_name="/dev/sda1", size_gib=50),),
        ephemeral_device="/dev/sda1",
        default_ephemeral_gib=50,
        has_eni_density=False,
        kube_reserved_uses_eni_pods=False,
        is_windows=True,
        windows_build=build,
        windows_year=year,
    )


TRAITS: Final[Mapping[AmiFamily, FamilyTraits]] = {
    AmiFamily.AL2: FamilyTraits(
        default_devices=_AMAZON_LINUX_DEVICES, ephemeral_device="/dev/xvda"
    ),
    AmiFamily.AL2023: FamilyTraits(
        default_devices=_AMAZON_LINUX_DEVICES,
        ephemeral_device="/dev/xvda",
        accepts_any_kubelet_field=True,
    ),
    AmiFamily.BOTTLEROCKET: FamilyTraits(
        default_devices=(
            # Upstream's default; the images come with 2 GiB, and EC2 takes any larger volume.
            DefaultDevice(device_name="/dev/xvda", size_gib=4),
            DefaultDevice(device_name="/dev/xvdb", size_gib=20),
        ),
        ephemeral_device="/dev/xvdb",
        kube_reserved_uses_eni_pods=False,
        honours_pods_per_core=False,
    ),
    AmiFamily.WINDOWS2019: _windows("2019", "10.0.17763"),
    AmiFamily.WINDOWS2022: _windows("2022", "10.0.20348"),
    AmiFamily.WINDOWS2025: _windows("2025", "10.0.26100"),
    AmiFamily.CUSTOM: FamilyTraits(
        default_devices=(),
        ephemeral_device="",
        accepts_any_kubelet_field=True,
        ignores_kubelet=True,
    ),
}
"""Of every family."""
