"""Reads the provider's settings, and names all that cannot be used."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, final
from uuid import UUID

from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.setting_values import SettingReader
from karpenter_provider_azure.bootstrap_tokens import read_token
from karpenter_provider_azure.cloud_environment import (
    CloudEnvironment,
    named_environment,
    read_environment_file,
)
from karpenter_provider_azure.kubernetes_versions import parse_version
from karpenter_provider_azure.resource_ids import ResourceId
from karpenter_provider_azure.setting_specs import (
    LOCAL_DNS_PREFERRED_SINCE,
    MACHINE_MODES,
    NETWORK_DATAPLANES,
    NETWORK_PLUGIN_MODES,
    NETWORK_PLUGINS,
    PRICING_URL,
    PROVISION_MODES,
    SCRIPTLESS_MODE,
    SETTINGS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.contract import ProviderContext

__all__ = ["SETTINGS", "AzureSettings", "parse_tags"]

_ADMIN_NAME: Final = re.compile(r"[A-Za-z][-A-Za-z0-9_]*")
_LONGEST_ADMIN_NAME: Final = 32
_LONGEST_TAG_KEY: Final = 512
_LONGEST_TAG_VALUE: Final = 256
_BAD_IN_TAG_KEYS: Final = frozenset("<>%&\\?/")
_WEB: Final = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings:
    """The settings, read."""

    cluster_name: str
    cluster_endpoint: str
    kubelet_bootstrap_token: str = field(repr=False)
    ssh_public_key: str = field(repr=False)
    vnet_subnet_id: str
    node_resource_group: str
    azure_subscription_id: str
    location: str
    kubelet_bootstrap_token_file: str = ""
    """A file or folder that `read_token` reads, instead of `kubelet_bootstrap_token`."""
    azure_tenant_id: str = ""
    arm_resource_group: str = ""
    """Of the managed cluster; empty if it was not given."""
    cloud: CloudEnvironment = field(default_factory=lambda: named_environment(""))
    """The endpoints of `ARM_CLOUD` or `AZURE_ENVIRONMENT_FILEPATH`."""
    ca_bundle: str = ""
    """A file; empty = the usual certificates."""
    pricing_url: str = PRICING_URL
    """Empty = the shipped prices."""
    vm_memory_overhead_percent: float = 0.075
    """A share: 0.075 is 7.5 %."""
    linux_admin_username: str = "azureuser"
    network_plugin: str = "azure"
    """One of `NETWORK_PLUGINS`."""
    network_plugin_mode: str = "overlay"
    """One of `NETWORK_PLUGIN_MODES`."""
    network_policy: str = ""
    network_dataplane: str = "cilium"
    """One of `NETWORK_DATAPLANES`."""
    dns_service_ip: str = ""
    local_dns_preferred_since: str = LOCAL_DNS_PREFERRED_SINCE
    """A version of Kubernetes."""
    vnet_guid: str = ""
    kubelet_identity_client_id: str = ""
    node_identities: tuple[str, ...] = ()
    """Resource ids."""
    provision_mode: str = SCRIPTLESS_MODE
    """One of `VM_MODES`."""
    nodebootstrapping_server_url: str = ""
    use_sig: bool = False
    sig_subscription_id: str = ""
    sig_access_token_server_url: str = ""
    additional_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    enable_azure_sdk_logging: bool = True
    node_osdisk_diskencryptionset_id: str = ""
    manage_existing_aks_machines: bool = False
    aks_machines_pool_name: str = ""

    @property
    def is_overlay(self) -> bool:
        """Whether pods have addresses of an overlay network."""
        return self.network_plugin == "azure" and self.network_plugin_mode == "overlay"

    @property
    def arm_cloud(self) -> str:
        """The name of the cloud; may be empty for one that a file describes."""
        return self.cloud.name

    @classmethod
    def from_context(cls, context: ProviderContext) -> AzureSettings:
        """Read what the core hands over.

        Raises:
            SettingsError: values cannot be used, or are missing; all of them are named.
        """
        read = _AzureReader(context)
        if not context.cluster.name:
            read.complain("--cluster-name: must be given")
        settings = cls(
            cluster_name=context.cluster.name,
            cluster_endpoint=read.required_url("cluster-endpoint"),
            kubelet_bootstrap_token=read.token(
                "kubelet-bootstrap-token", path_flag="kubelet-bootstrap-token-file"
            ),
            kubelet_bootstrap_token_file=read.text("kubelet-bootstrap-token-file"),
            ssh_public_key=read.needed("ssh-public-key"),
            vnet_subnet_id=read.resource_id(
                "vnet-subnet-id", "Microsoft.Network/virtualNetworks/subnets", is_required=True
            ),
            node_resource_group=read.needed("node-resource-group"),
            # Provider IDs contain it, and Azure and Kubernetes write it in lower case.
            azure_subscription_id=read.needed(
                "azure-subscription-id", "arm-subscription-id"
            ).lower(),
            location=read.needed("location").lower().replace(" ", ""),
            azure_tenant_id=read.text("azure-tenant-id") or read.text("arm-tenant-id"),
            arm_resource_group=read.text("arm-resource-group"),
            cloud=read.cloud(),
            ca_bundle=read.file("azure-ca-bundle"),
            pricing_url=read.web_url("azure-pricing-url"),
            vm_memory_overhead_percent=read.share("vm-memory-overhead-percent"),
            linux_admin_username=read.admin_name("linux-admin-username"),
            network_plugin=read.choice("network-plugin", NETWORK_PLUGINS),
            network_plugin_mode=read.choice("network-plugin-mode", NETWORK_PLUGIN_MODES),
            network_policy=read.text("network-policy"),
            network_dataplane=read.choice("network-dataplane", NETWORK_DATAPLANES),
            dns_service_ip=read.ip("dns-service-ip"),
            local_dns_preferred_since=read.version("local-dns-preferred-since"),
            vnet_guid=read.guid("vnet-guid"),
            kubelet_identity_client_id=read.guid("kubelet-identity-client-id"),
            node_identities=read.identities("node-identities"),
            provision_mode=read.choice("provision-mode", PROVISION_MODES),
            nodebootstrapping_server_url=read.web_url("nodebootstrapping-server-url"),
            use_sig=read.switch("use-sig"),
            sig_subscription_id=read.text("sig-subscription-id"),
            sig_access_token_server_url=read.web_url("sig-access-token-server-url"),
            additional_tags=read.tags("additional-tags"),
            enable_azure_sdk_logging=read.switch("enable-azure-sdk-logging"),
            node_osdisk_diskencryptionset_id=read.resource_id(
                "node-osdisk-diskencryptionset-id", "Microsoft.Compute/diskEncryptionSets"
            ),
            manage_existing_aks_machines=read.switch("manage-existing-aks-machines"),
            aks_machines_pool_name=read.text("aks-machines-pool-name"),
        )
        for complaint in _contradictions(settings):
            read.complain(complaint)
        read.finish()
        return settings


def parse_tags(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the tags of a list `k=v,k2=v2`, and what is wrong with it."""
    tags: dict[str, str] = {}
    complaints: list[str] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = (part.strip() for part in entry.partition("="))
        if not separator or not key:
            complaints.append(f'"{entry}" must be key=value')
        elif len(key) > _LONGEST_TAG_KEY or len(value) > _LONGEST_TAG_VALUE:
            complaints.append(
                f'"{key[:40]}" must have at most {_LONGEST_TAG_KEY} characters, and its value '
                f"{_LONGEST_TAG_VALUE}"
            )
        elif _BAD_IN_TAG_KEYS & set(key):
            complaints.append(f'"{key}" must have none of the characters < > % & \\ ? /')
        elif key.lower() in {known.lower() for known in tags}:
            complaints.append(f'"{key}" must be there once, the case does not count')
        else:
            tags[key] = value
    return tags, complaints


