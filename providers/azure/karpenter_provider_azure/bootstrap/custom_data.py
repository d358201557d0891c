r"""Writes a node's custom data: a shell script that starts provisioning.

Node images of AKS have the provisioning scripts. The script here sets their variables, one on a line,
sorted, as `NAME="value"` with `\`, `"`, `$` and `` ` `` escaped by `\`, and starts them. Readers of custom
data can rely on this form. The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure.bootstrap.kubelet_flags import kubelet_flags
from karpenter_provider_azure.bootstrap.node_labels import node_labels
from karpenter_provider_azure.bootstrap.node_software import (
    component_urls,
    containerd_config,
    gpu_driver,
    sysctl_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "LARGEST_BYTES",
    "custom_data",
    "script_network_plugin",
    "script_variables",
    "shell_script",
]

_TRUE: Final = "true"
_FALSE: Final = "false"
_SCRIPTS: Final = "/opt/azure/containers"
_CILIUM: Final = "cilium"

_CLOUD_CONFIG: Final = {
    "CLOUDPROVIDER_BACKOFF": _TRUE,
    "CLOUDPROVIDER_BACKOFF_DURATION": "5",
    "CLOUDPROVIDER_BACKOFF_EXPONENT": "0",
    "CLOUDPROVIDER_BACKOFF_JITTER": "0",
    "CLOUDPROVIDER_BACKOFF_MODE": "v2",
    "CLOUDPROVIDER_BACKOFF_RETRIES": "6",
    "CLOUDPROVIDER_RATELIMIT": _TRUE,
    "CLOUDPROVIDER_RATELIMIT_BUCKET": "100",
    "CLOUDPROVIDER_RATELIMIT_BUCKET_WRITE": "100",
    "CLOUDPROVIDER_RATELIMIT_QPS": "10",
    "CLOUDPROVIDER_RATELIMIT_QPS_WRITE": "10",
    "EXCLUDE_MASTER_FROM_STANDARD_LB": _TRUE,
    "LOAD_BALANCER_DISABLE_OUTBOUND_SNAT": _FALSE,
    "LOAD_BALANCER_SKU": "Standard",
    "MAXIMUM_LOADBALANCER_RULE_COUNT": "250",
    "SERVICE_PRINCIPAL_CLIENT_ID": "msi",
    "USE_INSTANCE_METADATA": _TRUE,
    "USE_MANAGED_IDENTITY_EXTENSION": _TRUE,
    "VM_TYPE": "standard",
}
"""Values of `/etc/kubernetes/azure.json`; nodes are single virtual machines with a managed identity."""

_SWITCHES: Final = {
    "ENABLE_TLS_BOOTSTRAPPING": _TRUE,
    "IS_VHD": _TRUE,
    "NEEDS_CGROUPV2": _TRUE,
    "NEEDS_CONTAINERD": _TRUE,
    **dict.fromkeys(
        [
            "DISABLE_SSH",
            "ENABLE_GPU_DEVICE_PLUGIN_IF_NEEDED",
            "ENABLE_HOSTS_CONFIG_AGENT",
            "ENABLE_IMDS_RESTRICTION",
            "ENABLE_SECURE_TLS_BOOTSTRAPPING",
            "ENABLE_UNATTENDED_UPGRADES",
            "ENSURE_NO_DUPE_PROMISCUOUS_BRIDGE",
            "HAS_CUSTOM_SEARCH_DOMAIN",
            "HAS_KUBELET_DISK_TYPE",
            "INSERT_IMDS_RESTRICTION_RULE_TO_MANGLE_TABLE",
            "IPV6_DUAL_STACK_ENABLED",
            "IS_CUSTOM_CLOUD",
            "IS_KATA",
            "IS_KRUSTLET",
            "KUBELET_CONFIG_FILE_ENABLED",
            "MIG_NODE",
            "NEEDS_DOCKER_LOGIN",
            "SGX_NODE",
            "SHOULD_CONFIGURE_CUSTOM_CA_TRUST",
            "SHOULD_CONFIGURE_HTTP_PROXY",
            "SHOULD_CONFIGURE_HTTP_PROXY_CA",
            "TELEPORT_ENABLED",
        ],
        _FALSE,
    ),
}

_FILES: Final = {
    "CSE_CONFIG_FILEPATH": f"{_SCRIPTS}/provision_configs.sh",
    "CSE_DISTRO_HELPERS_FILEPATH": f"{_SCRIPTS}/provision_source_distro.sh",
    "CSE_DISTRO_INSTALL_FILEPATH": f"{_SCRIPTS}/provision_installs_distro.sh",
    "CSE_HELPERS_FILEPATH": f"{_SCRIPTS}/provision_source.sh",
    "CSE_INSTALL_FILEPATH": f"{_SCRIPTS}/provision_installs.sh",
    "CUSTOM_SEARCH_DOMAIN_FILEPATH": f"{_SCRIPTS}/setup-custom-search-domains.sh",
}

_OTHERS: Final = {
    "CLI_TOOL": "ctr",
    "CONTAINER_RUNTIME": "containerd",
    "CUSTOM_CA_TRUST_COUNT": "0",
    "MCR_REPOSITORY_BASE": "mcr.microsoft.com",
    "OUTBOUND_COMMAND": "curl --silent --show-error --output /dev/null "
    "https://mcr.microsoft.com/v2/",
}


def script_variables(boot: BootConfiguration) -> dict[str, str]:
    """Return the variables by name, sorted.

    Raises:
        NodeClassNotReadyError: a field of the NodeClass is unusable; names object, field and value.
    """
    flags, labels = kubelet_flags(boot), node_labels(boot)
    version = boot.kubernetes_version
    variables = (
        _CLOUD_CONFIG
        | _SWITCHES
        | _FILES
        | _OTHERS
        | component_urls(version, boot.target.size.arch, release=boot.kubernetes_release)
        | _cluster_variables(boot)
        | _network_variables(boot)
        | _gpu_variables(boot)
        | _os_variables(boot)
        | {
            "KUBELET_FLAGS": " ".join(f"--{name}={value}" for name, value in flags.items()),
            "KUBELET_NODE_LABELS": ",".join(f"{key}={value}" for key, value in labels.items()),
            "KUBERNETES_VERSION": boot.kubernetes_release,
        }
    )
    return {name: variables[name] for name in sorted(variables)}


def script_network_plugin(settings: AzureSettings) -> str:
    """Return the network plug-in that the scripts install: `azure`, or `none` if the cluster does it."""
    is_node_subnet = settings.network_plugin == "azure" and not settings.network_plugin_mode
    installs = is_node_subnet and settings.network_dataplane != _CILIUM
    return "azure" if installs else "none"


def _cluster_variables(boot: BootConfiguration) -> dict[str, str]:
    cluster, settings = boot.cluster, boot.cluster.settings
    endpoint = urlsplit(settings.cluster_endpoint)
    return {
        "ADMINUSER": settings.linux_admin_username,
        "API_SERVER_NAME": endpoint.hostname or "",
        "KUBE_CA_CRT": _base64(cluster.ca_pem),
        "LOCATION": settings.location,
        "RESOURCE_GROUP": settings.node_resource_group,
        "SERVICE_PRINCIPAL_FILE_CONTENT": _base64("msi"),
        "SUBSCRIPTION_ID": settings.azure_subscription_id,
        "TARGET_CLOUD": settings.arm_cloud,
        "TARGET_ENVIRONMENT": settings.arm_cloud,
        "TENANT_ID": settings.azure_tenant_id,
        "TLS_BOOTSTRAP_TOKEN": cluster.bootstrap_token,
        "USER_ASSIGNED_IDENTITY_ID": settings.kubelet_identity_client_id,
    }


def _network_variables(boot: BootConfiguration) -> dict[str, str]:
    settings, subnet, group = boot.cluster.settings, boot.subnet, boot.cluster.security_group
    return {
        "NETWORK_PLUGIN": script_network_plugin(settings),
        "NETWORK_POLICY": settings.network_policy,
        "NETWORK_SECURITY_GROUP": group.name if group is not None else "",
        "ROUTE_TABLE": (
            f"aks-agentpool-{group.cluster_id}-routetable" if group is not None else ""
        ),
        "SUBNET": subnet.name,
        "VIRTUAL_NETWORK": subnet.parent().name,
        "VIRTUAL_NETWORK_RESOURCE_GROUP": subnet.resource_group,
    }


def _gpu_variables(boot: BootConfiguration) -> dict[str, str]:
    variables = {
        "CONFIG_GPU_DRIVER_IF_NEEDED": _FALSE,
        "CONTAINERD_CONFIG_CONTENT": _base64(
            containerd_config(uses_nvidia=boot.installs_gpu_driver)
        ),
        "GPU_NEEDS_FABRIC_MANAGER": _FALSE,
        "GPU_NODE": _FALSE,
    }
    if not boot.installs_gpu_driver:
        return variables
    driver = gpu_driver(boot.target.size.name)
    return variables | {
        "CONFIG_GPU_DRIVER_IF_NEEDED": _TRUE,
        "GPU_DRIVER_TYPE": driver.type,
        "GPU_DRIVER_VERSION": driver.version,
        "GPU_IMAGE_SHA": driver.image_suffix,
        "GPU_NEEDS_FABRIC_MANAGER": _TRUE if driver.needs_fabric_manager else _FALSE,
        "GPU_NODE": _TRUE,
    }


def _os_variables(boot: BootConfiguration) -> dict[str, str]:
    config = boot.target.node_class.spec.linux_os_config
    swap_mib = (config.swap_file_mib if config is not None else None) or 0
    thp_enabled = config.transparent_huge_page_enabled if config is not None else ""
    thp_defrag = config.transparent_huge_page_defrag if config is not None else ""
    sysctls = config.sysctls if config is not None else None
    own = sysctls.by_kernel_key() if sysctls is not None else {}
    return {
        "SHOULD_CONFIG_SWAP_FILE": _TRUE if swap_mib else _FALSE,
        "SHOULD_CONFIG_TRANSPARENT_HUGE_PAGE": _TRUE if thp_enabled or thp_defrag else _FALSE,
        "SWAP_FILE_SIZE_MB": str(swap_mib),
        "SYSCTL_CONTENT": _base64(sysctl_file(own)),
        "THP_DEFRAG": thp_defrag,
        "THP_ENABLED": thp_enabled,
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


LARGEST_BYTES: Final = 65_535
"""Size limit of custom data before it is written in base64 (Azure)."""

_SPECIAL: Final = re.compile(r'([\\"$`])')
_BEGINNING: Final = """\
#!/bin/bash
# Sets the variables of the provisioning scripts and starts them.
set -o allexport
"""
# Scripts wait for the mark in manifest.json; the folder of events is that of an extension, which may
# be missing.
_END: Final = """\
mkdir -p /var/log/azure/Microsoft.Azure.Extensions.CustomScript/events
printf '#EOF\\n' >> /opt/azure/manifest.json
tries=0
until grep -qs EOF /opt/azure/containers/provision.sh; do
  tries=$((tries + 1))
  [ "$tries" -lt 1200 ] || exit 100
  sleep 1
done
exec /usr/bin/nohup /bin/bash /opt/azure/containers/provision_start.sh
"""


def custom_data(boot: BootConfiguration) -> str:
    """Return the custom data of a node, in base64.

    Raises:
        NodeClassNotReadyError: a field of the NodeClass is unusable, or the script is too large.
    """
    script = shell_script(script_variables(boot)).encode()
    if len(script) > LARGEST_BYTES:
        raise NodeClassNotReadyError(
            f'NodeClaim "{boot.target.node_claim.name}": custom data with its labels and taints has '
            f"{len(script):,} bytes, and Azure takes {LARGEST_BYTES:,} at most"
        )
    return base64.b64encode(script).decode("ascii")


def shell_script(variables: Mapping[str, str]) -> str:
    """Return the script that sets these variables."""
    lines = (f'{name}="{_SPECIAL.sub(_ESCAPED, variables[name])}"\n' for name in sorted(variables))
    return f"{_BEGINNING}{''.join(lines)}{_END}"


_ESCAPED: Final = r"\\\1"
