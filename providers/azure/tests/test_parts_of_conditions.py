"""Answers of which a part is missing, and rules of several parts: each part counts by itself."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_core.testing.state_builders import node_claim
from karpenter_provider_azure.arm.errors import ArmError, _error_in_text, disallows_size
from karpenter_provider_azure.bootstrap.provision_profile import _seconds
from karpenter_provider_azure.catalogue.class_traits import (
    LOCAL_DNS_CPUS,
    LOCAL_DNS_MEMORY_MIB,
    class_exclusion,
)
from karpenter_provider_azure.catalogue.price_reader import read_price_items
from karpenter_provider_azure.catalogue.quotas import parse_usages
from karpenter_provider_azure.cloud_environment import read_environment_file
from karpenter_provider_azure.conversion.agent_pools import _tag_number
from karpenter_provider_azure.images.versions import newest_node_image_versions
from karpenter_provider_azure.instance_tags import CLAIM_UID_TAG
from karpenter_provider_azure.instances.vm_reader import is_owned
from karpenter_provider_azure.json_service import _failure
from karpenter_provider_azure.labels import AKS_MACHINE_NODE_CLAIM_TAG, CLUSTER_TAG, NODE_POOL_TAG
from karpenter_provider_azure.launch.image_tokens import _instant, _token
from karpenter_provider_azure.launch.node_network import NetworkInterface, network_profile
from karpenter_provider_azure.launch.vm_calls import failure_in_view
from karpenter_provider_azure.machines.described_machines import read_machine
from karpenter_provider_azure.resource_ids import named_after_claim


@pytest.mark.parametrize(
    ("codes", "text", "is_disallowed"),
    [
        (["RequestDisallowedByPolicy"], "hardwareProfile.vmSize is not in the list", True),
        (["RequestDisallowedByPolicy"], "a tag is missing", False),
        (["Forbidden"], "hardwareProfile.vmSize is not in the list", False),
    ],
)
def test_only_a_policy_about_sizes_disallows_a_size(codes, text, is_disallowed):
    assert disallows_size(ArmError(text, code=codes[0], codes=codes, status=403)) is is_disallowed


def test_a_price_without_tiers_is_that_of_the_first_tier():
    def item(price, **fields):
        return {
            "armSkuName": "Standard_D2s_v5",
            "skuName": "D2s v5",
            "productName": "Virtual Machines Dsv5 Series",
            "retailPrice": price,
            **fields,
        }

    listed = [item(0.1), item(0.05, tierMinimumUnits=100)]
    for items in (listed, listed[::-1]):
        assert read_price_items(items).on_demand == {"Standard_D2s_v5": 0.1}


def usage(name, limit, used):
    return {"name": {"value": name}, "limit": limit, "currentValue": used}


@pytest.mark.parametrize(
    "incomplete",
    [
        usage("", 5, 1),
        usage(None, 5, 1),
        usage(7, 5, 1),
        usage("x", None, 1),
        usage("x", 5, None),
        {},
    ],
)
def test_a_quota_without_name_limit_or_usage_is_left_out(incomplete):
    assert set(parse_usages([incomplete, usage("Cores", 5, 1)])) == {"cores"}


@pytest.mark.parametrize("bad", ["https://", "ftp://example.com", "example.com", "", None, 5])
def test_an_endpoint_of_a_cloud_has_a_scheme_and_a_host(tmp_path, bad):
    fields = dict.fromkeys(
        ("resourceManagerEndpoint", "tokenAudience", "activeDirectoryEndpoint"),
        "https://example.com/",
    )
    file = tmp_path / "cloud.json"
    file.write_text(json.dumps(fields), "utf-8")
    assert read_environment_file(str(file)).authority == "https://example.com"
    file.write_text(json.dumps({**fields, "tokenAudience": bad}), "utf-8")
    with pytest.raises(ValueError, match="tokenAudience"):
        read_environment_file(str(file))


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("x", None), ("", None), (None, None)])
def test_a_tag_with_a_number_is_one(text, number):
    assert _tag_number(text) == number


def test_an_image_version_without_a_number_is_left_out():
    listed = [
        {"os": "AKSUbuntu", "sku": "2204", "version": version}
        for version in (None, "", "202601.01.0")
    ]
    newest = newest_node_image_versions([*listed, {"os": "Other"}], systems=["AKSUbuntu"])
    assert newest == {("AKSUbuntu", "2204"): "202601.01.0"}
    assert newest_node_image_versions(listed[:2], systems=["AKSUbuntu"]) == {}


@pytest.mark.parametrize("key", [NODE_POOL_TAG, CLAIM_UID_TAG])
def test_a_resource_of_the_cluster_with_a_pool_or_a_claim_is_ours(key):
    tags = {CLUSTER_TAG: "c", key: "x"}
    assert is_owned(tags, "c")
    assert not is_owned(tags, "other")
    assert not is_owned({CLUSTER_TAG: "c"}, "c")
    assert not is_owned({**tags, AKS_MACHINE_NODE_CLAIM_TAG: "x"}, "c")


@pytest.mark.parametrize(
    "answer",
    [
        {"token": "t"},
        {"expires_on": 1_800_000_000},
        {"token": "", "expires_on": 1_800_000_000},
        {"access_token": "", "expires_on": 1_800_000_000},
        {"token": 5, "expires_on": 1_800_000_000},
        {"token": "t", "expires_on": True},
        {"token": "t", "expires_on": "soon"},
    ],
)
def test_an_answer_without_a_token_or_its_end_is_none(answer):
    with pytest.raises(CloudProviderError):
        _token(answer)


def test_the_year_one_of_go_is_no_instant():
    assert _instant("0001-01-01T00:00:00Z") is None
    assert _instant(1_800_000_000).year == 2027


@pytest.mark.parametrize(("pools", "addresses"), [((), 1), (("lb",), 1), (("lb",), 3)])
def test_only_the_first_address_is_in_the_pools_of_load_balancers(pools, addresses):
    interface = NetworkInterface(
        name="n", subnet_id="s", backend_pool_ids=pools, addresses=addresses
    )
    (profile,) = network_profile(interface, {})["networkInterfaceConfigurations"]
    found = [
        each["properties"].get("loadBalancerBackendAddressPools")
        for each in profile["properties"]["ipConfigurations"]
    ]
    first = [{"id": "lb"}] if pools else None
    assert found == [first, *[None] * (addresses - 1)]


@pytest.mark.parametrize(
    ("code", "is_failed"),
    [
        ("ProvisioningState/failed/AllocationFailed", True),
        ("ProvisioningState/succeeded", False),
        ("PowerState/failed/AllocationFailed", False),
        (None, False),
    ],
)
def test_only_a_failed_provisioning_is_a_failure(code, is_failed):
    body = {"properties": {"instanceView": {"statuses": [{"code": code, "message": "no"}]}}}
    assert (failure_in_view(body) is not None) is is_failed


@pytest.mark.parametrize("name", [None, ""])
def test_a_machine_without_a_name_cannot_be_read(name):
    with pytest.raises(CloudProviderError, match="no name"):
        read_machine({"name": name, "id": "/x"}, location="westeurope")


@pytest.mark.parametrize(
    ("wanted", "fields", "is_excluded"),
    [
        ("local_dns", {}, False),
        ("local_dns", {"cpus": LOCAL_DNS_CPUS - 1}, True),
        ("local_dns", {"memory_mib": LOCAL_DNS_MEMORY_MIB - 1}, True),
        ("artifact_streaming", {}, False),
        ("artifact_streaming", {"arch": "arm64"}, True),
        ("trusted_launch", {"trusted_launch": True}, False),
        ("trusted_launch", {}, True),
        ("encryption_at_host", {"encryption_at_host": True}, False),
        ("encryption_at_host", {}, True),
        ("", {"cpus": 1, "memory_mib": 1, "arch": "arm64"}, False),
    ],
)
def test_a_size_that_lacks_what_the_node_class_asks_for_is_excluded(wanted, fields, is_excluded):
    asked = dict.fromkeys(
        ("gpu_drivers", "encryption_at_host", "trusted_launch", "local_dns", "artifact_streaming"),
        False,
    )
    size = {
        "gpus": 0,
        "cpus": LOCAL_DNS_CPUS,
        "memory_mib": LOCAL_DNS_MEMORY_MIB,
        "arch": "amd64",
        "trusted_launch": False,
        "encryption_at_host": False,
    }
    traits = SimpleNamespace(os_sku="Ubuntu", **{**asked, **({wanted: True} if wanted else {})})
    assert bool(class_exclusion(SimpleNamespace(**{**size, **fields}), traits)) is is_excluded


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"error": {"code": "x"}}', {"code": "x"}),
        (' {"code": "x"}', {"code": "x"}),
        ("{no json", None),
        ("[1]", None),
        ("text", None),
        (None, None),
    ],
)
def test_an_error_may_be_the_text_of_another_one(text, error):
    assert _error_in_text(text) == error


@pytest.mark.parametrize(("text", "seconds"), [("1h", 3600), ("", None), ("soon", None)])
def test_a_duration_that_cannot_be_read_is_left_out(text, seconds):
    assert _seconds(text) == seconds


def test_only_an_answer_of_the_service_is_its_failure():
    assert _failure(ValueError("a mistake of ours")) is None


@pytest.mark.parametrize("provider_id", ["", "azure:///x", "aws:///a/i-1"])
def test_an_id_that_cannot_be_read_is_named_after_no_claim(provider_id):
    made = node_claim("web")
    status = made.status.model_copy(update={"provider_id": provider_id})
    assert named_after_claim(made.model_copy(update={"status": status})) == ""
