"""Tests the findings of `karpenter doctor` about AWS."""

from __future__ import annotations

import pytest

from karpenter_core.provider.contract import ClusterFacts, Severity
from karpenter_provider_aws.cluster import ClusterReader
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.doctor import ProviderDoctor
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_provider_aws.settings import AwsSettings
from karpenter_provider_aws.zonal_shift import ZonalShiftReader
from karpenter_simulated_aws.testing import attempts
from providers.aws.tests.interruption.cloud_world import CloudClock, World


def doctor(world, *, clients=None, observing=False, **changes):
    clients = clients or world.clients
    name = world.aws.world.cluster
    settings = AwsSettings(cluster_name=name, **changes)
    clock = CloudClock(world.aws)
    facts = ClusterFacts(name=name)
    network = ServiceNetwork(clients, cluster=name)
    return ProviderDoctor(
        clients,
        settings=settings,
        cluster=ClusterReader(clients, clock, settings, facts, network),
        queue=world.interruption_sources.queue,
        shifts=ZonalShiftReader(clients, clock, cluster=name, enabled=settings.enable_zonal_shift),
        observing=observing,
    )


@pytest.fixture
def world(aws, clients):
    return World(aws, clients)


def wrong(findings):
    return [found for found in findings if found.severity is Severity.ERROR]


def test_a_correct_setup_has_no_finding_and_changes_nothing(world):
    world.aws.messages.send_text("kept")
    before = world.aws.held()

    findings = doctor(world).check()

    assert {found.severity for found in findings} == {Severity.OK}
    assert world.aws.held() == before
    assert len(world.poll()) == 1


def test_permissions_of_ec2_are_tried_without_doing_anything(world):
    doctor(world).check()

    tried = [
        call
        for call in world.aws.calls.all
        if call.action.startswith("Describe") and call.action != "DescribeCluster"
    ]
    assert len(tried) > 10
    assert [call.action for call in tried if not call.parameters.get("DryRun")] == []


@pytest.mark.parametrize(
    "action",
    [
        "ec2:DescribeSubnets",
        "ec2:DescribeInstanceStatus",
        "ec2:CreateLaunchTemplate",
        "ssm:GetParameter",
        "iam:GetInstanceProfile",
        "iam:ListInstanceProfiles",
        "pricing:GetProducts",
        "sqs:ReceiveMessage",
        "eks:DescribeCluster",
    ],
)
def test_a_permission_that_is_missing_is_named_with_a_remedy(world, action):
    with world.aws.deny(action.partition(":")[2]):
        (found,) = wrong(doctor(world).check())

    assert action in found.message
    assert "docs/aws.md" in found.remedy


def test_an_observer_needs_no_permission_to_launch_and_reads_no_queue(world):
    with world.aws.deny("CreateLaunchTemplate"), world.aws.deny("ReceiveMessage"):
        findings = doctor(world, observing=True).check()

    assert {found.severity for found in findings} == {Severity.OK}
    assert not [found for found in findings if "queue" in found.message]


def test_a_gate_that_does_not_exist_is_a_warning(world):
    findings = doctor(world, unknown_gates=("NodeClasCEL",)).check()

    (found,) = [each for each in findings if each.severity is Severity.WARNING]
    assert 'there is no gate "NodeClasCEL"' in found.message


def test_in_an_isolated_vpc_unreachable_services_are_not_called(world):
    with world.aws.deny("GetProducts"), world.aws.deny("ListInstanceProfiles"):
        assert wrong(doctor(world, isolated_vpc=True).check()) == []


def test_without_credentials_nothing_else_is_tried(world):
    with world.aws.fail("GetCallerIdentity", code="InvalidClientTokenId", status=403):
        (found,) = doctor(world).check()

    assert found.severity is Severity.ERROR
    assert "credentials" in found.remedy
    assert world.aws.calls.count("DescribeSubnets") == 0


def test_a_cloud_that_cannot_be_reached_is_one_finding(world):
    quick = CloudClients(region=world.aws.account.region, limits=ClientLimits(retries=attempts(1)))
    with world.aws.cut_off():
        (found,) = doctor(world, clients=quick).check()
    quick.close()

    assert found.severity is Severity.ERROR
    assert "reaches the endpoints" in found.remedy


def test_a_queue_that_is_missing_is_an_error_and_none_at_all_a_warning(world):
    world.queue_name = "gone"
    world.interruption_sources = world.restarted()
    (missing,) = wrong(doctor(world).check())
    world.queue_name = ""
    world.interruption_sources = world.restarted()

    findings = doctor(world).check()

    assert '"gone"' in missing.message
    assert [found.severity for found in findings].count(Severity.WARNING) == 1
    assert wrong(findings) == []


def test_a_cluster_that_eks_does_not_list_is_an_error_unless_all_settings_are_given(world):
    world.aws.clusters.clear()
    (found,) = wrong(doctor(world).check())

    given = doctor(world, cluster_endpoint="https://api.example.com", cluster_ca_bundle="QQ==")

    assert "--cluster-endpoint" in found.remedy
    assert wrong(given.check()) == []


def test_an_untested_version_of_kubernetes_is_a_warning(world):
    from karpenter_simulated_aws.clusters import Cluster

    world.aws.clusters.add(Cluster(name=world.aws.world.cluster, version="1.99"))

    findings = doctor(world, eks_control_plane=True).check()

    (found,) = [found for found in findings if found.severity is Severity.WARNING]
    assert '"1.99"' in found.message
    assert wrong(findings) == []


def test_zonal_shift_is_checked_when_enabled(world):
    world.aws.zonal_shifts.clear()
    assert wrong(doctor(world).check()) == []
    (found,) = wrong(doctor(world, enable_zonal_shift=True).check())
    world.aws.zonal_shifts.register(world.aws.clusters.arn(world.aws.world.cluster))

    assert "--enable-zonal-shift" in found.message
    assert wrong(doctor(world, enable_zonal_shift=True).check()) == []
