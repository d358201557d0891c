"""Model of the kernel parameters of a node."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets

__all__ = ["Sysctls", "kernel_key"]


def _between(minimum: int, maximum: int) -> Facets:
    return Facets(format="int32", minimum=minimum, maximum=maximum)


def _not_above(lower: str, upper: str) -> CEL:
    return CEL(
        f"!has(self.{lower}) || !has(self.{upper}) || self.{lower} <= self.{upper}",
        f"{lower} may not be above {upper}",
    )


_SOCKET_BUFFER: Final = _between(212_992, 134_217_728)
_SPLIT_PORTS: Final = "self.split(' ')"
_FIRST_PORT: Final = f"int({_SPLIT_PORTS}[0])"
_LAST_PORT: Final = f"int({_SPLIT_PORTS}[1])"


class Sysctls(Model):
    """Kernel parameters of the node; those that are unset are as the image has them."""

    cel: ClassVar = (
        _not_above("netCoreRmemDefault", "netCoreRmemMax"),
        _not_above("netCoreWmemDefault", "netCoreWmemMax"),
        _not_above("netIPv4NeighDefaultGcThresh1", "netIPv4NeighDefaultGcThresh2"),
        _not_above("netIPv4NeighDefaultGcThresh2", "netIPv4NeighDefaultGcThresh3"),
    )

    fs_aio_max_nr: Annotated[int | None, _between(65_536, 6_553_500)] = None
    """fs.aio-max-nr: requests of asynchronous I/O."""
    fs_file_max: Annotated[int | None, _between(8_192, 12_000_500)] = None
    """fs.file-max: file handles."""
    fs_inotify_max_user_watches: Annotated[int | None, _between(781_250, 2_097_152)] = None
    """fs.inotify.max_user_watches: watches of a user."""
    fs_nr_open: Annotated[int | None, _between(8_192, 20_000_500)] = None
    """fs.nr_open: file handles of a process."""
    kernel_threads_max: Annotated[int | None, _between(20, 513_785)] = None
    """kernel.threads-max: threads."""
    net_core_netdev_max_backlog: Annotated[int | None, _between(1_000, 3_240_000)] = None
    """net.core.netdev_max_backlog: received packets that wait for the kernel."""
    net_core_optmem_max: Annotated[int | None, _between(20_480, 4_194_304)] = None
    """net.core.optmem_max: bytes of ancillary buffers of a socket."""
    net_core_rmem_default: Annotated[int | None, _SOCKET_BUFFER] = None
    """net.core.rmem_default: bytes of a socket's receive buffer."""
    net_core_rmem_max: Annotated[int | None, _SOCKET_BUFFER] = None
    """net.core.rmem_max: maximum of a socket's receive buffer."""
    net_core_wmem_default: Annotated[int | None, _SOCKET_BUFFER] = None
    """net.core.wmem_default: bytes of a socket's send buffer."""
    net_core_wmem_max: Annotated[int | None, _SOCKET_BUFFER] = None
    """net.core.wmem_max: maximum of a socket's send buffer."""
    net_core_somaxconn: Annotated[int | None, _between(4_096, 3_240_000)] = None
    """net.core.somaxconn: connections that wait to be accepted."""
    net_ipv4_ip_local_port_range: Annotated[
        str,
        Facets(pattern=r"^\d+ \d+$", max_length=32),
        CEL(
            f"!self.matches('^[0-9]+ [0-9]+$') || ({_FIRST_PORT} >= 1024 && {_FIRST_PORT} <= 60999)",
            "the first port must be from 1024 to 60999",
        ),
        CEL(
            f"!self.matches('^[0-9]+ [0-9]+$') || ({_LAST_PORT} >= 32768 && {_LAST_PORT} <= 65535)",
            "the last port must be from 32768 to 65535",
        ),
        CEL(
            f"!self.matches('^[0-9]+ [0-9]+$') || {_FIRST_PORT} <= {_LAST_PORT}",
            "the first port may not be above the last one",
        ),
        Field(alias="netIPv4IPLocalPortRange"),
    ] = ""
    """net.ipv4.ip_local_port_range: first and last port, such as 32768 60999."""
    net_ipv4_neigh_default_gc_thresh1: Annotated[
        int | None, _between(128, 80_000), Field(alias="netIPv4NeighDefaultGcThresh1")
    ] = None
    """net.ipv4.neigh.default.gc_thresh1: entries that the ARP cache keeps."""
    net_ipv4_neigh_default_gc_thresh2: Annotated[
        int | None, _between(512, 90_000), Field(alias="netIPv4NeighDefaultGcThresh2")
    ] = None
    """net.ipv4.neigh.default.gc_thresh2: entries that the ARP cache exceeds for seconds at most."""
    net_ipv4_neigh_default_gc_thresh3: Annotated[
        int | None, _between(1_024, 100_000), Field(alias="netIPv4NeighDefaultGcThresh3")
    ] = None
    """net.ipv4.neigh.default.gc_thresh3: maximum number of entries in the ARP cache."""
    net_ipv4_tcp_fin_timeout: Annotated[
        int | None, _between(5, 120), Field(alias="netIPv4TCPFinTimeout")
    ] = None
    """net.ipv4.tcp_fin_timeout: seconds that a closed connection waits for its peer."""
    net_ipv4_tcp_keepalive_probes: Annotated[
        int | None, _between(1, 15), Field(alias="netIPv4TCPKeepaliveProbes")
    ] = None
    """net.ipv4.tcp_keepalive_probes: probes without answer that end a connection."""
    net_ipv4_tcp_keepalive_time: Annotated[
        int | None, _between(30, 432_000), Field(alias="netIPv4TCPKeepaliveTime")
    ] = None
    """net.ipv4.tcp_keepalive_time: seconds after which an idle connection is probed."""
    net_ipv4_tcp_keepalive_intvl: Annotated[
        int | None, _between(10, 90), Field(alias="netIPv4TCPKeepaliveIntvl")
    ] = None
    """net.ipv4.tcp_keepalive_intvl: seconds between probes."""
    net_ipv4_tcp_max_syn_backlog: Annotated[
        int | None, _between(128, 3_240_000), Field(alias="netIPv4TCPMaxSynBacklog")
    ] = None
    """net.ipv4.tcp_max_syn_backlog: connection requests that wait for the client."""
    net_ipv4_tcp_max_tw_buckets: Annotated[
        int | None, _between(8_000, 1_440_000), Field(alias="netIPv4TCPMaxTwBuckets")
    ] = None
    """net.ipv4.tcp_max_tw_buckets: sockets in the state TIME_WAIT."""
    net_ipv4_tcp_tw_reuse: Annotated[bool | None, Field(alias="netIPv4TCPTwReuse")] = None
    """net.ipv4.tcp_tw_reuse: whether sockets in the state TIME_WAIT are used again."""
    net_netfilter_nf_conntrack_buckets: Annotated[int | None, _between(65_536, 524_288)] = None
    """net.netfilter.nf_conntrack_buckets: buckets of the connection table."""
    net_netfilter_nf_conntrack_max: Annotated[int | None, _between(131_072, 2_097_152)] = None
    """net.netfilter.nf_conntrack_max: connections in the connection table."""
    vm_max_map_count: Annotated[int | None, _between(65_530, 262_144)] = None
    """vm.max_map_count: memory areas of a process."""
    vm_swappiness: Annotated[int | None, _between(0, 100)] = None
    """vm.swappiness: tendency to swap memory."""
    vm_vfs_cache_pressure: Annotated[int | None, _between(0, 100)] = None
    """vm.vfs_cache_pressure: tendency to free the cache of directories and inodes."""

    def by_kernel_key(self) -> dict[str, str]:
        """Return the parameters that are set, under the kernel's names."""
        values = self.model_dump(exclude_defaults=True, by_alias=False)
        return {
            kernel_key(name): str(int(value)) if isinstance(value, bool) else str(value)
            for name, value in sorted(values.items())
        }


_GROUPS: Final = (
    "fs_inotify",
    "fs",
    "kernel",
    "net_core",
    "net_ipv4_neigh_default",
    "net_ipv4",
    "net_netfilter",
    "vm",
)
_WITH_DASHES: Final = frozenset({"fs_aio_max_nr", "fs_file_max", "kernel_threads_max"})


def kernel_key(name: str) -> str:
    """Return the kernel's name of a field: `fs.aio-max-nr`."""
    group = next(each for each in _GROUPS if name.startswith(f"{each}_"))
    key = name.removeprefix(f"{group}_")
    own = key.replace("_", "-") if name in _WITH_DASHES else key
    return f"{group.replace('_', '.')}.{own}"
