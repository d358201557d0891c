"""Checks whether an instance type is compatible with a NodeClass.

A type that is not compatible stays in the catalogue, with offerings that are not available: the
errors of pods that ask for it name it, and its running nodes are still known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_provider_aws.api.nodeclass import AmiFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, NetworkInterface
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo

__all__ = ["efa_only_interfaces", "incompatibility"]

_EFA_ONLY: Final = "efa-only"
_NESTED_VIRTUALIZATION: Final = "nested-virtualization"
_ENABLED: Final = "enabled"


def efa_only_interfaces(interfaces: Sequence[NetworkInterface], *, card: int | None = None) -> int:
    """Count the interfaces without addresses, of all network cards or of one."""
    return sum(
        interface.interface_type == _EFA_ONLY and card in {None, interface.network_card_index}
        for interface in interfaces
    )


def incompatibility(
    info: InstanceTypeInfo, node_class: EC2NodeClass, group: DescribedPlacementGroup | None
) -> str:
    """Return why a NodeClass cannot be launched on a type; empty when it can."""
    spec = node_class.spec
    if spec.network_interfaces:
        why = _interfaces_misfit(info, spec.network_interfaces, spec.ip_prefix_count or 0)
        if why:
            return why
    if info.name.startswith("a1.") and node_class.ami_family is AmiFamily.AL2023:
        return "AL2023 does not run on a1"
    cpu = spec.cpu_options
    if (
        cpu is not None
        and cpu.nested_virtualization == _ENABLED
        and _NESTED_VIRTUALIZATION not in info.processor_features
    ):
        return "it has no nested virtualization"
    enclaves = spec.enclave_options
    if enclaves is not None and enclaves.enabled and not info.nitro_enclaves:
        return "it has no Nitro Enclaves"
    if group is not None and group.strategy not in info.placement_strategies:
        return f"it does not go into placement groups of strategy {group.strategy}"
    if spec.connection_tracking is not None and info.hypervisor != "nitro":
        return "connection tracking needs the hypervisor nitro"
    return ""


def _interfaces_misfit(
    info: InstanceTypeInfo, interfaces: Sequence[NetworkInterface], prefixes: int
) -> str:
    if not info.ena:
        return "it has no enhanced networking"
    for interface in interfaces:
        card = info.network_card(interface.network_card_index)
        if card is None:
            return f"it has no network card {interface.network_card_index}"
        if interface.device_index >= card.max_interfaces:
            return f"network card {card.index} has no device {interface.device_index}"
        if card.interface_types and interface.interface_type not in card.interface_types:
            return f"network card {card.index} takes no interface {interface.interface_type}"
    # A prefix takes the place of one address; the first place is the primary address's.
    if prefixes and prefixes + 1 > info.ipv4_per_interface:
        return f"an interface does not hold {prefixes} prefixes"
    efa_count = efa_only_interfaces(interfaces)
    if efa_count > (info.efa_max_interfaces or 0):
        return f"it does not take {efa_count} EFAs"
    return ""
