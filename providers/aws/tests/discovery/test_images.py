"""Tests the selection of images (cases 111 to 115)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_provider_aws.api.nodeclass import (
    AmiTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    parse_alias,
)
from karpenter_provider_aws.discovery.images import (
    DescribedImage,
    ImageReader,
    image_queries,
    minor_version,
    select_images,
    unsupported_alias,
)
from karpenter_provider_aws.discovery.parameters import SsmParameterReader
from karpenter_provider_aws.discovery.queries import DescribeFilter
from karpenter_provider_aws.families.images import NEURON, NVIDIA, STANDARD
from providers.aws.tests.discovery.moto_world import NOON, refused
from tests.properties import with_examples

AVAILABLE = DescribeFilter("state", ("available",))
ALWAYS = NOON + timedelta(days=900)
AL2023 = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023"


@pytest.fixture
def images(clients, clock):
    return ImageReader(
        clients,
        clock,
        parameters=SsmParameterReader(clients, clock),
        kubernetes_version=lambda: "v1.34.2-eks-1234",
        refresh_interval=timedelta(minutes=1),
    )


@pytest.fixture
def ec2(clients):
    with Stubber(clients.ec2) as stub:
        yield stub


@pytest.fixture
def ssm(clients):
    with Stubber(clients.ssm) as stub:
        yield stub


def node_class(*terms, **spec):
    return EC2NodeClass(
        spec=EC2NodeClassSpec(ami_selector_terms=[AmiTerm(**term) for term in terms], **spec)
    )


def image(image_id, name="", *, day=0, arch="amd64", deprecated=None):
    return DescribedImage(
        id=image_id,
        name=name or image_id,
        architecture=arch,
        created=NOON - timedelta(days=100) + timedelta(days=day),
        deprecated_from=ALWAYS if deprecated is None else NOON - timedelta(days=deprecated),
    )


def item(image_id, *, created="2030-01-01T00:00:00.000Z", arch="x86_64", **fields):
    return {
        "ImageId": image_id,
        "Name": f"name-of-{image_id}",
        "CreationDate": created,
        "Architecture": arch,
        **fields,
    }


def describe(stub, *items, filters=ANY, owners=(), token=None, following=None):
    ask = {
        "Filters": filters,
        "Owners": list(owners),
        "IncludeDeprecated": True,
        "MaxResults": 1000,
    }
    stub.add_response(
        "describe_images",
        {"Images": list(items), **({"NextToken": following} if following else {})},
        {**ask, **({"NextToken": token} if token else {})},
    )


def parameter(stub, name, value):
    if value is None:
        stub.add_client_error(
            "get_parameter",
            "ParameterNotFound",
            http_status_code=400,
            expected_params={"Name": name},
        )
    else:
        stub.add_response("get_parameter", {"Parameter": {"Value": value}}, {"Name": name})


def chosen(images, sets=None, now=NOON):
    return [ami.id for ami in select_images(images, sets or {}, now=now)]


def test_status_has_the_name_of_each_image():
    (found,) = select_images([image("ami-1", "web-2030")], {}, now=NOON)
    assert (found.id, found.name) == ("ami-1", "web-2030")


# -- Aliases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "version", "refused_because"),
    [
        ("al2@latest", "1.32", ""),
        ("al2@latest", "1.33", "Amazon Linux 2 from 1.33 on"),
        ("al2@v20240807", "v1.34.1-eks-12ab", "Amazon Linux 2 from 1.33 on"),
        ("windows2025@latest", "1.34", "Windows Server 2025 before 1.35"),
        ("windows2025@latest", "1.35", ""),
        ("windows2022@latest", "1.34", ""),
        ("al2023@latest", "1.40", ""),
        ("al2@latest", "", ""),
    ],
)
def test_aliases_that_a_version_does_not_have_are_refused(alias, version, refused_because):
    """Case 111; the text names field, value and version."""
    said = unsupported_alias(parse_alias(alias), version)

    assert said.endswith(refused_because)
    if refused_because:
        assert f'spec.amiSelectorTerms[0].alias "{alias}"' in said
        assert minor_version(version) in said
    else:
        assert not said


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        ("v1.34.2-eks-1", "1.34"),
        ("1.9", "1.9"),
        ("v1.30+", "1.30"),
        ("", ""),
        ("main", ""),
        ("1", ""),
    ],
)
def test_the_minor_version_is_parsed_from_versions_of_servers(text, minor):
    """Nothing of what is no version."""
    assert minor_version(text) == minor


def test_published_variants_become_images_and_others_are_left_out(images, ec2, ssm):
    """Case 112: al2023 has five variants; here two are missing."""
    for path, value in (
        ("x86_64/standard", "ami-std"),
        ("x86_64/nvidia", "ami-gpu"),
        ("x86_64/neuron", None),
        ("arm64/standard", "ami-arm"),
        ("arm64/nvidia", None),
    ):
        parameter(ssm, f"{AL2023}/{path}/recommended/image_id", value)
    describe(
        ec2,
        item("ami-std"),
        item("ami-gpu"),
        item("ami-arm", arch="arm64"),
        filters=[
            {"Name": "state", "Values": ["available"]},
            {"Name": "image-id", "Values": ["ami-std", "ami-gpu", "ami-arm"]},
        ],
    )

    found = images.find(node_class({"alias": "al2023@latest"}))

    assert sorted(ami.id for ami in found.items) == ["ami-arm", "ami-gpu", "ami-std"]
    assert found.absent == ()
    operators = {
        ami.id: {spec.key.rpartition("/")[2]: spec.operator for spec in ami.requirements}
        for ami in found.items
    }
    assert operators["ami-gpu"] == {"arch": "In", "instance-gpu-count": "Exists"}
    assert operators["ami-std"] == {
        "arch": "In",
        "instance-gpu-count": "DoesNotExist",
        "instance-accelerator-count": "DoesNotExist",
    }
    ssm.assert_no_pending_responses()


def test_an_alias_without_any_image_is_named(images, clients):
    """Case 112: with the version of Kubernetes of the search."""
    with refused(clients.ssm, "GetParameter", "ParameterNotFound"):
        found = images.find(node_class({"alias": "al2023@v19990101"}))

    assert found.items == ()
    (absent,) = found.absent
    assert 'spec.amiSelectorTerms[0].alias "al2023@v19990101"' in absent
    assert "Kubernetes 1.34" in absent


@pytest.mark.parametrize(
    ("code", "kind"),
    [("AccessDeniedException", AuthError), ("ThrottlingException", ThrottledError)],
)
def test_a_variant_with_a_failed_query_is_not_left_out(images, clients, code, kind):
    """Or all its nodes would have drifted."""
    with (
        refused(clients.ssm, "GetParameter", code, first=None),
        pytest.raises(kind, match="ssm:GetParameter"),
    ):
        images.find(node_class({"alias": "bottlerocket@latest"}))


def test_no_alias_is_resolved_while_the_version_is_unknown(clients, clock):
    """Its parameters would all be missing."""
    images = ImageReader(
        clients,
        clock,
        parameters=SsmParameterReader(clients, clock),
        kubernetes_version=lambda: "",
        refresh_interval=timedelta(minutes=1),
    )
    with pytest.raises(CloudProviderError, match="version of Kubernetes"):
        images.find(node_class({"alias": "al2023@latest"}))


def test_parameters_are_cached_for_a_day_and_missing_ones_for_minutes(images, clock, ssm, ec2):
    """A custom family takes the alias's images all the same."""
    path = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34"
    wanted = node_class({"alias": "windows2022@latest"}, ami_family="Custom")
    parameter(ssm, f"{path}/image_id", None)
    assert images.find(wanted).items == ()
    clock.forward(minutes=5)
    parameter(ssm, f"{path}/image_id", "ami-win")
    describe(ec2, item("ami-win"))
    assert [ami.id for ami in images.find(wanted).items] == ["ami-win"]
    clock.forward(hours=23, minutes=59)
    describe(ec2, item("ami-win"))
    images.find(wanted)  # would fail if it asked SSM: nothing is prepared to answer
    clock.forward(minutes=1)
    parameter(ssm, f"{path}/image_id", "ami-new")
    describe(ec2, item("ami-new"))
    assert [ami.id for ami in images.find(wanted).items] == ["ami-new"]