def _contradictions(settings: AzureSettings) -> list[str]:
    """Return what settings that can be used alone contradict."""
    found: list[str] = []
    mode = settings.provision_mode
    if settings.network_plugin == "none" and settings.network_plugin_mode:
        found.append(
            "--network-plugin-mode: must be empty with --network-plugin none, not "
            f'"{settings.network_plugin_mode}"'
        )
    if mode == "bootstrappingclient" and not settings.nodebootstrapping_server_url:
        found.append(
            "--nodebootstrapping-server-url: must be given for --provision-mode bootstrappingclient"
        )
    if settings.use_sig and not settings.sig_subscription_id:
        found.append("--sig-subscription-id: must be given with --use-sig")
    if mode in MACHINE_MODES:
        # Settings that the mode needs in Karpenter's own provider do not help here: one complaint is enough.
        found.append(
            f"--provision-mode: {mode} is not supported, whatever --use-sig and "
            "--aks-machines-pool-name are: use aksscriptless or bootstrappingclient, whose nodes "
            "are single virtual machines"
        )
    elif settings.use_sig and not settings.sig_access_token_server_url:
        found.append("--sig-access-token-server-url: must be given with --use-sig")
    if settings.manage_existing_aks_machines:
        needed = {
            "--aks-machines-pool-name": settings.aks_machines_pool_name,
            "--arm-resource-group": settings.arm_resource_group,
        }
        found += [
            f"{flag}: must be given with --manage-existing-aks-machines"
            for flag, value in needed.items()
            if not value
        ]
    return found


