"""Tests launch template content (cases 87, 95, 104, 116 to 120, 126 to 132).

Also the limit of user data (133), and the numbers of cases 47 to 51 as kubelet settings.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.api.nodeclaim import (
    NodeClaim,
    NodeClaimSpec,
    NodeClassRef,
    RequirementSpec,
    ResourceRequirements,
)
from karpenter_core.errors import BadInputError, LaunchFailedError, NodeClassNotReadyError
from karpenter_core.provider.catalogue import Offering, Price, Requirements
from karpenter_core.testing.builders import instance_type
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.instance_tags import owned_tags
from karpenter_provider_aws.kubelet.sizing import KubeletSizing
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
)
from karpenter_provider_aws.launch.template_groups import (
    ClusterDetails,
    LaunchTemplate,
    TemplateRequest,
    lowest_partition,
    templates_for,
)
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from providers.aws.tests.catalogue.recorded_region import info

CLUSTER = ClusterDetails(
    name="test",
    endpoint="https://test",
    region="us-east-1",
    ca_bundle="Y2E=",
    dns_ip="10.0.100.10",
    service_cidr="10.100.0.0/16",
)
AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
ARM64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
SMALL = instance_type("m5.large", pods="29")
LARGE = instance_type("m5.xlarge", pods="58")
ARM = instance_type("m6g.large", arch="arm64", pods="29")
EFA = instance_type("p4d.24xlarge", pods="737", resources={"vpc.amazonaws.com/efa": "4"})
PODS = {
    "m5.large": 29,
    "m5.xlarge": 58,
    "m6g.large": 29,
    "p4d.24xlarge": 737,
    "p6-b300.48xlarge": 50,
}


def node_class(name="default", *, amis=None, **spec) -> EC2NodeClass:
    return EC2NodeClass.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], **spec},
            "status": {
                "amis": amis
                or [
                    {"id": "ami-amd64", "requirements": [AMD64]},
                    {"id": "ami-arm64", "requirements": [ARM64]},
                ],
                "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
                "instanceProfile": "test-profile",
            },
        }
    )


def claim(requirements=(), requests=(), **labels) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name="web-abc12", labels={"karpenter.sh/nodepool": "web", **labels}),
        spec=NodeClaimSpec(
            requirements=tuple(RequirementSpec(**r) for r in requirements),
            resources=ResourceRequirements(requests=dict.fromkeys(requests, "1")),
            node_class_ref=NodeClassRef(group="karpenter.k8s.aws", kind="EC2NodeClass", name="d"),
        ),
    )


def sizing_of(name: str) -> KubeletSizing:
    pods = PODS[name]
    return KubeletSizing(max_pods=pods, pods=pods, kube_reserved={}, system_reserved={})


def templates(
    *types, cluster=CLUSTER, sizing=sizing_of, spec=None, node_class_name="default", **changes
) -> tuple[LaunchTemplate, ...]:
    owner = changes.pop("owner", None) or node_class(node_class_name, **(spec or {}))
    request = {
        "node_class": owner,
        "node_claim": claim(),
        "instance_types": types or (SMALL,),
        "capacity_type": "on-demand",
        "tags": owned_tags(
            owner.spec.tags, cluster=cluster.name, node_class=owner.name, node_pool="web"
        ),
    }
    return templates_for(
        TemplateRequest(**(request | changes)), cluster, sizing, lambda name: info(name).efa_places
    )


def data(*types, **changes) -> dict[str, Any]:
    """Return the data of the only template, which must be valid to boto3."""
    [template] = templates(*types, **changes)
    assert_valid(template)
    return dict(template.data)


_MODEL = botocore.session.get_session().get_service_model("ec2")


def assert_valid(template: LaunchTemplate) -> None:
    shape = _MODEL.operation_model("CreateLaunchTemplate").input_shape
    call = {"LaunchTemplateName": template.name, "LaunchTemplateData": template.data}
    assert not ParamValidator().validate(call, shape).has_errors()


def user_text(template_data: dict[str, Any]) -> str:
    return b64decode(template_data["UserData"]).decode()


# -- groups ----------------------------------------------------------------------------------------


def names(template: LaunchTemplate) -> list[str]:
    return [it.name for it in template.instance_types]


def test_each_image_has_a_template_with_the_types_it_is_for():
    first, second = templates(SMALL, ARM)

    assert (first.image_id, names(first)) == ("ami-amd64", ["m5.large"])
    assert (second.image_id, names(second)) == ("ami-arm64", ["m6g.large"])
    assert first.data["ImageId"] == "ami-amd64"


def test_names_of_templates_have_one_form_in_all_versions():
    """After an upgrade, templates of another form would be made anew, and the old ones stay."""
    [template] = templates(SMALL)
    assert re.fullmatch(r"karpenter\.k8s\.aws/[0-9a-f]{20}", template.name)


def test_the_newest_image_that_is_for_a_type_wins():
    amis = [{"id": "ami-new", "requirements": [AMD64]}, {"id": "ami-old", "requirements": [AMD64]}]

    assert data(spec={"amis": amis})["ImageId"] == "ami-new"


def test_types_without_an_image_are_left_out():
    [template] = templates(
        SMALL, ARM, owner=node_class(amis=[{"id": "ami-1", "requirements": [AMD64]}])
    )

    assert names(template) == ["m5.large"]


def test_a_launch_fails_when_no_type_has_an_image():
    with pytest.raises(LaunchFailedError, match="ami-1"):
        templates(ARM, owner=node_class(amis=[{"id": "ami-1", "requirements": [AMD64]}]))


@pytest.mark.parametrize("field", ["amis", "security_groups", "instance_profile"])
def test_a_status_that_lacks_something_is_not_ready(field):
    owner = node_class()
    empty = type(getattr(owner.status, field))()
    owner = owner.model_copy(update={"status": owner.status.model_copy(update={field: empty})})

    with pytest.raises(
        NodeClassNotReadyError, match=r'ec2nodeclass "default": status\.\w+ is empty'
    ):
        templates(owner=owner)


def test_types_with_other_numbers_of_pods_have_other_templates():
    first, second = templates(SMALL, LARGE)

    assert "maxPods: 29" in user_text(first.data)
    assert "maxPods: 58" in user_text(second.data)


def test_types_with_equal_numbers_share_a_template():
    def ten(_name: str) -> KubeletSizing:
        return KubeletSizing(max_pods=10, pods=10, kube_reserved={}, system_reserved={})

    [template] = templates(SMALL, LARGE, sizing=ten)

    assert names(template) == ["m5.large", "m5.xlarge"]


def test_types_that_reserve_other_amounts_have_other_templates():
    def sizing(name: str) -> KubeletSizing:
        cpu = "60m" if name == "m5.large" else "120m"
        return KubeletSizing(
            max_pods=10, pods=10, kube_reserved={"cpu": cpu}, system_reserved={"memory": "1Gi"}
        )

    first, second = templates(
        SMALL, LARGE, sizing=sizing, spec={"kubelet": {"kubeReserved": {"cpu": "vcpus*30"}}}
    )

    assert 'cpu: "60m"' in user_text(first.data)
    assert 'cpu: "120m"' in user_text(second.data)
    assert "vcpus" not in user_text(first.data) + user_text(second.data)
    assert 'memory: "1Gi"' in user_text(first.data)


@pytest.mark.parametrize(
    ("alias", "max_pods_text"),
    [
        ("al2@latest", "--max-pods=29 --pods-per-core=2"),
        ("al2023@latest", "maxPods: 29"),
        ("bottlerocket@latest", "max-pods = 29"),
        ("windows2022@latest", "--max-pods=29 --pods-per-core=2"),
    ],
)
def test_every_family_gets_max_pods_of_the_catalogue(alias, max_pods_text):
    spec = {"amiSelectorTerms": [{"alias": alias}], "kubelet": {"podsPerCore": 2}}

    assert max_pods_text in user_text(data(spec=spec))


def test_custom_images_share_a_template():
    spec = {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-amd64"}], "userData": "mine"}

    [template] = templates(SMALL, LARGE, spec=spec)

    assert user_text(template.data) == "mine"


def test_custom_images_without_user_data_get_none():
    spec = {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-amd64"}]}

    assert "UserData" not in data(spec=spec)


def test_user_data_that_cannot_be_merged_makes_no_template():
    spec = {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "not toml"}

    with pytest.raises(BadInputError, match="TOML"):
        templates(spec=spec)


def test_unknown_bottlerocket_settings_are_reported():
    spec = {
        "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
        "userData": "[settings.kubernetes]\nno-such-setting = 1",
    }

    [template] = templates(spec=spec)

    assert template.left_out == ("no-such-setting",)
    assert "no-such-setting" not in user_text(template.data)


# -- names -----------------------------------------------------------------------------------------


def name(**changes) -> str:
    [template] = templates(**changes)
    assert 3 <= len(template.name) <= 128
    assert template.name.startswith("karpenter.k8s.aws/")
    return template.name


def test_equal_launches_have_equal_names():
    assert name() == name()
    assert name(spec={"tags": {"a": "1", "b": "2"}}) == name(spec={"tags": {"b": "2", "a": "1"}})


def test_other_types_with_the_same_numbers_do_not_change_the_name():
    twin = instance_type("m5a.large", pods="29")

    [both] = templates(SMALL, twin, sizing=lambda _: sizing_of("m5.large"))

    assert both.name == name()


@pytest.mark.parametrize(
    "changes",
    [
        {"node_class_name": "other"},
        {"cluster": replace(CLUSTER, name="other")},
        {"cluster": replace(CLUSTER, endpoint="https://other")},
        {"cluster": replace(CLUSTER, dns_ip="10.0.100.11")},
        {"cluster": replace(CLUSTER, ca_bundle="Q0E=")},
        {"cluster": replace(CLUSTER, uses_reservations=False)},
        {"node_claim": claim(team="a")},
        {"capacity_type": "spot"},
        {"tenancy": "dedicated"},
        {"placement_group_id": "pg-1"},
        {"placement_partition": 2},
        {"spec": {"kubelet": {"podsPerCore": 2}}},
        {"spec": {"kubelet": {"registryPullQPS": 10}}},
        {"spec": {"userData": "#!/bin/sh"}},
        {"spec": {"tags": {"a": "b"}}},
        {"spec": {"detailedMonitoring": True}},
        {"spec": {"instanceStorePolicy": "RAID0"}},
        {"spec": {"associatePublicIPAddress": True}},
        {"spec": {"ipPrefixCount": 1}},
        {"spec": {"metadataOptions": {"httpTokens": "optional"}}},
        {"spec": {"cpuOptions": {"nestedVirtualization": "enabled"}}},
        {"spec": {"connectionTracking": {"udpTimeout": 30}}},
        {"spec": {"blockDeviceMappings": [{"deviceName": "/dev/xvda"}]}},
        {"spec": {"amis": [{"id": "ami-2", "requirements": [AMD64]}]}},
    ],
    ids=str,
)
def test_every_template_field_changes_its_name(changes):
    assert name(**changes) != name()


@pytest.mark.parametrize(
    "spec",
    [
        {"subnetSelectorTerms": [{"id": "subnet-1"}]},
        {"amiSelectorTerms": [{"alias": "al2023@v20240625"}]},
        {"context": "x"},
        {"amis": [{"id": "ami-amd64", "requirements": [AMD64]}, {"id": "ami-z"}]},
    ],
    ids=str,
)
def test_fields_outside_a_template_are_not_in_its_name(spec):
    assert name(spec=spec) == name()


# -- content ---------------------------------------------------------------------------------------


def test_a_plain_template_says_no_more_than_it_must():
    found = data()
    text = user_text(found)
    del found["UserData"]

    assert "maxPods: 29" in text
    tags = [
        {"Key": "eks:eks-cluster-name", "Value": "test"},
        {"Key": "karpenter.k8s.aws/ec2nodeclass", "Value": "default"},
        {"Key": "karpenter.sh/nodepool", "Value": "web"},
        {"Key": "kubernetes.io/cluster/test", "Value": "owned"},
    ]
    assert found == {
        "ImageId": "ami-amd64",
        "IamInstanceProfile": {"Name": "test-profile"},
        "Monitoring": {"Enabled": False},
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpProtocolIpv6": "disabled",
            "HttpPutResponseHopLimit": 1,
            "HttpTokens": "required",
            "InstanceMetadataTags": "disabled",
        },
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-1", "sg-2"]}],
        "Placement": {"Tenancy": "default"},
        "EnclaveOptions": {"Enabled": False},
        "TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags}],
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": 20},
            }
        ],
        "CapacityReservationSpecification": {"CapacityReservationPreference": "none"},
    }


@pytest.mark.parametrize(
    ("alias", "devices"),
    [
        ("al2@latest", {"/dev/xvda": 20}),
        ("al2023@latest", {"/dev/xvda": 20}),
        ("bottlerocket@latest", {"/dev/xvda": 4, "/dev/xvdb": 20}),
        ("windows2022@latest", {"/dev/sda1": 50}),
    ],
)
def test_a_family_has_devices_of_its_own(alias, devices):
    mappings = data(spec={"amiSelectorTerms": [{"alias": alias}]})["BlockDeviceMappings"]

    assert {m["DeviceName"]: m["Ebs"]["VolumeSize"] for m in mappings} == devices
    assert all(m["Ebs"]["Encrypted"] and m["Ebs"]["VolumeType"] == "gp3" for m in mappings)


def test_a_custom_image_keeps_its_own_devices():
    spec = {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-amd64"}]}

    assert "BlockDeviceMappings" not in data(spec=spec)


@pytest.mark.parametrize(
    ("size", "gib"), [("20G", 19), ("200Gi", 200), ("1Ti", 1024), ("64T", 59605)]
)
def test_sizes_of_volumes_are_rounded_up_to_whole_gib(size, gib):
    mapping = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}

    [found] = data(spec={"blockDeviceMappings": [mapping]})["BlockDeviceMappings"]

    assert found["Ebs"] == {"VolumeSize": gib}


def test_a_volume_has_only_the_requested_fields():
    mapping = {
        "deviceName": "/dev/xvda",
        "ebs": {
            "deleteOnTermination": False,
            "encrypted": False,
            "iops": 4000,
            "throughput": 0,
            "kmsKeyID": "alias/a",
            "snapshotID": "snap-1",
            "volumeInitializationRate": 100,
            "volumeType": "gp3",
        },
    }

    [found] = data(spec={"blockDeviceMappings": [mapping]})["BlockDeviceMappings"]

    assert found["Ebs"] == {
        "DeleteOnTermination": False,
        "Encrypted": False,
        "Iops": 4000,
        "KmsKeyId": "alias/a",
        "SnapshotId": "snap-1",
        "VolumeInitializationRate": 100,
        "VolumeType": "gp3",
    }


def test_spot_requests_are_tagged_too():
    def kinds(capacity_type: str) -> list[str]:
        found = data(capacity_type=capacity_type)["TagSpecifications"]
        return [specification["ResourceType"] for specification in found]

    assert kinds("on-demand") == ["network-interface"]
    assert kinds("spot") == ["network-interface", "spot-instances-request"]


@pytest.mark.parametrize(
    "region",
    [
        "us-iso-east-1",
        "us-iso-west-1",
        "us-isob-east-1",
        "us-isob-west-1",
        "us-isof-south-1",
        "us-isof-east-1",
    ],
)
def test_some_regions_have_no_metadata_on_ipv6(region):
    options = data(cluster=replace(CLUSTER, region=region))["MetadataOptions"]

    assert "HttpProtocolIpv6" not in options


def test_metadata_options_are_the_users():
    wanted = {
        "httpEndpoint": "disabled",
        "httpProtocolIPv6": "enabled",
        "httpPutResponseHopLimit": 2,
        "httpTokens": "optional",
    }

    assert data(spec={"metadataOptions": wanted})["MetadataOptions"] == {
        "HttpEndpoint": "disabled",
        "HttpProtocolIpv6": "enabled",
        "HttpPutResponseHopLimit": 2,
        "HttpTokens": "optional",
        "InstanceMetadataTags": "disabled",
    }


def test_placement_names_tenancy_group_and_partition():
    found = data(tenancy="dedicated", placement_group_id="pg-1", placement_partition=3)

    assert found["Placement"] == {
        "Tenancy": "dedicated",
        "GroupId": "pg-1",
        "PartitionNumber": 3,
    }


@pytest.mark.parametrize(
    ("operator", "values", "partition"),
    [("In", ("3", "1"), 1), ("In", ("2",), 2), ("Exists", (), 0), ("NotIn", ("1",), 0)],
)
def test_the_lowest_partition_that_a_claim_allows_is_launched_into(operator, values, partition):
    spec = RequirementSpec(
        key="karpenter.k8s.aws/placement-group-partition", operator=operator, values=values
    )

    assert lowest_partition(Requirements.from_specs([spec])) == partition


def test_a_claim_that_names_no_partition_leaves_it_to_ec2():
    assert lowest_partition(Requirements()) == 0


def test_enclaves_are_enabled_on_request():
    asking = claim(requests=["eks.amazonaws.com/nitro-sandbox"])

    assert data()["EnclaveOptions"] == {"Enabled": False}
    assert data(node_claim=asking)["EnclaveOptions"] == {"Enabled": True}
    assert data(spec={"enclaveOptions": {"enabled": True}})["EnclaveOptions"] == {"Enabled": True}


def test_nested_virtualization_is_enabled_on_request():
    spec = {"cpuOptions": {"nestedVirtualization": "enabled"}}

    assert data(spec=spec)["CpuOptions"] == {"NestedVirtualization": "enabled"}
    assert "CpuOptions" not in data(spec={"cpuOptions": {}})


def test_monitoring_is_enabled_on_request():
    assert data(spec={"detailedMonitoring": True})["Monitoring"] == {"Enabled": True}


@pytest.mark.parametrize(
    "alias", ["al2@latest", "al2023@latest", "bottlerocket@latest", "windows2022@latest"]
)
def test_families_register_with_their_taints(alias):
    """Case 126."""
    text = user_text(data(spec={"amiSelectorTerms": [{"alias": alias}]}))

    assert "karpenter.sh/do-not-sync-taints" in text
    assert "karpenter.sh/unregistered" in text


@pytest.mark.parametrize(
    "alias", ["al2@latest", "al2023@latest", "bottlerocket@latest", "windows2022@latest"]
)
def test_ec2_takes_the_template_and_gives_it_back(alias, clients):
    spec = {"amiSelectorTerms": [{"alias": alias}], **EVERYTHING}
    [template] = templates(capacity_type="spot", spec=spec)

    clients.ec2.create_launch_template(
        LaunchTemplateName=template.name, LaunchTemplateData=template.data
    )

    [version] = clients.ec2.describe_launch_template_versions(LaunchTemplateName=template.name)[
        "LaunchTemplateVersions"
    ]
    assert version["LaunchTemplateData"] == template.data


# -- interfaces --------------------------------------------------------------------------------------

IPV6 = replace(CLUSTER, dns_ip="fd01::a", service_cidr="fd01::/108")
INTERFACES = [
    {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
    {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
]
EVERYTHING = {
    "networkInterfaces": INTERFACES,
    "associatePublicIPAddress": True,
    "ipPrefixCount": 10,
    "connectionTracking": {
        "tcpEstablishedTimeout": 60,
        "udpStreamTimeout": 180,
        "udpTimeout": 30,
    },
}
GROUPS = {"Groups": ["sg-1", "sg-2"]}
TRACKING = {"TcpEstablishedTimeout": 60, "UdpStreamTimeout": 180, "UdpTimeout": 30}


def test_configured_interfaces_have_addresses_unless_they_are_for_efa_alone():
    assert data(spec=EVERYTHING)["NetworkInterfaces"] == [
        {
            **GROUPS,
            "NetworkCardIndex": 0,
            "DeviceIndex": 0,
            "InterfaceType": "interface",
            "AssociatePublicIpAddress": True,
            "Ipv4PrefixCount": 10,
            "ConnectionTrackingSpecification": TRACKING,
        },
        {**GROUPS, "NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa-only"},
    ]


def test_on_an_ipv6_cluster_interfaces_have_an_ipv6_address_and_prefixes():
    first, second = data(spec=EVERYTHING, cluster=IPV6)["NetworkInterfaces"]

    assert first["PrimaryIpv6"] is True
    assert first["Ipv6AddressCount"] == 1
    assert first["Ipv6PrefixCount"] == 10
    assert "Ipv4PrefixCount" not in first
    assert second == {
        **GROUPS,
        "NetworkCardIndex": 1,
        "DeviceIndex": 1,
        "InterfaceType": "efa-only",
    }


def test_one_interface_on_an_ipv6_cluster():
    assert data(cluster=IPV6)["NetworkInterfaces"] == [
        {**GROUPS, "DeviceIndex": 0, "PrimaryIpv6": True, "Ipv6AddressCount": 1}
    ]


def test_prefixes_and_public_address_of_the_one_interface():
    spec = {"ipPrefixCount": 10, "associatePublicIPAddress": False}

    assert data(spec=spec)["NetworkInterfaces"] == [
        {**GROUPS, "DeviceIndex": 0, "AssociatePublicIpAddress": False, "Ipv4PrefixCount": 10}
    ]


def test_pods_with_efa_requests_get_every_efa_of_the_type():
    found = data(EFA, node_claim=claim(requests=["vpc.amazonaws.com/efa"]))["NetworkInterfaces"]

    places = [(item["NetworkCardIndex"], item["DeviceIndex"]) for item in found]
    assert places == [(0, 0), (1, 1), (2, 1), (3, 1)]
    assert {item["InterfaceType"] for item in found} == {"efa"}
    assert all(item["Groups"] == ["sg-1", "sg-2"] for item in found)


def test_efas_are_on_the_network_cards_that_have_them():
    """Card 0 of p6-b300 has none, and has the primary interface all the same."""
    b300 = instance_type("p6-b300.48xlarge", pods="50", resources={"vpc.amazonaws.com/efa": "16"})

    found = data(b300, node_claim=claim(requests=["vpc.amazonaws.com/efa"]))["NetworkInterfaces"]

    assert [item["InterfaceType"] for item in found] == ["interface", *["efa"] * 16]
    places = [(item["NetworkCardIndex"], item["DeviceIndex"]) for item in found]
    assert places == [(0, 0), *((card, 1) for card in range(1, 17))]


def test_types_with_efas_in_other_places_have_other_templates():
    hpc = instance_type("hpc6id.32xlarge", pods="51", resources={"vpc.amazonaws.com/efa": "2"})

    def ten(_name: str) -> KubeletSizing:
        return KubeletSizing(max_pods=10, pods=10, kube_reserved={}, system_reserved={})

    found = templates(EFA, hpc, node_claim=claim(requests=["vpc.amazonaws.com/efa"]), sizing=ten)

    assert [names(template) for template in found] == [["p4d.24xlarge"], ["hpc6id.32xlarge"]]


def test_efas_are_not_attached_unasked():
    assert len(data(EFA)["NetworkInterfaces"]) == 1


def test_configured_interfaces_override_requests_of_pods():
    found = data(EFA, node_claim=claim(requests=["vpc.amazonaws.com/efa"]), spec=EVERYTHING)[
        "NetworkInterfaces"
    ]

    assert [item["InterfaceType"] for item in found] == ["interface", "efa-only"]


# -- reservations ------------------------------------------------------------------------------------


def reserved(
    reservation_id: str, zone="zone-a", kind="default", interruptible="false", available=True
) -> Offering:
    labels = {
        ZONE: zone,
        CAPACITY_TYPE: "reserved",
        CAPACITY_RESERVATION_ID: reservation_id,
        CAPACITY_RESERVATION_TYPE: kind,
        CAPACITY_RESERVATION_INTERRUPTIBLE: interruptible,
    }
    return Offering(
        requirements=Requirements.from_labels(labels),
        price=Price(1e-7),
        available=available,
        reservation_capacity=1,
    )


def test_each_reservation_has_a_template_that_targets_it():
    both = instance_type("m5.large", offerings=[reserved("cr-1"), reserved("cr-2", "zone-b")])

    found = templates(both, capacity_type="reserved")

    assert [template.reservation_id for template in found] == ["cr-1", "cr-2"]
    for template in found:
        assert_valid(template)
        assert template.data["CapacityReservationSpecification"] == {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": template.reservation_id},
        }
        assert "InstanceMarketOptions" not in template.data


@pytest.mark.parametrize(
    ("offering", "market"),
    [
        (reserved("cr-1", kind="capacity-block"), "capacity-block"),
        (reserved("cr-1", interruptible="true"), "interruptible-capacity-reservation"),
    ],
)
def test_blocks_and_interruptible_reservations_are_markets_of_their_own(offering, market):
    found = data(instance_type("m5.large", offerings=[offering]), capacity_type="reserved")

    assert found["InstanceMarketOptions"] == {"MarketType": market}


def test_only_reservations_that_the_claim_may_use_have_templates():
    zone = {"key": ZONE, "operator": "In", "values": ("zone-b",)}
    offerings = [
        reserved("cr-1", "zone-a"),
        reserved("cr-2", "zone-b"),
        reserved("cr-3", "zone-b", available=False),
    ]

    [template] = templates(
        instance_type("m5.large", offerings=offerings),
        capacity_type="reserved",
        node_claim=claim([zone]),
    )

    assert template.reservation_id == "cr-2"


@pytest.mark.parametrize("capacity_type", ["spot", "on-demand"])
def test_other_launches_do_not_use_open_reservations(capacity_type):
    assert data(capacity_type=capacity_type)["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "none"
    }


def test_without_the_gate_nothing_is_said_of_reservations():
    found = data(cluster=replace(CLUSTER, uses_reservations=False))

    assert "CapacityReservationSpecification" not in found


# -- size ----------------------------------------------------------------------------------------------


def test_the_size_of_user_data_is_that_of_its_bytes():
    spec = {"amiFamily": "Custom", "amiSelectorTerms": [{"id": "ami-amd64"}], "userData": "ü" * 10}

    [template] = templates(spec=spec)

    assert template.user_data_bytes == 20


@pytest.mark.parametrize(("size", "warnings"), [(14_744, 0), (14_746, 1)])
def test_large_user_data_is_warned_of_and_its_size_is_a_metric(size, warnings):
    registry = CollectorRegistry()
    sizes = UserDataSizes(registry)

    with capture_logs() as logs:
        sizes.record("default", size)
        sizes.record("default", size)

    def sample() -> float | None:
        return registry.get_sample_value(
            "karpenter_ec2nodeclasses_userdata_bytes", {"nodeclass": "default"}
        )

    assert len(logs) == warnings
    assert sample() == size
    sizes.forget("default")
    sizes.forget("default")
    assert sample() is None
