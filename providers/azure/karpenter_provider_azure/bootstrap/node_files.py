"""Writes the files that the first boot of a node puts in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["containerd_config", "sysctl_file"]

_PAUSE_IMAGE: Final = "mcr.microsoft.com/oss/kubernetes/pause:3.6"
_NVIDIA_RUNTIME: Final = "/usr/bin/nvidia-container-runtime"
_RUNC: Final = "/usr/bin/runc"
_METRICS_ADDRESS: Final = "0.0.0.0:10257"

_KUBELET_SYSCTLS: Final = {
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}
"""Values that a kubelet with `--protect-kernel-defaults` needs to start (Kubernetes documentation)."""
_NODE_SYSCTLS: Final = {
    "fs.inotify.max_user_watches": "1048576",
    "net.core.somaxconn": "16384",
    "net.ipv4.tcp_max_syn_backlog": "16384",
    "net.ipv4.tcp_retries2": "8",
}


def containerd_config(*, uses_nvidia: bool) -> str:
    """Return the configuration of containerd (TOML); pods use NVIDIA's runtime where there are GPUs."""
    runtime = "nvidia" if uses_nvidia else "runc"
    binary = _NVIDIA_RUNTIME if uses_nvidia else _RUNC
    plugin = 'plugins."io.containerd.grpc.v1.cri"'
    lines = (
        "version = 2",
        "oom_score = -999",
        f"[{plugin}]",
        f'sandbox_image = "{_PAUSE_IMAGE}"',
        f"[{plugin}.containerd]",
        f'default_runtime_name = "{runtime}"',
        f"[{plugin}.containerd.runtimes.{runtime}]",
        'runtime_type = "io.containerd.runc.v2"',
        f"[{plugin}.containerd.runtimes.{runtime}.options]",
        f'BinaryName = "{binary}"',
        "SystemdCgroup = true",
        f"[{plugin}.registry]",
        'config_path = "/etc/containerd/certs.d"',
        "[metrics]",
        f'address = "{_METRICS_ADDRESS}"',
    )
    return "\n".join(lines) + "\n"


def sysctl_file(own: Mapping[str, str]) -> str:
    """Return a file of kernel parameters; `own` are those of the NodeClass by the kernel's names.

    A parameter that the kubelet checks stays as the kubelet needs it.
    """
    merged = {**_NODE_SYSCTLS, **own, **_KUBELET_SYSCTLS}
    return "".join(f"{key}={merged[key]}\n" for key in sorted(merged))
