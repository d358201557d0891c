"""Tests the settings of the provider, read as the process reads them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_azure.settings import SETTINGS, AzureSettings, _AzureReader

from .arm.values import GROUP, SUBNET, SUBSCRIPTION

IDENTITY = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/"
    "Microsoft.ManagedIdentity/userAssignedIdentities/kubelet"
)
SET = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/"
    "Microsoft.Compute/diskEncryptionSets/des"
)
UUID = "12345678-1234-1234-1234-1234567890ab"
REQUIRED = {
    "CLUSTER_ENDPOINT": "https://demo.example.com",
    "KUBELET_BOOTSTRAP_TOKEN": "abcdef.0123456789abcdef",
    "SSH_PUBLIC_KEY": "ssh-ed25519 AAAA",
    "VNET_SUBNET_ID": SUBNET,
    "AZURE_NODE_RESOURCE_GROUP": GROUP,
    "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
    "LOCATION": "westus2",
}


def read(environment=None, *, name="demo", **more):
    given = {**REQUIRED, **(environment or {}), **more}
    settings = load_settings(
        (),
        {key: value for key, value in given.items() if value is not None},
        plugin_options=SETTINGS,
    )
    context = SimpleNamespace(settings=settings.plugins, cluster=ClusterFacts(name=name))
    return AzureSettings.from_context(context)


def complaints_of(**environment):
    with pytest.raises(SettingsError) as caught:
        read(**environment)
    return str(caught.value).split("; ")


def test_defaults_are_those_users_know():
    """Also those of the class itself, which tests and tools make without a context."""
    assert read() == AzureSettings(
        cluster_name="demo",
        cluster_endpoint="https://demo.example.com",
        kubelet_bootstrap_token="abcdef.0123456789abcdef",
        ssh_public_key="ssh-ed25519 AAAA",
        vnet_subnet_id=SUBNET,
        node_resource_group=GROUP,
        azure_subscription_id=SUBSCRIPTION,
        location="westus2",
    )
    assert read().cloud.resource_manager == "https://management.azure.com"
    assert read().is_overlay


def test_every_setting_reaches_its_field():
    settings = read(
        VM_MEMORY_OVERHEAD_PERCENT="0",
        LINUX_ADMIN_USERNAME="core_1",
        NETWORK_PLUGIN="none",
        NETWORK_PLUGIN_MODE="",
        NETWORK_POLICY="cilium",
        NETWORK_DATAPLANE="azure",
        DNS_SERVICE_IP="10.1.0.10",
        VNET_GUID=UUID,
        KUBELET_IDENTITY_CLIENT_ID=UUID,
        NODE_IDENTITIES=f"{IDENTITY}, {IDENTITY}2",
        PROVISION_MODE="bootstrappingclient",
        NODEBOOTSTRAPPING_SERVER_URL="https://boot.example.com/",
        USE_SIG="true",
        SIG_SUBSCRIPTION_ID="sig",
        SIG_ACCESS_TOKEN_SERVER_URL="https://sig.example.com",
        ADDITIONAL_TAGS="team=web, cost = 7",
        ENABLE_AZURE_SDK_LOGGING="false",
        NODE_OSDISK_DISKENCRYPTIONSET_ID=SET,
        MANAGE_EXISTING_AKS_MACHINES="true",
        AKS_MACHINES_POOL_NAME="pool",
        AZURE_TENANT_ID="tenant",
        ARM_RESOURCE_GROUP="cluster-group",
        ARM_CLOUD="azurechinacloud",
        AZURE_PRICING_URL="",
        LOCATION="China East 2",
    )
    assert settings.vm_memory_overhead_percent == 0
    assert settings.linux_admin_username == "core_1"
    assert (settings.network_plugin, settings.network_plugin_mode) == ("none", "")
    assert (settings.network_policy, settings.network_dataplane) == ("cilium", "azure")
    assert settings.dns_service_ip == "10.1.0.10"
    assert settings.vnet_guid == settings.kubelet_identity_client_id == UUID
    assert settings.node_identities == (IDENTITY, f"{IDENTITY}2")
    assert settings.provision_mode == "bootstrappingclient"
    assert settings.nodebootstrapping_server_url == "https://boot.example.com"
    assert settings.use_sig
    assert settings.sig_subscription_id == "sig"
    assert settings.sig_access_token_server_url == "https://sig.example.com"
    assert settings.additional_tags == {"team": "web", "cost": "7"}
    assert not settings.enable_azure_sdk_logging
    assert settings.node_osdisk_diskencryptionset_id == SET
    assert settings.manage_existing_aks_machines
    assert settings.aks_machines_pool_name == "pool"
    assert settings.azure_tenant_id == "tenant"
    assert settings.arm_resource_group == "cluster-group"
    assert settings.arm_cloud == "AzureChinaCloud"
    assert settings.pricing_url == ""
    assert settings.location == "chinaeast2"
    assert not settings.is_overlay


def test_secrets_are_not_shown():
    assert "abcdef" not in repr(read())


def test_other_names_of_subscription_and_tenant_are_read():
    settings = read(AZURE_SUBSCRIPTION_ID=None, ARM_SUBSCRIPTION_ID="s", ARM_TENANT_ID="t")
    assert (settings.azure_subscription_id, settings.azure_tenant_id) == ("s", "t")


def test_the_bootstrap_token_may_be_in_a_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("abcdef.0123456789abcdef")
    settings = read(KUBELET_BOOTSTRAP_TOKEN=None, KUBELET_BOOTSTRAP_TOKEN_FILE=str(file))
    assert settings.kubelet_bootstrap_token_file == str(file)
    (both,) = complaints_of(KUBELET_BOOTSTRAP_TOKEN_FILE=str(file))
    assert both.endswith("must not be given together with --kubelet-bootstrap-token-file")
    (missing,) = complaints_of(
        KUBELET_BOOTSTRAP_TOKEN=None, KUBELET_BOOTSTRAP_TOKEN_FILE=str(tmp_path)
    )
    assert missing.startswith(f'--kubelet-bootstrap-token-file: "{tmp_path}" must be a file with')


def test_all_missing_settings_are_named_together():
    with pytest.raises(SettingsError) as caught:
        read(dict.fromkeys(REQUIRED), name="")
    assert str(caught.value).split("; ") == [
        "--cluster-name: must be given",
        "--cluster-endpoint: must be given",
        "--kubelet-bootstrap-token: must be given, or --kubelet-bootstrap-token-file",
        "--ssh-public-key: must be given",
        "--vnet-subnet-id: must be given",
        "--node-resource-group: must be given",
        "--azure-subscription-id: must be given",
        "--location: must be given",
    ]


@pytest.mark.parametrize("more", [{}, {"USE_SIG": "true", "SIG_SUBSCRIPTION_ID": "sig"}])
def test_a_machine_mode_is_refused_by_one_complaint(more):
    """# case 126: no other setting makes it work"""
    (mode,) = complaints_of(PROVISION_MODE="aksmachineapi", **more)
    assert mode.startswith("--provision-mode: aksmachineapi is not supported")
    assert "--use-sig" in mode
    assert "--aks-machines-pool-name" in mode
    assert "use aksscriptless or bootstrappingclient" in mode


