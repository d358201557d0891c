"""Kernel parameters have the kernel's names and those of AKS's bootstrapping service."""

from __future__ import annotations

from karpenter_provider_azure.api.sysctls import Sysctls, kernel_key

KERNEL_KEYS = {
    "fs_aio_max_nr": "fs.aio-max-nr",
    "fs_file_max": "fs.file-max",
    "fs_inotify_max_user_watches": "fs.inotify.max_user_watches",
    "fs_nr_open": "fs.nr_open",
    "kernel_threads_max": "kernel.threads-max",
    "net_core_netdev_max_backlog": "net.core.netdev_max_backlog",
    "net_core_optmem_max": "net.core.optmem_max",
    "net_core_rmem_default": "net.core.rmem_default",
    "net_core_rmem_max": "net.core.rmem_max",
    "net_core_wmem_default": "net.core.wmem_default",
    "net_core_wmem_max": "net.core.wmem_max",
    "net_core_somaxconn": "net.core.somaxconn",
    "net_ipv4_ip_local_port_range": "net.ipv4.ip_local_port_range",
    "net_ipv4_neigh_default_gc_thresh1": "net.ipv4.neigh.default.gc_thresh1",
    "net_ipv4_neigh_default_gc_thresh2": "net.ipv4.neigh.default.gc_thresh2",
    "net_ipv4_neigh_default_gc_thresh3": "net.ipv4.neigh.default.gc_thresh3",
    "net_ipv4_tcp_fin_timeout": "net.ipv4.tcp_fin_timeout",
    "net_ipv4_tcp_keepalive_probes": "net.ipv4.tcp_keepalive_probes",
    "net_ipv4_tcp_keepalive_time": "net.ipv4.tcp_keepalive_time",
    "net_ipv4_tcp_keepalive_intvl": "net.ipv4.tcp_keepalive_intvl",
    "net_ipv4_tcp_max_syn_backlog": "net.ipv4.tcp_max_syn_backlog",
    "net_ipv4_tcp_max_tw_buckets": "net.ipv4.tcp_max_tw_buckets",
    "net_ipv4_tcp_tw_reuse": "net.ipv4.tcp_tw_reuse",
    "net_netfilter_nf_conntrack_buckets": "net.netfilter.nf_conntrack_buckets",
    "net_netfilter_nf_conntrack_max": "net.netfilter.nf_conntrack_max",
    "vm_max_map_count": "vm.max_map_count",
    "vm_swappiness": "vm.swappiness",
    "vm_vfs_cache_pressure": "vm.vfs_cache_pressure",
}


def test_every_field_has_the_name_of_its_kernel_parameter():
    assert {name: kernel_key(name) for name in Sysctls.model_fields} == KERNEL_KEYS
