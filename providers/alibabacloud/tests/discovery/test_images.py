"""Images of a NodeClass over the simulated cloud, and which belong to a family (section 5)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_alibabacloud.api.families import ImageFamily, parse_alias
from karpenter_provider_alibabacloud.discovery.families import (
    FAMILIES,
    ListedImage,
    chosen_images,
)
from providers.alibabacloud.tests.discovery.worlds import Readers, node_class_of


@pytest.fixture
def readers(cloud, clients):
    return Readers(cloud, clients)


def listed(id_, *, name="", architecture="x86_64", kind="", system="Linux"):
    return ListedImage(
        id=id_, name=name or id_, architecture=architecture, kind=kind, system=system
    )


ALINUX = [
    listed("aliyun_3_x64_20G_alibase_20240819.vhd"),
    listed("aliyun_3_x64_20G_alibase_20250117.vhd"),
    listed("aliyun_3_arm64_20G_alibase_20240819.vhd", architecture="arm64"),
    listed("aliyun_3_x64_20G_container_optimized_alibase_20250629.vhd"),
    listed("aliyun_3_x64_20G_dengbao_alibase_20250629.vhd"),
    listed("aliyun_2_x64_20G_alibase_20250629.vhd"),
]


def chosen(alias, images):
    return [image.id for image in chosen_images(parse_alias(alias), images)]


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        (
            "AlibabaCloudLinux3",
            ["aliyun_3_arm64_20G_alibase_20240819.vhd", "aliyun_3_x64_20G_alibase_20250117.vhd"],
        ),
        ("AlibabaCloudLinux3@20250117", ["aliyun_3_x64_20G_alibase_20250117.vhd"]),
        ("AlibabaCloudLinux3@2025", []),
        (
            "AlibabaCloudLinux3ContainerOptimized@latest",
            ["aliyun_3_x64_20G_container_optimized_alibase_20250629.vhd"],
        ),
        ("ContainerOS", []),
        ("Debian", []),
    ],
)
def test_an_alias_means_the_newest_of_each_architecture_or_those_of_a_date(alias, expected):
    assert chosen(alias, ALINUX) == expected


def test_the_order_in_which_images_are_listed_does_not_matter():
    assert chosen("AlibabaCloudLinux3", ALINUX) == chosen("AlibabaCloudLinux3", ALINUX[::-1])


def test_other_systems_and_architectures_belong_to_no_node():
    images = [
        listed("win", name="ContainerOS-like", system="Windows"),
        listed("odd", name="ContainerOS 3", architecture="i386"),
        listed("good", name="ContainerOS 3"),
    ]

    assert chosen("ContainerOS", images) == ["good"]


def test_every_image_family_of_the_schema_is_implemented():
    assert set(FAMILIES) == set(ImageFamily)


def test_images_of_an_alias_are_those_that_ack_lists(cloud, readers):
    """One of each architecture, by name, with what an instance type needs to run it."""
    answer = readers.images.find(node_class_of(cloud))

    assert [image.id for image in answer.items] == [
        "lifsea_3_arm64_10G_containerd_1_6_36_alibase_20250629.vhd",
        "lifsea_3_x64_10G_containerd_1_6_36_alibase_20250629.vhd",
    ]
    needed = [
        (need.key, need.operator, need.values)
        for image in answer.items
        for need in image.requirements
    ]
    assert needed == [
        ("kubernetes.io/arch", "In", ("arm64",)),
        ("kubernetes.io/arch", "In", ("amd64",)),
    ]
    asked = cloud.calls.of("DescribeKubernetesVersionMetadata")[0].parameters
    assert asked["KubernetesVersion"] == "1.32.1-aliyun.1"
    assert asked["ClusterType"] == "ManagedKubernetes"


def test_a_release_is_discovered_a_minute_later(cloud, readers):
    node_class = node_class_of(cloud, imageSelectorTerms=[{"alias": "AlibabaCloudLinux3@latest"}])
    before = readers.images.find(node_class)
    new = cloud.images.publish("AlibabaCloudLinux3", "20260101").id

    assert readers.images.find(node_class) == before
    readers.clock.forward(minutes=1)
    assert new in {image.id for image in readers.images.find(node_class).items}


def test_an_unpublished_release_date_finds_no_image(cloud, readers):
    node_class = node_class_of(cloud, imageSelectorTerms=[{"alias": "ContainerOS@19990101"}])

    answer = readers.images.find(node_class)

    assert answer.items == ()
    (absent,) = answer.absent
    assert absent.startswith('spec.imageSelectorTerms[0] alias "ContainerOS@19990101"')
    assert "Kubernetes 1.32.1-aliyun.1" in absent


def test_an_unknown_family_is_a_finding(cloud, readers):
    """Case 17: it may be stored since another CRD let it in."""
    answer = readers.images.find(node_class_of(cloud, imageSelectorTerms=[{"alias": "Debian"}]))

    assert answer.items == ()
    assert answer.absent[0].startswith('spec.imageSelectorTerms[0] alias "Debian" (families are ')
    assert cloud.calls.all == ()


def test_images_are_selected_by_id_name_tags_and_family(cloud, readers):
    plain = cloud.images.add("plain").id
    cloud.images.add("golden", family="golden", tags={"team": "web"})
    cloud.time.advance(60)
    newest = cloud.images.add("golden", family="golden", tags={"team": "web"}).id

    def ids(*terms):
        node_class = node_class_of(cloud, imageSelectorTerms=list(terms))
        return [image.id for image in readers.images.find(node_class).items]

    assert ids({"id": plain}) == [plain]
    for term in ({"name": "golden"}, {"tags": {"team": "*"}}, {"imageFamily": "golden"}):
        assert ids(term) == [newest]
    assert ids({"name": "golden", "ownerAlias": "others"}) == []


def test_the_first_term_with_an_image_for_an_architecture_counts(cloud, readers):
    first = cloud.images.add("b-first").id
    cloud.images.add("a-second")
    arm = cloud.images.add("c-arm", architecture="arm64").id
    terms = [{"name": "b-first"}, {"name": "a-second"}, {"name": "c-arm"}]

    answer = readers.images.find(node_class_of(cloud, imageSelectorTerms=terms))

    assert [(image.id, image.name) for image in answer.items] == [
        (first, "b-first"),
        (arm, "c-arm"),
    ]
    assert answer.absent == ()


def test_an_image_that_no_node_can_run_is_named(cloud, readers):
    odd = cloud.images.add("odd", architecture="i386").id
    terms = [{"id": odd}, {"id": "m-none"}]

    answer = readers.images.find(node_class_of(cloud, imageSelectorTerms=terms))

    assert answer.items == ()
    assert answer.absent == (
        f'spec.imageSelectorTerms[0] id "{odd}" (an image for i386)',
        'spec.imageSelectorTerms[1] id "m-none"',
    )


def test_an_owner_alone_is_no_wish_and_beside_tags_it_narrows_them(cloud, readers):
    golden = cloud.images.add("golden", tags={"team": "web"}).id
    cloud.images.add("shared", tags={"team": "web"}, owner="others")

    def find(**term):
        return readers.images.find(node_class_of(cloud, imageSelectorTerms=[term]))

    assert find(ownerAlias="self").absent == ("spec.imageSelectorTerms[0] (it is empty)",)
    assert cloud.calls.count("DescribeImages") == 0
    found = find(ownerAlias="self", tags={"team": "web"})
    assert ([image.id for image in found.items], found.absent) == ([golden], ())


def test_only_an_image_that_is_named_by_its_id_may_have_expired(cloud, readers):
    golden = cloud.images.add("golden").id
    for term in ({"id": golden}, {"name": "golden"}):
        readers.images.find(node_class_of(cloud, imageSelectorTerms=[term]))

    shown = [call.parameters.get("ShowExpired") for call in cloud.calls.of("DescribeImages")]
    assert [str(each) for each in shown] == ["True", "None"]


def test_images_that_were_found_are_kept_and_others_are_looked_for_again(cloud, readers):
    cloud.images.add("golden")
    for name, calls in (("golden", 1), ("silver", 3)):
        for _ in range(2):
            readers.images.find(node_class_of(cloud, imageSelectorTerms=[{"name": name}]))
        assert cloud.calls.count("DescribeImages") == calls


def test_releases_that_were_found_are_kept_and_others_are_looked_for_again(cloud, readers):
    for alias, calls in (("ContainerOS", 1), ("ContainerOS@19990101", 2)):
        for _ in range(2):
            readers.images.find(node_class_of(cloud, imageSelectorTerms=[{"alias": alias}]))
        assert cloud.calls.count("DescribeKubernetesVersionMetadata") == calls


def test_an_alias_finds_no_image_outside_ack(cloud, clients):
    readers = Readers(cloud, clients, cluster_type="Custom")

    answer = readers.images.find(node_class_of(cloud))

    assert "Custom cluster" in answer.absent[0]
    assert cloud.calls.all == ()


def test_a_cloud_that_does_not_answer_is_no_finding(cloud, readers):
    cloud.cut_off("DescribeKubernetesVersionMetadata")

    with pytest.raises(CloudProviderError, match="cs:DescribeKubernetesVersionMetadata"):
        readers.images.find(node_class_of(cloud))
