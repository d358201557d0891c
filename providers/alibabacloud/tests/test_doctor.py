"""Tests the findings of `karpenter doctor` about Alibaba Cloud."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from karpenter_core.provider.contract import Severity
from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
from karpenter_provider_alibabacloud.doctor import ProviderDoctor
from karpenter_provider_alibabacloud.sdk import CloudClients
from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings
from providers.alibabacloud.tests.manual_clock import HandClock

POLICY = Path(__file__).parents[1] / "ram" / "controller.json"
READS = (
    "ecs:DescribeAvailableResource",
    "ecs:DescribeCapacityReservations",
    "ecs:DescribeImages",
    "ecs:DescribeInstanceHistoryEvents",
    "ecs:DescribeInstanceTypes",
    "ecs:DescribeInstances",
    "ecs:DescribePrice",
    "ecs:DescribeSecurityGroups",
    "ecs:DescribeSpotAdvice",
    "ecs:DescribeSpotPriceHistory",
    "vpc:DescribeVSwitches",
    "cs:DescribeClusterAttachScripts",
    "cs:DescribeClusterDetail",
    "cs:DescribeClusterNodePools",
    "cs:DescribeKubernetesVersionMetadata",
)


@pytest.fixture
def examine(cloud, clients):
    """Return the findings under some settings."""

    def run(*, by=clients, gate=True, **changes):
        settings = AlibabaCloudSettings(cluster_id=cloud.world.cluster, **changes)
        cluster = ClusterReader(
            by, HandClock(), cluster_id=settings.cluster_id, cluster_type=settings.cluster_type
        )
        doctor = ProviderDoctor(by, settings=settings, cluster=cluster, uses_reservations=gate)
        return doctor.check()

    return run


def of(severity, findings):
    return [found for found in findings if found.severity is severity]


def test_a_correct_setup_has_no_finding_and_changes_nothing(cloud, examine):
    findings = examine()

    assert {found.severity for found in findings} == {Severity.OK}
    assert "access_key" in findings[0].message
    assert cloud.held().instances == []
    assert {call.action for call in cloud.calls.all} <= {r.partition(":")[2] for r in READS}


@pytest.mark.parametrize("action", READS)
def test_a_permission_that_is_missing_is_named_with_a_remedy(cloud, examine, action):
    with cloud.deny(action.partition(":")[2]):
        errors = of(Severity.ERROR, examine())

    assert len(errors) == 1
    assert action in errors[0].message
    assert "docs/alibabacloud.md" in errors[0].remedy


def test_every_permission_to_read_is_tried():
    """Those of the policy, which is held equal to what the code calls."""
    statements = json.loads(POLICY.read_text())["Statement"]
    actions = {action for statement in statements for action in statement["Action"]}

    assert {action for action in actions if ":Describe" in action} == set(READS)


def test_without_valid_credentials_no_further_check_runs(cloud, examine):
    with cloud.fail("DescribeInstances", code="InvalidAccessKeyId.NotFound", status=404):
        (found,) = examine()

    assert found.severity is Severity.ERROR
    assert "RRSA" in found.remedy
    assert cloud.calls.count("DescribeVSwitches") == 0


def test_a_cloud_that_cannot_be_reached_is_one_finding(cloud, examine):
    with cloud.cut_off():
        (found,) = examine()

    assert found.severity is Severity.ERROR
    assert "reaches the endpoints" in found.remedy


def test_throttling_says_nothing_of_permissions(cloud, examine):
    with cloud.fail("DescribeImages", code="Throttling.User", times=None):
        findings = examine()

    assert of(Severity.ERROR, findings) == []
    assert len(of(Severity.WARNING, findings)) == 1


def test_a_refusal_for_another_reason_proves_permission(cloud, examine):
    """A region need not sell the type that is asked about."""
    with cloud.fail("DescribePrice", code="InvalidInstanceType.ValueNotSupported", times=None):
        assert of(Severity.ERROR, examine()) == []


def test_a_cluster_id_that_ack_does_not_find_is_an_error(cloud, examine):
    with cloud.fail("DescribeClusterDetail", code="ErrorClusterNotFound", status=404, times=None):
        (found,) = of(Severity.ERROR, examine())

    assert "--cluster-id" in found.remedy


def test_doctor_makes_no_ack_call_outside_ack(cloud, examine):
    with cloud.deny("DescribeCluster*"), cloud.deny("DescribeKubernetes*"):
        assert of(Severity.ERROR, examine(cluster_type="Custom")) == []


def test_reservations_are_tried_where_they_are_used(cloud, examine):
    with cloud.deny("DescribeCapacityReservations"):
        assert of(Severity.ERROR, examine(gate=False)) == []


def test_node_pools_that_ack_scales_are_warned_of(cloud, examine):
    """Two who answer the same pods."""
    cluster = cloud.clusters.get(cloud.world.cluster)
    pools = [replace(pool, auto_scaling=True) for pool in cluster.node_pools]
    cluster.node_pools = pools

    (found,) = of(Severity.WARNING, examine())

    assert pools[0].name in found.message


def test_disabled_interruption_polling_is_a_warning(examine):
    (found,) = of(Severity.WARNING, examine(interruption=False))

    assert "--interruption" in found.remedy


def test_an_undetermined_region_is_a_finding(cloud, examine):
    with CloudClients(endpoint_ecs=cloud.endpoint, metadata_endpoint="http://127.0.0.1:9") as lost:
        (found,) = examine(by=lost)

    assert "REGION_ID" in found.remedy
