"""The hash of an AKSNodeClass: which changes replace nodes."""

from __future__ import annotations

import pytest

from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.hashing import HASH_VERSION, hash_node_class
from providers.azure.tests.admission_cases import SUBNET, WHOLE, ZONES, node_class


def hash_of(**spec) -> str:
    return hash_node_class(AKSNodeClass.model_validate(node_class(**spec))).value


def local_dns(mode: str, zones=ZONES):
    return {"mode": mode, "vnetDNSOverrides": list(zones), "kubeDNSOverrides": list(zones)}


@pytest.mark.parametrize(
    "change",
    [
        {"vnetSubnetID": SUBNET},
        {"osDiskSizeGB": 256},
        {"imageFamily": "AzureLinux"},
        {"fipsMode": "FIPS"},
        {"kubelet": {}},
        {"kubelet": {"failSwapOn": False}},
        {"maxPods": 50},
        {"security": {"encryptionAtHost": True}},
        {"security": {"encryptionAtHost": False}},
        {"security": {"trustedLaunch": {"vtpm": True}}},
        {"localDNS": local_dns("Required")},
        {"gpu": {"mode": "None"}},
        {"artifactStreaming": {"enabled": True}},
        {"linuxOSConfig": {"sysctls": {"vmSwappiness": 10}}},
    ],
    ids=str,
)
def test_a_change_of_a_node_setting_changes_the_hash(change):
    # case 107
    assert hash_of(**change) != hash_of()


@pytest.mark.parametrize(
    "change",
    [
        {"tags": {"team": "web"}},
        {"osDiskSizeGB": 128},
        {"imageFamily": "Ubuntu"},
        {"fipsMode": "Disabled"},
        {"gpu": {}},
        {"gpu": {"mode": "Driver"}},
        {"security": {}},
        {"security": {"trustedLaunch": {"vtpm": False, "secureBoot": False}}},
        {"artifactStreaming": {"enabled": False}},
        {"linuxOSConfig": {}},
        {"linuxOSConfig": {"sysctls": {}}},
        {"localDNS": local_dns("Disabled")},
    ],
    ids=str,
)
def test_tags_and_other_spellings_of_one_thing_do_not_drift_nodes(change):
    # case 107
    assert hash_of(**change) == hash_of()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"vnetSubnetID": SUBNET}, {"vnetSubnetID": SUBNET.lower()}),
        ({"kubelet": {}}, {"kubelet": {"containerLogMaxSize": "50Mi"}}),
        (
            {"localDNS": local_dns("Required")},
            {"localDNS": local_dns("Required", tuple(reversed(ZONES)))},
        ),
        (
            {"kubelet": {"allowedUnsafeSysctls": ["a", "b"]}},
            {"kubelet": {"allowedUnsafeSysctls": ["b", "a"]}},
        ),
    ],
)
def test_the_order_of_lists_and_defaults_do_not_count(one, other):
    assert hash_of(**one) == hash_of(**other)


def test_a_zero_is_a_value():
    sysctls = {"linuxOSConfig": {"sysctls": {"vmSwappiness": 0}}}

    assert hash_of(**sysctls) != hash_of()


def test_the_hash_is_the_same_in_every_process():
    """A change of these values needs another version: every node would be replaced."""
    whole = hash_node_class(AKSNodeClass.model_validate(WHOLE))

    assert (HASH_VERSION, hash_of(), whole.value) == (
        "py-v1",
        "fcadf4f6a19494c5",
        "c8ea6a43bbe9750f",
    )


def test_no_hash_of_karpenters_own_provider_is_compared():
    """It writes version v3; a cluster that is taken over gets new hashes and no drift (case 108)."""
    assert HASH_VERSION != "v3"