@final
class _AzureReader(SettingReader):
    """Reads settings of Azure's own forms."""

    def web_url(self, flag: str) -> str:
        return self.url(flag, schemes=_WEB).rstrip("/")

    def share(self, flag: str) -> float:
        return self.number(flag, at_least=0, below=1)

    def choice(self, flag: str, choices: tuple[str, ...]) -> str:
        value = self.text(flag)
        if value not in choices:
            names = ", ".join(choice or "empty" for choice in choices)
            self.complain(f'--{flag}: must be one of {names}, not "{value}"')
        return value

    def needed(self, flag: str, other: str = "") -> str:
        value = self.text(flag) or (self.text(other) if other else "")
        if not value:
            self.complain(f"--{flag}: must be given")
        return value

    def token(self, flag: str, *, path_flag: str) -> str:
        """Return the token of a setting; empty if it is in a file, which is checked."""
        value, path = self.text(flag), self.text(path_flag)
        if value and path:
            self.complain(f"--{flag}: must not be given together with --{path_flag}")
        if not path:
            if not value:
                self.complain(f"--{flag}: must be given, or --{path_flag}")
            return value
        try:
            read_token(path)
        except BadInputError as error:
            self.complain(f"--{path_flag}: {error}")
        return ""

    def required_url(self, flag: str) -> str:
        return self.web_url(flag) if self.needed(flag) else ""

    def file(self, flag: str) -> str:
        value = self.text(flag)
        if value and not Path(value).is_file():
            self.complain(f'--{flag}: must be a file that exists, not "{value}"')
        return value

    def cloud(self) -> CloudEnvironment:
        name, path = self.text("arm-cloud"), self.text("azure-environment-filepath")
        if name and path:
            self.complain(
                "--arm-cloud: must not be given together with --azure-environment-filepath"
            )
        try:
            return read_environment_file(path) if path else named_environment(name)
        except ValueError as error:
            flag = "azure-environment-filepath" if path else "arm-cloud"
            self.complain(f"--{flag}: {error}")
            return named_environment("")

    def admin_name(self, flag: str) -> str:
        value = self.text(flag)
        if len(value) > _LONGEST_ADMIN_NAME or not _ADMIN_NAME.fullmatch(value):
            self.complain(
                f"--{flag}: must begin with a letter and have at most {_LONGEST_ADMIN_NAME} "
                f'letters, digits, - or _, not "{value}"'
            )
        return value

    def ip(self, flag: str) -> str:
        value = self.text(flag)
        try:
            return str(ip_address(value)) if value else ""
        except ValueError:
            self.complain(f'--{flag}: must be an IP address, not "{value}"')
            return value

    def version(self, flag: str) -> str:
        value = self.text(flag)
        if parse_version(value) is None:
            self.complain(f'--{flag}: must be a version of Kubernetes, not "{value}"')
        return value

    def guid(self, flag: str) -> str:
        value = self.text(flag)
        try:
            return str(UUID(value)) if value else ""
        except ValueError:
            self.complain(f'--{flag}: must be a UUID, not "{value}"')
            return value

    def resource_id(self, flag: str, resource_type: str, *, is_required: bool = False) -> str:
        value = self.needed(flag) if is_required else self.text(flag)
        if value and not _is_resource(value, resource_type):
            self.complain(f'--{flag}: must be the id of a {resource_type}, not "{value}"')
        return value

    def identities(self, flag: str) -> tuple[str, ...]:
        ids = tuple(filter(None, (part.strip() for part in self.text(flag).split(","))))
        for identity in ids:
            if not _is_resource(identity, "Microsoft.ManagedIdentity/userAssignedIdentities"):
                self.complain(
                    f"--{flag}: must be ids of user-assigned identities, separated by commas, "
                    f'not "{identity}"'
                )
        return ids

    def tags(self, flag: str) -> dict[str, str]:
        tags, complaints = parse_tags(self.text(flag))
        for complaint in complaints:
            self.complain(f"--{flag}: {complaint}")
        return tags


def _is_resource(text: str, resource_type: str) -> bool:
    try:
        return ResourceId.parse(text).is_type(resource_type)
    except ValueError:
        return False