def test_the_management_of_machines_names_all_that_it_lacks():
    pool, group = complaints_of(MANAGE_EXISTING_AKS_MACHINES="true")
    assert pool.startswith("--aks-machines-pool-name: must be given")
    assert group.startswith("--arm-resource-group: must be given")
    (group,) = complaints_of(MANAGE_EXISTING_AKS_MACHINES="true", AKS_MACHINES_POOL_NAME="pool")
    assert group.startswith("--arm-resource-group")


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        (
            {"NETWORK_PLUGIN": "kubenet"},
            '--network-plugin: must be one of azure, none, not "kubenet"',
        ),
        ({"LINUX_ADMIN_USERNAME": "1abc"}, "--linux-admin-username: must begin with a letter"),
        ({"LINUX_ADMIN_USERNAME": "a" * 33}, "--linux-admin-username: must begin with a letter"),
        ({"NETWORK_PLUGIN_MODE": "bridge"}, "--network-plugin-mode: must be one of empty, overlay"),
        ({"NETWORK_DATAPLANE": "ebpf"}, "--network-dataplane: must be one of"),
        ({"DNS_SERVICE_IP": "10.0.0"}, "--dns-service-ip: must be an IP address"),
        ({"VNET_GUID": "x"}, "--vnet-guid: must be a UUID"),
        ({"LOCAL_DNS_PREFERRED_SINCE": "new"}, "--local-dns-preferred-since: must be a version"),
        ({"KUBELET_IDENTITY_CLIENT_ID": "x"}, "--kubelet-identity-client-id: must be a UUID"),
        ({"NODE_IDENTITIES": f"{IDENTITY},x"}, "--node-identities: must be ids"),
        ({"VNET_SUBNET_ID": "/x"}, "--vnet-subnet-id: must be the id of a Microsoft.Network"),
        (
            {"NODE_OSDISK_DISKENCRYPTIONSET_ID": SUBNET},
            "--node-osdisk-diskencryptionset-id: must be",
        ),
        ({"CLUSTER_ENDPOINT": "demo.example.com"}, "--cluster-endpoint: must be a URL"),
        ({"PROVISION_MODE": "vmss"}, "--provision-mode: must be one of"),
        (
            {"PROVISION_MODE": "bootstrappingclient"},
            "--nodebootstrapping-server-url: must be given",
        ),
        (
            {"VM_MEMORY_OVERHEAD_PERCENT": "-0.1"},
            "--vm-memory-overhead-percent: must be at least 0",
        ),
        ({"ARM_CLOUD": "AzureGermanCloud"}, "--arm-cloud: must be one of AzurePublicCloud"),
        ({"AZURE_CA_BUNDLE": "/no/such/file"}, "--azure-ca-bundle: must be a file that exists"),
        ({"AZURE_ENVIRONMENT_FILEPATH": "cloud.json"}, "must be an absolute path"),  # case 128
        ({"AZURE_ENVIRONMENT_FILEPATH": "/no/such/file"}, "cannot be read: No such file"),
        ({"ADDITIONAL_TAGS": "a/b=c"}, '--additional-tags: "a/b" must have none of'),
        ({"ADDITIONAL_TAGS": "a=1,A=2"}, '--additional-tags: "A" must be there once'),
        ({"ADDITIONAL_TAGS": "alone"}, '--additional-tags: "alone" must be key=value'),
        ({"ADDITIONAL_TAGS": "k" * 513 + "=v"}, "must have at most 512 characters"),
        ({"ADDITIONAL_TAGS": "k=" + "v" * 257}, "must have at most 512 characters"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(environment, complaint):
    """# case 127"""
    (found,) = complaints_of(**environment)
    assert complaint in found


def test_the_plugin_none_has_no_mode():
    """# case 127"""
    (found,) = complaints_of(NETWORK_PLUGIN="none", NETWORK_PLUGIN_MODE="overlay")
    assert found.startswith("--network-plugin-mode: must be empty with --network-plugin none")


def test_a_shared_gallery_needs_subscription_and_tokens():
    subscription, tokens = complaints_of(USE_SIG="true")
    assert subscription.startswith("--sig-subscription-id")
    assert tokens.startswith("--sig-access-token-server-url")


def test_an_unparseable_overhead_falls_back():
    assert read(VM_MEMORY_OVERHEAD_PERCENT="much").vm_memory_overhead_percent == 0.075


@pytest.fixture
def cloud_file(tmp_path):
    path = tmp_path / "cloud.json"
    path.write_text(
        json.dumps(
            {
                "name": "AzureStackCloud",
                "resourceManagerEndpoint": "https://management.local/",
                "activeDirectoryEndpoint": "https://login.local/",
                "tokenAudience": "https://management.local/",
            }
        )
    )
    return path


def test_a_file_describes_another_cloud(cloud_file):
    cloud = read(AZURE_ENVIRONMENT_FILEPATH=str(cloud_file)).cloud
    assert cloud.resource_manager == "https://management.local"
    assert cloud.authority == "https://login.local"
    assert cloud.scope == "https://management.local/.default"
    assert not cloud.is_public  # case 53
    assert not cloud.has_billing_extension  # case 86


def test_name_and_file_of_a_cloud_contradict_each_other(cloud_file):
    """# case 128"""
    (found,) = complaints_of(
        ARM_CLOUD="AzurePublicCloud", AZURE_ENVIRONMENT_FILEPATH=str(cloud_file)
    )
    assert found.startswith("--arm-cloud: must not be given together")


def test_all_wrong_fields_of_the_file_are_named(cloud_file):
    cloud_file.write_text('{"resourceManagerEndpoint": "management.local"}')
    found = complaints_of(AZURE_ENVIRONMENT_FILEPATH=str(cloud_file))
    assert [complaint.split(" of ")[0].split(": ")[-1] for complaint in found] == [
        "resourceManagerEndpoint",
        "tokenAudience",
        "activeDirectoryEndpoint",
    ]


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_file_that_is_no_json_object_is_refused(cloud_file, content):
    cloud_file.write_text(content)
    (found,) = complaints_of(AZURE_ENVIRONMENT_FILEPATH=str(cloud_file))
    assert "JSON" in found


@pytest.mark.parametrize(
    ("name", "audience"),
    [
        ("", "https://management.azure.com"),
        ("AZURECLOUD", "https://management.azure.com"),
        ("AzureUSGovernment", "https://management.core.usgovcloudapi.net"),
        ("AzureUSGovernmentCloud", "https://management.core.usgovcloudapi.net"),
        ("AzureChinaCloud", "https://management.chinacloudapi.cn"),
    ],
)
def test_clouds_have_their_audience(name, audience):
    assert read(ARM_CLOUD=name).cloud.audience == audience


def test_each_setting_has_the_variable_of_its_flag():
    special = {"node-resource-group": "AZURE_NODE_RESOURCE_GROUP"}
    for spec in SETTINGS:
        flag = spec.flag.removeprefix("--")
        assert spec.env == special.get(flag, flag.replace("-", "_").upper())


def test_the_subscription_is_spelled_as_azure_spells_it():
    """Provider IDs contain it, and are compared with those that Azure and Kubernetes write."""
    settings = read({**REQUIRED, "AZURE_SUBSCRIPTION_ID": "ABCDEF00-1111-2222-3333-444455556666"})

    assert settings.azure_subscription_id == "abcdef00-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("read", "flag"),
    [
        ("ip", "dns-service-ip"),
        ("guid", "vnet-guid"),
        ("version", "local-dns-preferred-since"),
        ("admin_name", "linux-admin-username"),
        ("resource_id", "vnet-subnet-id"),
        ("choice", "network-plugin"),
    ],
)
def test_a_refused_value_is_a_complaint_and_stays_a_text(read, flag):
    """Settings that depend on it are read as well, so that one start names all mistakes."""
    reader = _AzureReader(SimpleNamespace(settings={flag: " no good! "}))
    more = {"resource_id": ("Microsoft.Network/virtualNetworks",), "choice": (("azure",),)}
    assert getattr(reader, read)(flag, *more.get(read, ())) == "no good!"
    with pytest.raises(SettingsError, match=f"--{flag}"):
        reader.finish()
