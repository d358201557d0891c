"""Describes software that a node's first boot installs, and its files.

Node images have most of it. Versions and URLs are those of AKS's node images (Azure/AgentBaker).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_provider_azure.kubernetes_versions import KubernetesVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GpuDriver", "component_urls", "containerd_config", "gpu_driver", "sysctl_file"]

_MIRROR: Final = "https://acs-mirror.azureedge.net"
_PACKAGED_SINCE: Final = KubernetesVersion(1, 34)
"""Node images install kubelets of this version and later as packages."""
_CREDENTIAL_PROVIDER_SINCE: Final = KubernetesVersion(1, 30)
_CREDENTIAL_PROVIDERS: Final[Mapping[int, str]] = {30: "1.30.12", 31: "1.31.6", 32: "1.32.5"}
"""Versions of the credential provider by the minor version of Kubernetes."""
_NEWEST_CREDENTIAL_PROVIDER: Final = "1.33.0"
_CNI: Final = "1.1.1"
_AZURE_CNI: Final = "1.4.32"


def component_urls(
    version: KubernetesVersion, architecture: str, *, release: str
) -> dict[str, str]:
    """Return the URLs of components by the script's variable; empty for one that is not downloaded.

    `release` is the whole name of the version: with long-term support it has an end (`1.30.101-akslts`).
    """
    kubelet = credential_provider = ""
    if version < _PACKAGED_SINCE:
        kubelet = (
            f"{_MIRROR}/kubernetes/v{release}/binaries/kubernetes-node-linux-{architecture}.tar.gz"
        )
    if version >= _CREDENTIAL_PROVIDER_SINCE:
        own = _CREDENTIAL_PROVIDERS.get(version.minor, _NEWEST_CREDENTIAL_PROVIDER)
        credential_provider = (
            f"{_MIRROR}/cloud-provider-azure/v{own}/binaries/"
            f"azure-acr-credential-provider-linux-{architecture}-v{own}.tar.gz"
        )
    return {
        "CNI_PLUGINS_URL": (
            f"{_MIRROR}/cni-plugins/v{_CNI}/binaries/cni-plugins-linux-{architecture}-v{_CNI}.tgz"
        ),
        "CREDENTIAL_PROVIDER_DOWNLOAD_URL": credential_provider,
        "KUBE_BINARY_URL": kubelet,
        "VNET_CNI_PLUGINS_URL": (
            f"{_MIRROR}/azure-cni/v{_AZURE_CNI}/binaries/"
            f"azure-vnet-cni-linux-{architecture}-v{_AZURE_CNI}.tgz"
        ),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDriver:
    """A driver of NVIDIA."""

    type: str
    """`cuda`, `cuda-lts`, `grid` or `grid-v20`."""
    version: str
    image_suffix: str
    """Date of the driver image, the end of its tag."""
    needs_fabric_manager: bool
    """Whether the GPUs are connected by NVSwitch, which a service of its own starts."""

    @property
    def is_grid(self) -> bool:
        """Whether it is a driver for virtual GPUs and graphics."""
        return self.type.startswith("grid")


_DEFAULT: Final = ("cuda-lts", "580.159.04", "20260629214430")
_LEGACY_CUDA: Final = ("cuda", "470.82.01", "20260629214430")
_BY_SIZE: Final = (
    (re.compile(r"standard_nv\d+adm?s_a10_v5"), ("grid", "570.211.01", "20260522192315")),
    (re.compile(r"standard_nc\d+ads_a10_v4"), ("grid", "570.211.01", "20260522192315")),
    (
        re.compile(r"standard_nc\d+l?ds_xl_rtxpro6000bse_v6"),
        ("grid-v20", "595.58.03", "20260609172331"),
    ),
    (re.compile(r"standard_nc\d+r?(_promo)?"), _LEGACY_CUDA),
)
_WITH_NVSWITCH: Final = re.compile(r"standard_nd\d+[a-z]*(_[a-z0-9]+)*_v[45]")
"""HGX servers with A100, H100 and H200."""


def gpu_driver(size: str) -> GpuDriver:
    """Return the driver for a size with GPUs of NVIDIA."""
    name = size.lower()
    found = next((row for pattern, row in _BY_SIZE if pattern.fullmatch(name)), _DEFAULT)
    driver_type, version, suffix = found
    return GpuDriver(
        type=driver_type,
        version=version,
        image_suffix=suffix,
        needs_fabric_manager=_WITH_NVSWITCH.fullmatch(name) is not None,
    )


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
