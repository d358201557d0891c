"""Tests that launches wait for the facts of the cluster's network."""

from __future__ import annotations

import pytest

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_aws.cluster import ClusterReader
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.settings import AwsSettings
from providers.aws.tests.interruption.cloud_world import CloudClock

WHY = 'services "kube-dns" is forbidden (allow get of services "kube-dns")'


def source(aws, clients, facts):
    name = aws.world.cluster
    settings = AwsSettings(
        cluster_name=name, cluster_endpoint="https://api", cluster_ca_bundle="Q0E="
    )
    network = ServiceNetwork(clients, cluster=name, known=lambda: facts.service_cidrs)
    return ClusterReader(clients, CloudClock(aws), settings, facts, network)


def test_launches_wait_while_the_ip_family_is_unknown(aws, clients):
    """A refusal is not taken for IPv4, and the answer is used as soon as it is there."""
    facts = ClusterFacts(unknown={"dns_ip": WHY, "ip_family": WHY})
    cluster = source(aws, clients, facts)
    with aws.deny("DescribeCluster"):
        with pytest.raises(NodeClassNotReadyError, match="IP family") as caught:
            cluster.details()
        assert WHY in str(caught.value)
        assert "eks:DescribeCluster" in str(caught.value)

        facts.dns_ip, facts.ip_family, facts.unknown = "fd00::a", "IPv6", {}

        assert cluster.details().dns_ip == "fd00::a"


def test_eks_answers_where_the_api_server_does_not(aws, clients):
    facts = ClusterFacts(unknown={"ip_family": WHY})

    assert source(aws, clients, facts).details().ip_family == "IPv4"
    assert aws.calls.count("DescribeCluster") == 1


def test_ranges_that_arrive_later_are_used_without_an_eks_call(aws, clients):
    facts = ClusterFacts(ip_family="IPv6", unknown={"service_cidrs": WHY})
    cluster = source(aws, clients, facts)
    assert cluster.details().service_cidr == ""

    facts.service_cidrs, facts.unknown = ("fd00::/108",), {}

    assert cluster.details().service_cidr == "fd00::/108"
    assert aws.calls.count("DescribeCluster") == 0
