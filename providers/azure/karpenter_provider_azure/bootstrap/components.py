"""Names the versions of components that the first boot of a node may download.

Node images have most of them. Versions and URLs are those of AKS's node images (Azure/AgentBaker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_provider_azure.kubernetes_versions import KubernetesVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["component_urls"]

_MIRROR: Final = "https://acs-mirror.azureedge.net"
_PACKAGED_SINCE: Final = KubernetesVersion(1, 34)
"""Node images install kubelets of this version and later as packages."""
_CREDENTIAL_PROVIDER_SINCE: Final = KubernetesVersion(1, 30)
_CREDENTIAL_PROVIDERS: Final[Mapping[int, str]] = {30: "1.30.12", 31: "1.31.6", 32: "1.32.5"}
"""Versions of the credential provider by the minor version of Kubernetes."""
_NEWEST_CREDENTIAL_PROVIDER: Final = "1.33.0"
_CNI: Final = "1.1.1"
_AZURE_CNI: Final = "1.4.32"


def component_urls(version: KubernetesVersion, architecture: str) -> dict[str, str]:
    """Return the URLs of components by the script's variable; empty for one that is not downloaded."""
    text = f"{version.major}.{version.minor}.{version.patch}"
    kubelet = credential_provider = ""
    if version < _PACKAGED_SINCE:
        kubelet = (
            f"{_MIRROR}/kubernetes/v{text}/binaries/kubernetes-node-linux-{architecture}.tar.gz"
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