def test_a_parameter_with_a_deprecated_image_is_read_again(images, clients, clock, ssm, ec2):
    """Sooner than in a day; those of fixed versions stay."""
    path = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34"
    parameter(ssm, f"{path}/image_id", "ami-bad")
    describe(ec2, item("ami-bad"))
    images.find(node_class({"alias": "windows2022@latest"}))

    describe(ec2, item("ami-bad"))
    assert images.forget_deprecated() == ()
    describe(ec2, item("ami-bad", DeprecationTime="2030-05-01T00:00:00.000Z"))
    assert images.forget_deprecated() == (f"{path}/image_id",)
    assert images.forget_deprecated() == ()


# -- Terms --------------------------------------------------------------------------------------


def queries_of(*terms, **parameters):
    return image_queries([AmiTerm(**term) for term in terms], parameters)


def test_image_owners_are_in_the_query():
    """Case 114."""
    queries, _ = queries_of(
        {"name": "web-*"},
        {"name": "web-*", "owner": "123456789012"},
        {"tags": {"team": "*"}},
        {"tags": {"team": "x"}, "owner": "self"},
        {"id": "ami-1"},
    )

    assert [(query.owners, query.filters) for query in queries] == [
        (("self", "amazon"), (AVAILABLE, DescribeFilter("name", ("web-*",)))),
        (("123456789012",), (AVAILABLE, DescribeFilter("name", ("web-*",)))),
        ((), (AVAILABLE, DescribeFilter("tag-key", ("team",)))),
        (("self",), (AVAILABLE, DescribeFilter("tag:team", ("x",)))),
        ((), (AVAILABLE, DescribeFilter("image-id", ("ami-1",)))),
    ]


