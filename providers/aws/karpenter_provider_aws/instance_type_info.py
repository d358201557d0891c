"""Facts of instance types, read from DescribeInstanceTypes.

The whole answer is megabytes, most of which nothing reads. The facts kept fit into a file that a
new process reads at once, so items are read leniently: a field that is missing is zero, empty or
None, never an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import (
        InstanceTypeInfoTypeDef,
        NetworkCardInfoTypeDef,
        NetworkInfoTypeDef,
    )

__all__ = [
    "Accelerator",
    "InstanceTypeInfo",
    "InterfacePlace",
    "NetworkCard",
    "NeuronDevice",
    "read_instance_type",
]

EFA_KIND: Final = "efa"
"""An interface with both addresses and an Elastic Fabric Adapter."""
ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
"""EC2's word for an architecture to Kubernetes'; others (i386, those of Macs) run no kubelet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCard:
    """One network card; `max_interfaces` counts the interfaces that may be attached to it."""

    index: int
    max_interfaces: int
    baseline_gbps: float = 0.0
    interface_types: tuple[str, ...] = ()
    """`interface`, `efa`, `efa-only`; empty where EC2 does not say."""

    @property
    def efa_kind(self) -> str:
        """The kind of its interface with an EFA; empty for a card that takes none."""
        kinds = self.interface_types or (EFA_KIND,)
        return next((kind for kind in (EFA_KIND, "efa-only") if kind in kinds), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfacePlace:
    """Place and kind of a network interface."""

    card: int
    device: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Like GPUs or inference chips of one kind; `memory_mib` is that of each."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuronDevice:
    """Like Neuron devices (Inferentia, Trainium)."""

    name: str
    count: int
    cores: int
    """Cores of each device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTypeInfo:
    """One instance type as EC2 describes it."""

    name: str
    architectures: tuple[str, ...]
    """In EC2's words and order (`x86_64`, `arm64`, `i386` …)."""
    vcpus: int
    memory_mib: int
    usage_classes: tuple[str, ...] = ()
    """`on-demand`, `spot`, `capacity-block`."""
    placement_strategies: tuple[str, ...] = ()
    """`cluster`, `partition`, `spread`."""
    bare_metal: bool = False
    hypervisor: str = ""
    """`nitro` or `xen`; empty for bare metal."""
    has_processor_info: bool = True
    cpu_manufacturer: str = ""
    clock_ghz: float = 0.0
    """Sustained; 0 when EC2 does not say."""
    processor_features: tuple[str, ...] = ()
    nitro_enclaves: bool = False
    ebs_mbps: int | None = None
    """Maximum bandwidth; None unless the type is EBS-optimised by default."""
    storage_gb: int | None = None
    """Instance storage in all, in units of 10^9 bytes; None when there is none."""
    storage_nvme: bool = False
    network_cards: tuple[NetworkCard, ...] = ()
    default_network_card: int = 0
    ipv4_per_interface: int = 0
    ena: bool = False
    """Whether enhanced networking (ENA) is supported or required."""
    efa_max_interfaces: int | None = None
    """None when the type has no Elastic Fabric Adapter."""
    encryption_in_transit: bool = False
    gpus: tuple[Accelerator, ...] = ()
    neuron_devices: tuple[NeuronDevice, ...] | None = None
    """None when EC2 says nothing of Neuron."""
    inference_accelerators: tuple[Accelerator, ...] = ()

    @property
    def architecture(self) -> str:
        """The first architecture that Kubernetes has a word for; empty when none has."""
        return next((ARCHITECTURES[a] for a in self.architectures if a in ARCHITECTURES), "")

    @property
    def interfaces(self) -> int:
        """Number of interfaces of the default network card, which hold the pods' addresses."""
        card = self.network_card(self.default_network_card)
        return 0 if card is None else card.max_interfaces

    @property
    def efa_places(self) -> tuple[InterfacePlace, ...]:
        """The interfaces of an instance with all its EFAs, the primary one first.

        There is one on each card that has EFAs. The primary interface is device 0 of card 0, whether
        that card has EFAs or not; further cards leave their device 0 to an interface without EFA, unless
        they take one interface only.
        """
        missing = self.efa_max_interfaces or 0
        places: list[InterfacePlace] = []
        for card in sorted(self.network_cards, key=lambda card: card.index):
            kind = card.efa_kind if missing else ""
            if card.index == 0:
                kind = kind if kind == EFA_KIND else "interface"
            if not kind:
                continue
            device = 0 if card.index == 0 or card.max_interfaces == 1 else 1
            places.append(InterfacePlace(card=card.index, device=device, kind=kind))
            missing -= kind != "interface"
        return tuple(places)

    def network_card(self, index: int) -> NetworkCard | None:
        """Return the card of that index, None when the type has no such card."""
        return next((card for card in self.network_cards if card.index == index), None)


def read_instance_type(item: InstanceTypeInfoTypeDef) -> InstanceTypeInfo:
    """Read one item of DescribeInstanceTypes."""
    processor = item.get("ProcessorInfo", {})
    network = item.get("NetworkInfo", {})
    ebs = item.get("EbsInfo", {})
    storage = item.get("InstanceStorageInfo", {})
    optimised = ebs.get("EbsOptimizedSupport") == "default"
    return InstanceTypeInfo(
        name=item.get("InstanceType", ""),
        architectures=tuple(processor.get("SupportedArchitectures", ())),
        vcpus=item.get("VCpuInfo", {}).get("DefaultVCpus", 0),
        memory_mib=item.get("MemoryInfo", {}).get("SizeInMiB", 0),
        usage_classes=tuple(sorted(item.get("SupportedUsageClasses", ()))),
        placement_strategies=tuple(
            sorted(item.get("PlacementGroupInfo", {}).get("SupportedStrategies", ()))
        ),
        bare_metal=item.get("BareMetal", False),
        hypervisor=item.get("Hypervisor", ""),
        has_processor_info="ProcessorInfo" in item,
        cpu_manufacturer=processor.get("Manufacturer", ""),
        clock_ghz=processor.get("SustainedClockSpeedInGhz", 0.0),
        processor_features=tuple(sorted(processor.get("SupportedFeatures", ()))),
        nitro_enclaves=item.get("NitroEnclavesSupport") == "supported",
        ebs_mbps=(
            ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps") if optimised else None
        ),
        storage_gb=storage.get("TotalSizeInGB"),
        storage_nvme=storage.get("NvmeSupport", "unsupported") != "unsupported",
        network_cards=tuple(_network_card(card) for card in network.get("NetworkCards", ())),
        default_network_card=network.get("DefaultNetworkCardIndex", 0),
        ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        ena=network.get("EnaSupport", "unsupported") != "unsupported",
        efa_max_interfaces=_efa_max_interfaces(network),
        encryption_in_transit=network.get("EncryptionInTransitSupported", False),
        gpus=_gpus(item),
        neuron_devices=_neuron_devices(item),
        inference_accelerators=_inference_accelerators(item),
    )


def _network_card(card: NetworkCardInfoTypeDef) -> NetworkCard:
    return NetworkCard(
        index=card.get("NetworkCardIndex", 0),
        max_interfaces=card.get("MaximumNetworkInterfaces", 0),
        baseline_gbps=card.get("BaselineBandwidthInGbps", 0.0),
        interface_types=tuple(sorted(card.get("InterfaceTypes", ()))),
    )


def _efa_max_interfaces(network: NetworkInfoTypeDef) -> int | None:
    return network["EfaInfo"].get("MaximumEfaInterfaces") if "EfaInfo" in network else None


def _gpus(item: InstanceTypeInfoTypeDef) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(
            name=gpu.get("Name", ""),
            manufacturer=gpu.get("Manufacturer", ""),
            count=gpu.get("Count", 0),
            memory_mib=gpu.get("MemoryInfo", {}).get("SizeInMiB", 0),
        )
        for gpu in item.get("GpuInfo", {}).get("Gpus", ())
    )


def _neuron_devices(item: InstanceTypeInfoTypeDef) -> tuple[NeuronDevice, ...] | None:
    if "NeuronInfo" not in item:
        return None
    return tuple(
        NeuronDevice(
            name=device.get("Name", ""),
            count=device.get("Count", 0),
            cores=device.get("CoreInfo", {}).get("Count", 0),
        )
        for device in item["NeuronInfo"].get("NeuronDevices", ())
    )


def _inference_accelerators(item: InstanceTypeInfoTypeDef) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(
            name=chip.get("Name", ""),
            manufacturer=chip.get("Manufacturer", ""),
            count=chip.get("Count", 0),
            memory_mib=chip.get("MemoryInfo", {}).get("SizeInMiB", 0),
        )
        for chip in item.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
    )
