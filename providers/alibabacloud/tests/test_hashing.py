"""Tests the hash of an ECSNodeClass (cases 90 and 93)."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest

from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, ECSNodeClassSpec
from karpenter_provider_alibabacloud.hashing import HASH_VERSION, hash_node_class
from providers.alibabacloud.tests.admission_cases import node_class

EVERYTHING = node_class(
    vSwitchSelectionPolicy="balanced",
    kubeletConfiguration={
        "clusterDNS": ["192.168.0.10"],
        "cpuCFSQuota": True,
        "maxPods": 50,
        "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
    },
    systemDisk={
        "categories": ["cloud_essd", "cloud_auto"],
        "volumeSize": "40Gi",
        "performanceLevel": "PL1",
        "encrypted": True,
        "kmsKeyId": "k-1",
        "provisionedIops": 100,
        "burstingEnabled": True,
    },
    dataDisks=[
        {
            "volumeSize": "100Gi",
            "device": "/dev/xvdb",
            "performanceLevel": "PL1",
            "encrypted": True,
            "kmsKeyId": "k-1",
            "snapshotId": "s-1",
            "deleteWithInstance": True,
        },
        {"volumeSize": "200Gi"},
    ],
    dataDiskCategories=["cloud_essd", "cloud_ssd"],
    formatDataDisk=True,
    tags={"team": "web", "stage": "prod"},
    resourceGroupId="rg-1",
    userData="echo hello",
    password="Abcdef12",
    keyPairName="web",
    passwordInherit=True,
    ramRoleName="WebNodes",
    spot={
        "priceLimit": 0.5,
        "durationHours": 1,
        "allocationStrategy": "diversified",
    },
    deploymentSetId="ds-1",
    capacityReservationSelectorTerms=[{"id": "crp-1"}],
    metadataOptions={
        "httpTokens": "required",
        "httpEndpoint": "enabled",
        "httpPutResponseHopLimit": 2,
    },
    internetMaxBandwidthOut=10,
    internetChargeType="PayByTraffic",
    nodePoolId="np1",
)


def value(obj):
    return hash_node_class(ECSNodeClass.model_validate(obj)).value


def changed(path: str, new: object):
    """Return the full NodeClass with another value at a path of its spec."""
    obj = copy.deepcopy(EVERYTHING)
    place = obj["spec"]
    *parents, last = path.split(".")
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[last] = new
    return obj


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("vSwitchSelectionPolicy", "cheapest"),
        ("kubeletConfiguration", {}),
        ("kubeletConfiguration.maxPods", 51),
        ("kubeletConfiguration.maxPods", 0),
        ("kubeletConfiguration.cpuCFSQuota", False),
        ("kubeletConfiguration.clusterDNS", ["192.168.0.11"]),
        ("kubeletConfiguration.kubeReserved", {"cpu": "100m"}),
        ("kubeletConfiguration.kubeReserved.cpu", "200m"),
        ("systemDisk", {}),
        ("systemDisk.categories", ["cloud_essd"]),
        ("systemDisk.volumeSize", "41Gi"),
        ("systemDisk.performanceLevel", "PL0"),
        ("systemDisk.encrypted", False),
        ("systemDisk.kmsKeyId", "k-2"),
        ("systemDisk.provisionedIops", 101),
        ("systemDisk.burstingEnabled", False),
        ("dataDisks", []),
        ("dataDisks.0.volumeSize", "101Gi"),
        ("dataDisks.0.device", "/dev/xvdc"),
        ("dataDisks.0.performanceLevel", "PL2"),
        ("dataDisks.0.encrypted", False),
        ("dataDisks.0.kmsKeyId", "k-2"),
        ("dataDisks.0.snapshotId", "s-2"),
        ("dataDisks.0.deleteWithInstance", False),
        ("dataDisks", [{"volumeSize": "200Gi"}]),
        ("dataDisks", [{"volumeSize": "200Gi"}, {"volumeSize": "200Gi"}]),
        ("dataDiskCategories", ["cloud_essd"]),
        ("formatDataDisk", False),
        ("resourceGroupId", "rg-2"),
        ("userData", "echo bye"),
        ("password", "Abcdef13"),
        ("keyPairName", "shop"),
        ("passwordInherit", False),
        ("ramRoleName", "ShopNodes"),
        ("spot", {}),
        ("spot.priceLimit", 0.4),
        ("spot.durationHours", 0),
        ("spot.allocationStrategy", "lowest-price"),
        ("deploymentSetId", "ds-2"),
        ("metadataOptions.httpTokens", "optional"),
        ("metadataOptions.httpEndpoint", "disabled"),
        ("metadataOptions.httpPutResponseHopLimit", 1),
        ("internetMaxBandwidthOut", 0),
        ("internetChargeType", "PayByBandwidth"),
        ("nodePoolId", "np2"),
    ],
)
def test_another_value_is_another_hash(path, new):
    """Case 90: of the user data, and of everything else that makes a node another one."""
    assert value(changed(path, new)) != value(EVERYTHING)


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("vSwitchSelectorTerms", [{"id": "vsw-1"}]),
        ("securityGroupSelectorTerms", [{"id": "sg-1"}]),
        ("imageSelectorTerms", [{"alias": "ContainerOS@20250117"}]),
        ("capacityReservationSelectorTerms", [{"id": "crp-2"}]),
    ],
)
def test_selector_terms_do_not_change_the_hash(path, new):
    """Case 90."""
    assert value(changed(path, new)) == value(EVERYTHING)


def test_tags_do_not_count():
    """They are brought in line on instances that run."""
    assert value(changed("tags", {"team": "shop"})) == value(EVERYTHING)


def test_every_field_of_the_spec_is_hashed_or_listed_as_excluded():
    """A new field must be thought of here."""
    spec = EVERYTHING["spec"]
    counted = {
        name
        for name in spec
        if value({**EVERYTHING, "spec": {key: spec[key] for key in spec if key != name}})
        != value(EVERYTHING)
    }
    known = {field.alias for field in ECSNodeClassSpec.model_fields.values()}

    assert known - counted == {
        "vSwitchSelectorTerms",
        "securityGroupSelectorTerms",
        "imageSelectorTerms",
        "capacityReservationSelectorTerms",
        "tags",
    }


def test_order_does_not_count():
    obj = copy.deepcopy(EVERYTHING)
    spec = obj["spec"]
    for name in ("kubeletConfiguration", "metadataOptions", "systemDisk"):
        spec[name] = dict(reversed(spec[name].items()))
    spec["systemDisk"]["categories"].reverse()
    for name in ("dataDisks", "dataDiskCategories"):
        spec[name].reverse()

    assert json.dumps(obj) != json.dumps(EVERYTHING)
    assert value(obj) == value(EVERYTHING)


@pytest.mark.parametrize(
    "written_out",
    [
        {"vSwitchSelectionPolicy": "cheapest"},
        {"kubeletConfiguration": {}},
        {"kubeletConfiguration": {"kubeReserved": {}}},
        {"systemDisk": {}},
        {"systemDisk": {"performanceLevel": "PL0", "volumeSize": "20Gi"}},
        {"systemDisk": {"size": 20}},
        {"systemDisk": {"categories": []}},
        {
            "systemDisk": {
                "categories": [
                    *("cloud_essd_entry", "cloud", "cloud_ssd"),
                    *("cloud_essd", "cloud_auto", "cloud_efficiency"),
                ]
            }
        },
        {"dataDiskCategories": ["cloud_essd"]},
        {"dataDisks": []},
        {"dataDiskCategories": []},
        {"formatDataDisk": False},
        {"passwordInherit": False},
        {"userData": ""},
        {"spot": {"allocationStrategy": "lowest-price", "interruptionBehavior": "terminate"}},
        {"metadataOptions": {}},
    ],
)
def test_a_default_may_be_written_out(written_out):
    """So an API server that fills in defaults drifts nothing, nor does a field that is new to us."""
    assert value(node_class(**written_out)) == value(node_class())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"systemDisk": {"size": 1024}}, {"systemDisk": {"volumeSize": "1Ti"}}),
        ({"systemDisk": {"size": 40, "volumeSize": "60Gi"}}, {"systemDisk": {"size": 60}}),
        ({"dataDisks": [{"volumeSize": "1Ti"}]}, {"dataDisks": [{"volumeSize": "1024Gi"}]}),
        ({"dataDisks": [{}]}, {"dataDisks": [{"volumeSize": "10Gi"}]}),
        (
            {"systemDisk": {"categories": ["cloud_ssd", "cloud_essd"]}, "dataDisks": [{}]},
            {
                "systemDisk": {"categories": ["cloud_essd", "cloud_ssd"]},
                "dataDisks": [{}],
                "dataDiskCategories": ["cloud_ssd", "cloud_essd"],
            },
        ),
    ],
)
def test_the_same_disks_may_be_spelled_otherwise(one, other):
    assert value(node_class(**one)) == value(node_class(**other)) != value(node_class())


def test_name_and_status_do_not_count():
    status = {"vSwitches": [{"id": "vsw-1", "zoneID": "cn-hangzhou-b"}]}

    assert value({**EVERYTHING, "metadata": {"name": "shop"}, "status": status}) == value(
        EVERYTHING
    )


def test_the_version_is_none_of_the_go_implementation():
    """Case 93: hashes of its version, v3, are never compared with ours."""
    found = hash_node_class(ECSNodeClass.model_validate(EVERYTHING))

    assert found.version == HASH_VERSION == "py-v1"


def test_the_hash_is_the_same_in_every_process_and_release():
    """Else all nodes would drift after an update; a change needs another version."""
    program = (
        "from providers.alibabacloud.tests.test_hashing import EVERYTHING, value;"
        "print(value(EVERYTHING))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert done.stdout.strip() == value(EVERYTHING) == "55a96b84728d5703"
