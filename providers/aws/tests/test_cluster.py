"""Tests the description of the cluster while EKS or the core has none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.contract import ClusterFacts, LaunchedInstance
from karpenter_provider_aws.cluster import NEWEST_VERSION, OLDEST_VERSION, ClusterReader
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.settings import AwsSettings
from karpenter_simulated_aws.clusters import Cluster
from providers.aws.tests.discovery.moto_world import HandClock
from providers.aws.tests.launch.processes import ON_DEMAND, Process, claim_of, node_class_of

SETTINGS = AwsSettings(cluster_name="test")
CIDRS = ("10.100.0.0/16",)
FACTS = ClusterFacts(name="test", version="1.34", ip_family="IPv4")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def source(clients, clock):
    """Make what knows the cluster, with changes to the core's facts."""

    def make(settings=SETTINGS, *, cidrs=(), **facts):
        network = ServiceNetwork(clients, cluster="test", known=lambda: cidrs)
        return ClusterReader(clients, clock, settings, replace(FACTS, **facts), network)

    return make


def eks_outage(aws):
    return aws.fail("eks:DescribeCluster", code="ServerException", status=500, times=None)


def test_launches_go_on_while_eks_is_down(aws, clients, clock, source):
    """Without --cluster-endpoint, EKS is where the endpoint comes from."""
    process = Process(aws, clients, clock, details=source(cidrs=CIDRS).details)
    node_class = node_class_of(aws, clients)
    assert isinstance(
        process.launch_one(claim_of("before", ON_DEMAND), node_class), LaunchedInstance
    )

    with eks_outage(aws):
        for minutes in (4, 2, 10):
            clock.forward(minutes=minutes)
            claim = claim_of(f"during-{minutes}", ON_DEMAND)
            assert isinstance(process.launch_one(claim, node_class), LaunchedInstance)


def test_an_unresponsive_eks_is_retried_once_a_minute(aws, clock, source):
    known = source()
    before = known.details()
    clock.forward(minutes=6)
    with eks_outage(aws):
        known.details()
        aws.calls.clear()
        for _ in range(5):
            clock.forward(seconds=10)
            assert known.details() == before
        assert aws.calls.count("DescribeCluster") == 0
        clock.forward(seconds=11)
        known.details()
        assert aws.calls.count("DescribeCluster") > 0


def test_after_an_outage_the_newest_answer_of_eks_counts(aws, clock, source):
    known = source(replace(SETTINGS, eks_control_plane=True))
    assert known.version() == "1.34"
    aws.clusters.add(Cluster(name=aws.world.cluster, version="1.35"))
    clock.forward(minutes=6)
    with eks_outage(aws):
        assert known.version() == "1.34"
    clock.forward(minutes=2)

    assert known.version() == "1.35"


def test_a_cluster_that_eks_never_described_is_an_error(aws, source):
    with eks_outage(aws), pytest.raises(CloudProviderError, match="eks:DescribeCluster"):
        source().details()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"ip_family": "IPv6"}, True),
        ({"ip_family": "IPv4"}, False),
        ({"ip_family": "", "dns_ip": "fd00::a"}, True),
        ({"ip_family": "", "dns_ip": "10.100.0.10"}, False),
        ({"ip_family": "", "cidrs": ("fd00:10::/108",)}, True),
    ],
)
def test_the_ip_family_comes_from_the_core(source, facts, expected):
    assert source(**facts).details().is_ipv6 is expected


@pytest.mark.parametrize(("cidr", "expected"), [("fd00:10::/108", True), ("", False)])
def test_an_ip_family_unknown_to_the_core_is_read_from_eks(aws, source, cidr, expected):
    aws.clusters.add(Cluster(name="test", service_ipv6_cidr=cidr))

    assert source(ip_family="").details().is_ipv6 is expected


def test_an_ip_family_that_eks_does_not_answer_for_is_an_error_of_the_call(aws, source):
    """It says nothing about the family, so no NodeClass is refused for it."""
    settings = replace(SETTINGS, cluster_endpoint="https://api", cluster_ca_bundle="Y2E=")
    with eks_outage(aws), pytest.raises(CloudProviderError, match="eks:DescribeCluster") as raised:
        source(settings, ip_family="").details()
    assert not isinstance(raised.value, NodeClassNotReadyError)


def test_an_ip_family_behind_a_call_without_an_answer_is_not_known(source):
    """Neither a refusal: nothing was heard at all."""
    settings = replace(SETTINGS, cluster_endpoint="https://api", cluster_ca_bundle="Y2E=")
    cluster = source(settings, ip_family="")

    def unheard():
        raise CloudProviderError("no route to host")

    cluster._eks = SimpleNamespace(get=unheard)
    with pytest.raises(CloudProviderError, match="no route"):
        cluster._ip_family()


def test_an_unknown_ip_family_keeps_the_node_class_unready(aws, source):
    aws.clusters.clear()
    settings = replace(SETTINGS, cluster_endpoint="https://api", cluster_ca_bundle="Y2E=")

    with pytest.raises(NodeClassNotReadyError, match="IP family"):
        source(settings, ip_family="").details()


def test_instances_of_an_ipv6_cluster_have_ipv6_addresses_without_a_dns_service(
    aws, clients, clock, source
):
    process = Process(aws, clients, clock, details=source(ip_family="IPv6", cidrs=CIDRS).details)

    process.launch_one(claim_of("six", ON_DEMAND), node_class_of(aws, clients))

    (template, *_) = [call.parameters for call in aws.calls.of("CreateLaunchTemplate")]
    (interface, *_) = template["LaunchTemplateData"]["NetworkInterfaces"]
    assert interface["PrimaryIpv6"] is True
    assert interface["Ipv6AddressCount"] == 1


@pytest.mark.parametrize("version", ["1.25", "v1.37.1-eks-1234", "2.0", "nonsense"])
def test_an_unsupported_kubernetes_version_is_warned_of_once(source, version):
    known = source(version=version)

    with capture_logs() as logs:
        assert [known.version(), known.version()] == [version] * 2

    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert version in warning["event"]
    assert f"{OLDEST_VERSION} to {NEWEST_VERSION}" in warning["event"]


@pytest.mark.parametrize("version", ["1.26", "v1.34.2-eks-1234", "1.36+"])
def test_a_supported_kubernetes_version_has_no_warning(source, version):
    with capture_logs() as logs:
        assert source(version=version).version() == version

    assert logs == []


def test_a_version_that_changes_to_an_unknown_one_is_warned_of_again(aws, clock, source):
    known = source(replace(SETTINGS, eks_control_plane=True))
    with capture_logs() as logs:
        for version in ("1.34", "1.37", "1.38", "1.38"):
            aws.clusters.add(Cluster(name=aws.world.cluster, version=version))
            assert known.version() == version
            clock.forward(minutes=6)

    assert [line["version"] for line in logs if "version" in line] == ["1.37", "1.38"]