def test_ids_and_parameters_share_one_query_and_useless_parameters_are_named():
    """Case 115, for values."""
    queries, useless = queries_of(
        {"id": "ami-1"},
        {"ssm_parameter": "/good"},
        {"ssm_parameter": "/odd"},
        {"ssm_parameter": "/gone"},
        **{"/good": "ami-2", "/odd": "foo", "/gone": None},
    )

    assert [query.filters for query in queries] == [
        (AVAILABLE, DescribeFilter("image-id", ("ami-1", "ami-2")))
    ]
    assert useless == (
        'spec.amiSelectorTerms[2].ssmParameter "/odd" (its value "foo" is no image id)',
        'spec.amiSelectorTerms[3].ssmParameter "/gone" (there is no such parameter)',
    )


def test_a_missing_parameter_is_skipped_and_a_forbidden_one_an_error(images, clients, ec2):
    """Case 115, asked through boto3."""
    clients.ssm.put_parameter(Name="/mine", Value="ami-1", Type="String")
    describe(ec2, item("ami-1"))
    terms = ({"ssm_parameter": "/mine"}, {"ssm_parameter": "/nobody"})

    found = images.find(node_class(*terms, ami_family="AL2023"))
    assert [ami.id for ami in found.items] == ["ami-1"]
    assert len(found.absent) == 1

    with (
        refused(clients.ssm, "GetParameter", "AccessDeniedException"),
        pytest.raises(AuthError) as caught,
    ):
        images.find(node_class({"ssm_parameter": "/forbidden"}, ami_family="AL2023"))
    assert caught.value.action == "ssm:GetParameter"


