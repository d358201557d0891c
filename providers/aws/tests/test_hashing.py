"""Tests the hash of an EC2NodeClass (cases 27 to 30)."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest

from karpenter_provider_aws.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from karpenter_provider_aws.hashing import HASH_VERSION, hash_node_class
from providers.aws.tests.admission_cases import node_class

EVERYTHING = node_class(
    userData="echo hello",
    tags={"team": "web", "stage": "prod"},
    context="ctx-1",
    detailedMonitoring=True,
    instanceStorePolicy="RAID0",
    associatePublicIPAddress=True,
    placementGroupSelector={"name": "web"},
    metadataOptions={
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "enabled",
        "httpPutResponseHopLimit": 2,
        "httpTokens": "required",
    },
    blockDeviceMappings=[
        {
            "deviceName": "/dev/xvda",
            "rootVolume": True,
            "ebs": {
                "deleteOnTermination": True,
                "encrypted": True,
                "iops": 3000,
                "kmsKeyID": "key-1",
                "snapshotID": "snap-1",
                "throughput": 125,
                "volumeInitializationRate": 100,
                "volumeSize": "20Gi",
                "volumeType": "gp3",
            },
        },
        {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "1Gi"}},
    ],
    networkInterfaces=[
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
    ],
    connectionTracking={
        "tcpEstablishedTimeout": 600,
        "udpStreamTimeout": 90,
        "udpTimeout": 45,
    },
    cpuOptions={"nestedVirtualization": "enabled"},
    enclaveOptions={"enabled": True},
    kubelet={"maxPods": 10, "evictionHard": {"memory.available": "5%"}},
    ipPrefixCount=1,
    capacityReservationSelectorTerms=[{"id": "cr-1"}],
)


def value(obj, **options):
    return hash_node_class(EC2NodeClass.model_validate(obj), **options).value


def changed(path: str, new: object):
    """Return the full NodeClass with another value at a path of its spec."""
    obj = copy.deepcopy(EVERYTHING)
    place = obj["spec"]
    *parents, last = path.split(".")
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if isinstance(place, list):
        place[int(last)] = new
    else:
        place[last] = new
    return obj


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("userData", "echo bye"),
        ("tags", {"team": "web"}),
        ("tags.team", "shop"),
        ("context", "ctx-2"),
        ("detailedMonitoring", False),
        ("instanceStorePolicy", ""),
        ("associatePublicIPAddress", False),
        ("placementGroupSelector", {"id": "pg-1"}),
        ("placementGroupSelector.name", "shop"),
        ("metadataOptions.httpEndpoint", "disabled"),
        ("metadataOptions.httpProtocolIPv6", "disabled"),
        ("metadataOptions.httpPutResponseHopLimit", 1),
        ("metadataOptions.httpTokens", "optional"),
        ("blockDeviceMappings.0.deviceName", "/dev/sda1"),
        ("blockDeviceMappings.0.rootVolume", False),
        ("blockDeviceMappings.0.ebs.deleteOnTermination", False),
        ("blockDeviceMappings.0.ebs.encrypted", False),
        ("blockDeviceMappings.0.ebs.iops", 3001),
        ("blockDeviceMappings.0.ebs.kmsKeyID", "key-2"),
        ("blockDeviceMappings.0.ebs.snapshotID", "snap-2"),
        ("blockDeviceMappings.0.ebs.throughput", 126),
        ("blockDeviceMappings.0.ebs.volumeInitializationRate", 101),
        ("blockDeviceMappings.0.ebs.volumeSize", "21Gi"),
        ("blockDeviceMappings.0.ebs.volumeType", "io2"),
        ("blockDeviceMappings", []),
        ("networkInterfaces.1.deviceIndex", 2),
        ("networkInterfaces.1.networkCardIndex", 1),
        ("networkInterfaces.1.interfaceType", "interface"),
        ("connectionTracking.tcpEstablishedTimeout", 601),
        ("connectionTracking.udpStreamTimeout", 91),
        ("connectionTracking.udpTimeout", 46),
        ("cpuOptions.nestedVirtualization", "disabled"),
        ("enclaveOptions.enabled", False),
        ("role", "other-nodes"),
        ("kubelet.maxPods", 11),
        ("kubelet", {}),
        ("amiFamily", "Custom"),
    ],
)
def test_another_value_is_another_hash(path, new):
    """Case 27."""
    assert value(changed(path, new)) != value(EVERYTHING)


def test_another_profile_is_another_hash():
    """Case 27; a profile instead of a role as well."""
    one, other = (node_class(role=None, instanceProfile=name) for name in ("web", "shop"))

    assert len({value(one), value(other), value(node_class())}) == 3


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("subnetSelectorTerms", [{"id": "subnet-1"}]),
        ("securityGroupSelectorTerms", [{"id": "sg-1"}]),
        ("capacityReservationSelectorTerms", [{"id": "cr-2"}]),
        ("amiSelectorTerms", [{"alias": "al2023@v20240625"}]),
        ("ipPrefixCount", 2),
    ],
)
def test_selector_terms_do_not_change_the_hash(path, new):
    """Case 28."""
    assert value(changed(path, new)) == value(EVERYTHING)


def test_every_field_of_the_spec_is_hashed_or_listed_as_excluded():
    """A new field must be thought of here."""
    spec = {**EVERYTHING["spec"], "amiFamily": "AL2023"}
    counted = {
        name
        for name in spec
        if value({**EVERYTHING, "spec": {key: spec[key] for key in spec if key != name}})
        != value(EVERYTHING)
    }
    known = {field.alias for field in EC2NodeClassSpec.model_fields.values()}

    assert known - counted - {"instanceProfile"} == {
        "amiFamily",  # as the alias says
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "capacityReservationSelectorTerms",
        "amiSelectorTerms",
        "ipPrefixCount",
    }


def test_order_does_not_count():
    """Case 27: neither of tags, nor of devices or interfaces, nor of keys of the kubelet."""
    obj = copy.deepcopy(EVERYTHING)
    spec = obj["spec"]
    for name in ("tags", "kubelet", "metadataOptions"):
        spec[name] = dict(reversed(spec[name].items()))
    for name in ("blockDeviceMappings", "networkInterfaces"):
        spec[name].reverse()

    assert json.dumps(obj) != json.dumps(EVERYTHING)
    assert value(obj) == value(EVERYTHING)


def test_the_family_of_the_alias_may_be_written_out():
    """Case 29."""
    assert value(node_class(amiFamily="AL2023")) == value(node_class())
    assert value(node_class(amiFamily="Custom")) != value(node_class())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "bc"}, {"a": "cb"}),
        ({"a": "bc"}, {"b": "ac"}),
        ({"a": ["b", "c"]}, {"a": ["c", "b"]}),
        ({"a": 0}, {}),
        ({"a": False}, {"a": None}),
    ],
)
def test_everything_in_kubelet_counts(one, other):
    """Case 30: also its zero values and the order of its lists."""
    assert value(node_class(kubelet=one)) != value(node_class(kubelet=other))


@pytest.mark.parametrize(
    "written_out",
    [
        {"detailedMonitoring": False},
        {"associatePublicIPAddress": False},
        {"userData": ""},
        {"tags": {}},
        {"kubelet": {}},
        {"blockDeviceMappings": []},
        {"networkInterfaces": []},
        {"cpuOptions": {}},
        {"enclaveOptions": {"enabled": False}},
        {"metadataOptions": {}},
        {"metadataOptions": {"httpTokens": "required"}},
    ],
)
def test_a_default_may_be_written_out(written_out):
    assert value(node_class(**written_out)) == value(node_class())


def test_another_certificate_is_another_hash():
    """Nodes that trust the old one cannot join again; how it is wrapped does not count."""
    assert value(EVERYTHING, ca_bundle="TUlJQg==") != value(EVERYTHING)
    assert value(EVERYTHING, ca_bundle="TUlJ\nQg==\n") == value(EVERYTHING, ca_bundle="TUlJQg==")


def test_name_and_status_do_not_count():
    obj = {**EVERYTHING, "metadata": {"name": "shop"}, "status": {"instanceProfile": "x"}}

    assert value(obj) == value(EVERYTHING)


def test_the_version_is_none_of_the_reference():
    """Its versions are `v` and a number."""
    found = hash_node_class(EC2NodeClass.model_validate(EVERYTHING))

    assert found.version == HASH_VERSION == "py1"


def test_the_hash_is_the_same_in_every_process_and_release():
    """Else all nodes would drift after an update; a change needs another version."""
    program = (
        "from providers.aws.tests.test_hashing import EVERYTHING, value; print(value(EVERYTHING))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert done.stdout.strip() == value(EVERYTHING) == "3c1e2537c2c44999"
