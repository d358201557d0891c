"""Models of volumes, interfaces, metadata and CPU options in the spec."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_core.api.quantities import parse_quantity

__all__ = [
    "BlockDevice",
    "BlockDeviceMapping",
    "ConnectionTracking",
    "CpuOptions",
    "EnclaveOptions",
    "MetadataOptions",
    "NetworkInterface",
]

_SWITCH: Final = ("enabled", "disabled")

# EC2's bounds: 64,000 GB, which is 59,000 GiB and some
_VOLUME_SIZE: Final = (
    r"^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi"
    r"|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    r"|([1-9]|[1-4][0-9]|5[0-8])Ti"
    r"|([1-9]|[1-5][0-9]|6[0-4])T)$"
)


class BlockDevice(Model):
    """An EBS volume."""

    cel: ClassVar = (
        CEL("has(self.snapshotID) || has(self.volumeSize)", "snapshotID or volumeSize is needed"),
        CEL(
            "!has(self.volumeInitializationRate) || "
            "(has(self.snapshotID) && self.snapshotID != '')",
            "volumeInitializationRate needs a snapshotID",
        ),
    )

    delete_on_termination: bool | None = None
    """Whether the volume is deleted with its instance."""
    encrypted: bool | None = None
    """Whether the volume is encrypted."""
    iops: Annotated[int | None, Facets(format="int64")] = None
    """Operations per second, for gp3, io1 and io2."""
    kms_key_id: Annotated[str, Field(alias="kmsKeyID")] = ""
    """Key to encrypt with: id, alias or ARN."""
    snapshot_id: str = ""
    """Snapshot from which the volume is created."""
    throughput: Annotated[int | None, Facets(format="int64")] = None
    """Throughput in MiB per second, for gp3."""
    volume_initialization_rate: Annotated[
        int | None, Facets(format="int32", minimum=100, maximum=300)
    ] = None
    """Speed at which the snapshot is loaded, in MiB per second."""
    volume_size: Annotated[str, Facets(pattern=_VOLUME_SIZE)] = ""
    """Size in Gi, G, Ti or T: 1Gi to 59000Gi."""
    volume_type: Annotated[
        str, Facets(enum=("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"))
    ] = ""
    """Kind of volume."""

    @property
    def size_bytes(self) -> int | None:
        """The size in `volume_size`; None when it is absent, or no size that a volume can have."""
        try:
            size = int(parse_quantity(self.volume_size)) if self.volume_size else 0
        except ValueError:
            return None
        return size if size > 0 else None


class BlockDeviceMapping(Model):
    """A volume and the name of the device it is attached as."""

    device_name: str = ""
    """Name of the device, such as /dev/xvda."""
    root_volume: bool | None = None
    """Whether the kubelet's root directory is on this device; at most one mapping may set it.

    The size of the volume is then the ephemeral storage of the node.
    """
    ebs: BlockDevice | None = None
    """The volume."""


class NetworkInterface(Model):
    """An interface that every instance gets."""

    network_card_index: Annotated[int, Facets(format="int32", minimum=0)]
    """Index of the network card."""
    device_index: Annotated[int, Facets(format="int32", minimum=0)]
    """Index of the device on the card."""
    interface_type: Annotated[str, Facets(enum=("interface", "efa-only"))]
    """An interface with addresses, or one for the Elastic Fabric Adapter alone."""


class MetadataOptions(Model):
    """The instance metadata service."""

    http_endpoint: Annotated[str, Facets(enum=_SWITCH)] = "enabled"
    """Whether the service is enabled."""
    http_protocol_ipv6: Annotated[str, Facets(enum=_SWITCH), Field(alias="httpProtocolIPv6")] = (
        "disabled"
    )
    """Whether the service is enabled on IPv6."""
    http_put_response_hop_limit: Annotated[int, Facets(format="int64", minimum=1, maximum=64)] = 1
    """Maximum number of hops of a response: with 1, pods in their own network get no token."""
    http_tokens: Annotated[str, Facets(enum=("required", "optional"))] = "required"
    """Whether a token is required (IMDSv2)."""


class ConnectionTracking(Model):
    """Idle timeouts of tracked connections in security groups, in seconds."""

    cel: ClassVar = (
        CEL(
            "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
            "one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout is needed",
        ),
    )

    tcp_established_timeout: Annotated[
        int | None, Facets(format="int32", minimum=60, maximum=432_000)
    ] = None
    """Idle timeout of established TCP connections."""
    udp_stream_timeout: Annotated[int | None, Facets(format="int32", minimum=60, maximum=180)] = (
        None
    )
    """Idle timeout of UDP flows with more than one request and answer."""
    udp_timeout: Annotated[int | None, Facets(format="int32", minimum=30, maximum=60)] = None
    """Idle timeout of UDP flows in one direction, or with one request and answer."""


class CpuOptions(Model):
    """Options of the processor."""

    nested_virtualization: Annotated[str, Facets(enum=_SWITCH)] = ""
    """Whether nested virtualization is enabled; only instance types that support it are used."""


class EnclaveOptions(Model):
    """Nitro Enclaves."""

    enabled: Annotated[bool, Facets(required=True)]
    """Whether Nitro Enclaves are enabled; only instance types that support them are used."""
