"""Reads the provider's settings.

Flags, variables and defaults are those of Karpenter's AWS provider. `--cluster-name` is the core's.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from karpenter_core.provider.contract import SettingSpec
from karpenter_core.provider.kit.setting_values import SettingReader

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.provider.contract import ProviderContext

__all__ = ["GATES", "NODE_CLASS_CEL", "SETTINGS", "AwsSettings"]

NODE_CLASS_CEL: Final = "NodeClassCEL"
"""The gate of CEL expressions in `spec.kubelet`."""
GATES: Final = {NODE_CLASS_CEL: False}
"""Gates of the provider with their defaults; the core has its own."""

SHORTEST_REFRESH: Final = timedelta(minutes=1)

_log: Final[FilteringBoundLogger] = structlog.get_logger("aws.settings")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})

SETTINGS: Final = (
    SettingSpec(
        flag="--cluster-endpoint",
        env="CLUSTER_ENDPOINT",
        default="",
        help="URL of the API server for nodes; empty = read from EKS.",
    ),
    SettingSpec(
        flag="--cluster-ca-bundle",
        env="CLUSTER_CA_BUNDLE",
        default="",
        help="Certificates of the API server for nodes, in base64; empty = those that this "
        "process trusts.",
    ),
    SettingSpec(
        flag="--isolated-vpc",
        env="ISOLATED_VPC",
        default=False,
        help="Call nothing outside the VPC: prices are the shipped ones, and instance profiles are "
        "not deleted.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--eks-control-plane",
        env="EKS_CONTROL_PLANE",
        default=False,
        help="Read the cluster's version from EKS, which runs the control plane.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--vm-memory-overhead-percent",
        env="VM_MEMORY_OVERHEAD_PERCENT",
        default=0.075,
        help="Share of an instance type's memory that is assumed to be missing on its nodes, until one "
        "of them has registered, such as 0.075 for 7.5 %.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--interruption-queue",
        env="INTERRUPTION_QUEUE",
        default="",
        help="SQS queue with interruption messages; empty = no queue.",
    ),
    SettingSpec(
        flag="--reserved-enis",
        env="RESERVED_ENIS",
        default=0,
        help="Number of network interfaces of each node that give pods no addresses, as in custom "
        "networking of the VPC CNI.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--disable-dry-run",
        env="DISABLE_DRY_RUN",
        default=False,
        help="Do not check EC2NodeClasses by launches with DryRun.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--enable-zonal-shift",
        env="ENABLE_ZONAL_SHIFT",
        default=False,
        help="Launch nothing in zones that a zonal shift of the cluster moves traffic away from.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--ami-refresh-interval",
        env="AMI_REFRESH_INTERVAL",
        default=timedelta(minutes=1),
        help="Time that discovered images are cached; one minute at least.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--subnet-refresh-interval",
        env="SUBNET_REFRESH_INTERVAL",
        default=timedelta(minutes=1),
        help="Time that discovered subnets are cached; one minute at least.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--aws-feature-gates",
        env="AWS_FEATURE_GATES",
        default=",".join(f"{gate}={str(on).lower()}" for gate, on in GATES.items()),
        help="Optional features of the provider, A=true,B=false; omitted gates keep their default.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """The settings, read."""

    cluster_name: str
    cluster_endpoint: str = ""
    """As configured; empty when it is to be asked of EKS."""
    cluster_ca_bundle: str = ""
    """PEM in base64, as configured or as this process trusts; empty when neither is known."""
    isolated_vpc: bool = False
    eks_control_plane: bool = False
    vm_memory_overhead_percent: float = 0.075
    """A share: 0.075 is 7.5 %."""
    interruption_queue: str = ""
    reserved_enis: int = 0
    disable_dry_run: bool = False
    enable_zonal_shift: bool = False
    ami_refresh_interval: timedelta = SHORTEST_REFRESH
    subnet_refresh_interval: timedelta = SHORTEST_REFRESH
    reserved_capacity: bool = True
    """The core's feature gate ReservedCapacity: without it reservations are neither offered nor used."""
    gates: frozenset[str] = frozenset()
    """Names of the provider's gates that are on."""
    unknown_gates: tuple[str, ...] = ()
    """Names given as gates that are none."""

    @classmethod
    def from_context(cls, context: ProviderContext) -> AwsSettings:
        """Read what the core hands over.

        Raises:
            SettingsError: a value cannot be used; all such values are named.
        """
        read = SettingReader(context)
        gates, unknown_gates, complaint = _read_gates(read.text("aws-feature-gates"))
        for gate in unknown_gates:
            _log.warning("unknown feature gate is ignored", gate=gate, known=list(GATES))
        if not context.cluster.name:
            read.complain(
                "--cluster-name: must be given; without it the instances of several clusters cannot be "
                "distinguished"
            )
        ca_bundle = (
            read.text("cluster-ca-bundle")
            or base64.b64encode(context.cluster.ca_bundle.encode()).decode()
        )
        if not _is_base64(ca_bundle):
            read.complain("--cluster-ca-bundle: must be base64")
        if complaint:
            read.complain(complaint)
        settings = cls(
            cluster_name=context.cluster.name,
            cluster_endpoint=read.url("cluster-endpoint"),
            cluster_ca_bundle=ca_bundle,
            isolated_vpc=read.switch("isolated-vpc"),
            eks_control_plane=read.switch("eks-control-plane"),
            vm_memory_overhead_percent=read.number("vm-memory-overhead-percent", at_least=0),
            interruption_queue=read.text("interruption-queue"),
            reserved_enis=read.count("reserved-enis"),
            disable_dry_run=read.switch("disable-dry-run"),
            enable_zonal_shift=read.switch("enable-zonal-shift"),
            ami_refresh_interval=read.duration("ami-refresh-interval", at_least=SHORTEST_REFRESH),
            subnet_refresh_interval=read.duration(
                "subnet-refresh-interval", at_least=SHORTEST_REFRESH
            ),
            reserved_capacity=context.feature_gates.reserved_capacity,
            gates=gates,
            unknown_gates=unknown_gates,
        )
        read.finish()
        return settings


def _read_gates(text: str) -> tuple[frozenset[str], tuple[str, ...], str]:
    """Read `A=true,B=false`: the gates that are on, those that are unknown, and a complaint."""
    chosen = dict(GATES)
    unknown: list[str] = []
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in GATES:
            unknown += [name] if name else []
            continue
        if value not in _TRUE | _FALSE:
            return (
                frozenset(),
                (),
                f'--aws-feature-gates: {name} must be true or false, not "{value}"',
            )
        chosen[name] = value in _TRUE
    return frozenset(name for name, on in chosen.items() if on), tuple(unknown), ""


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    return True