def test_all_pages_count_and_terms_without_an_image_are_named(images, ec2):
    """An image for an architecture that no node has is none."""
    describe(ec2, item("ami-3", arch="i386"), owners=["self", "amazon"])
    describe(ec2, item("ami-1"), following="two")
    describe(ec2, item("ami-2", arch="arm64"), token="two")
    terms = ({"id": "ami-1"}, {"id": "ami-2"}, {"id": "ami-4"}, {"name": "old-*"})

    found = images.find(node_class(*terms, ami_family="AL2023"))

    assert {ami.id for ami in found.items} == {"ami-1", "ami-2"}
    assert found.absent == (
        'spec.amiSelectorTerms[2].id "ami-4"',
        'spec.amiSelectorTerms[3] (name "old-*")',
    )


# -- Selection ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        (image("ami-1", day=1), image("ami-2", day=2, deprecated=1), "ami-1"),
        (image("ami-1", day=1, deprecated=1), image("ami-2", day=2, deprecated=1), "ami-2"),
        (image("ami-1", day=1), image("ami-2", day=2), "ami-2"),
        (image("ami-1", "zebra"), image("ami-2", "ant"), "ami-1"),
    ],
    ids=["old but not deprecated", "both deprecated", "newer", "greater name"],
)
def test_one_image_is_used_per_instance_kind(first, second, wins):
    """Case 113, in any order."""
    for pair in permutations([first, second]):
        assert chosen(pair) == [wins]


def test_an_image_is_deprecated_from_that_moment_on():
    """And says so."""
    old = image("ami-1", deprecated=0)
    (ami,) = select_images([old], {}, now=NOON)
    assert ami.deprecated
    (ami,) = select_images([old], {}, now=NOON - timedelta(seconds=1))
    assert ami.deprecated is None


def test_an_image_for_several_instance_kinds_is_listed_for_each():
    """One that another beats for one kind stays for the other."""
    both, newer = image("ami-both", day=1), image("ami-newer", day=2)
    sets = {"ami-both": (NEURON, NVIDIA), "ami-newer": (NVIDIA,)}

    amis = select_images([both, newer], sets, now=NOON)

    assert [(ami.id, len(ami.requirements)) for ami in amis] == [("ami-newer", 2), ("ami-both", 2)]
    assert [spec.key for spec in amis[1].requirements] == [
        "kubernetes.io/arch",
        "karpenter.k8s.aws/instance-accelerator-count",
    ]


IMAGES = st.lists(
    st.builds(
        image,
        st.sampled_from([f"ami-{i}" for i in range(6)]),
        st.sampled_from(["a", "b"]),
        day=st.integers(0, 2),
        arch=st.sampled_from(["amd64", "arm64"]),
        deprecated=st.none() | st.just(1),
    ),
    unique_by=lambda each: each.id,
    max_size=6,
)
SETS = st.dictionaries(
    st.sampled_from([f"ami-{i}" for i in range(6)]),
    st.sampled_from([(STANDARD,), (NVIDIA,), (NEURON, NVIDIA)]),
)


@given(IMAGES, SETS, st.randoms(use_true_random=False))
@with_examples(100)
def test_the_choice_depends_on_no_order_and_serves_every_kind(found, sets, seed):
    """The newest come first; each kind of instance that any image serves has exactly one."""
    amis = select_images(found, sets, now=NOON)
    shuffled = list(found)
    seed.shuffle(shuffled)

    assert select_images(shuffled, sets, now=NOON) == amis
    kinds = [ami.requirements for ami in amis]
    assert len(set(kinds)) == len(kinds)
    created = {each.id: each.created for each in found}
    assert [created[ami.id] for ami in amis] == sorted(
        (created[ami.id] for ami in amis), reverse=True
    )
    assert len(kinds) == len(
        {(each.architecture, extra) for each in found for extra in sets.get(each.id, ((),))}
    )
