"""Tests the findings of `karpenter doctor` about Azure, through the SDK and the simulated Azure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.errors import AuthError
from karpenter_core.provider.contract import Severity
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.catalogue.quotas import Quota, quota_remark
from karpenter_provider_azure.doctor import ProviderDoctor, quota_findings
from karpenter_provider_azure.network.cluster_network import SecurityGroupReader
from karpenter_simulated_azure.world import AzureWorld
from providers.azure.tests.fake_arm import HandClock

READS = (
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/locations/communityGalleries/images/versions/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/loadBalancers/read",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/virtualNetworks/subnets/read",
)
WRITES = (
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
)


@pytest.fixture
def examine(settings, arm_of):
    """Return the findings under some settings."""

    def run(*, observing=False, **changes):
        made = settings(**changes)
        arm = arm_of(made)
        groups = SecurityGroupReader(arm, HandClock(), node_resource_group=made.node_resource_group)
        return ProviderDoctor(
            arm, settings=made, security_groups=groups, observing=observing
        ).check()

    return run


def of(severity, findings):
    return [finding for finding in findings if finding.severity is severity]


def errors(findings):
    return of(Severity.ERROR, findings)


def test_a_correct_setup_has_no_finding_and_changes_nothing(cloud, examine):
    findings = examine()

    assert {finding.severity for finding in findings} == {Severity.OK}, findings
    changing = (":put", ":patch", ":delete")
    assert not any(cloud.calls.count(f"*{method}") for method in changing)


@pytest.mark.parametrize("action", READS)
def test_a_missing_permission_to_read_is_named(cloud, examine, action):
    with cloud.permissions.take(action):
        (found,) = errors(examine())

    assert action in found.message
    assert "is not permitted" in found.remedy


@pytest.mark.parametrize("action", WRITES)
def test_an_observer_needs_no_permission_to_change_anything(cloud, examine, action):
    with cloud.permissions.take(action):
        assert errors(examine(observing=True)) == []


@pytest.mark.parametrize("action", WRITES)
def test_a_missing_permission_to_change_is_named_with_scope_and_role(cloud, examine, action):
    with cloud.permissions.take(action):
        found = errors(examine())

    assert found
    for finding in found:
        assert f"{action} is not permitted over /subscriptions/" in finding.message
        assert "grant the role" in finding.remedy


def test_access_to_machines_is_checked_if_they_are_managed(cloud, examine):
    managed = {
        "manage_existing_aks_machines": True,
        "cluster_name": cloud.world.cluster_name,
        "arm_resource_group": cloud.world.cluster_group,
        "aks_machines_pool_name": cloud.world.machines_pool,
    }
    cloud.create_aks_machine("web-1")
    machines = "Microsoft.ContainerService/managedClusters/agentPools"

    assert any("machines: 1" in it.message for it in of(Severity.OK, examine(**managed)))
    for action in (f"{machines}/machines/read", f"{machines}/deleteMachines/action"):
        with cloud.permissions.take(action):
            (found,) = errors(examine(**managed))
        assert action in found.message
    (found,) = errors(examine(**{**managed, "aks_machines_pool_name": "other"}))
    assert found.message.startswith('--aks-machines-pool-name "other"')
    assert not cloud.calls.count("deleteMachines:*")
    assert not errors(examine())


def test_unreadable_permissions_are_a_warning_with_the_needed_actions(cloud, examine):
    with cloud.fail("permissions:list", code="AuthorizationFailed", status=403, times=None):
        findings = examine()

    assert not errors(findings)
    warnings = of(Severity.WARNING, findings)
    assert any("Microsoft.Compute/virtualMachines/write" in it.message for it in warnings)
    assert any('"Virtual Machine Contributor"' in it.remedy for it in warnings)


def test_wrong_credentials_end_the_examination(cloud, examine, monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("of nobody")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token))

    findings = examine()

    (found,) = findings
    assert found.severity is Severity.ERROR
    assert "workload identity" in found.remedy


def test_an_identity_of_another_tenant_is_no_missing_permission(cloud, examine):
    with cloud.fail(
        "virtualMachines:list", code="InvalidAuthenticationTokenTenant", status=401, times=None
    ):
        (found,) = examine()

    assert "InvalidAuthenticationTokenTenant" in found.message
    assert "workload identity" in found.remedy


@pytest.mark.parametrize(
    ("field", "setting", "value"),
    [
        ("node_resource_group", "node-resource-group", "MC_other"),
        (
            "azure_subscription_id",
            "azure-subscription-id",
            "99999999-0000-4000-8000-000000000000",
        ),
    ],
)
def test_a_group_or_subscription_that_does_not_exist_is_named(examine, field, setting, value):
    (found,) = examine(**{field: value})

    assert found.message.startswith(f'--{setting} "{value}": ')
    assert found.remedy == f"correct --{setting}"


@pytest.mark.parametrize(
    ("subnet", "part"),
    [("nodes", "is no resource id"), (f"{AzureWorld().vnet_id}/subnets/gone", "gone")],
)
def test_a_subnet_that_is_malformed_or_missing_is_named(examine, subnet, part):
    found = errors(examine(vnet_subnet_id=subnet))

    assert any(it.message.startswith("--vnet-subnet-id") and part in it.message for it in found), (
        found
    )


def test_two_security_groups_of_aks_are_named(cloud, examine):  # case 78
    cloud.networks.add_security_group("aks-agentpool-87654321-nsg")

    (found,) = errors(examine())

    assert "aks-agentpool-12345678-nsg, aks-agentpool-87654321-nsg" in found.message
    assert "remove" in found.remedy


def test_a_network_of_ones_own_without_a_security_group_is_a_warning(cloud, examine):
    own = cloud.networks.add_vnet("own", prefix="10.0.0.0/8")
    subnet = cloud.networks.add_subnet(own.id, "nodes", "10.0.0.0/16")
    cloud.networks.remove(cloud.world.network_security_group_id)

    findings = examine(vnet_subnet_id=subnet.id)

    assert not errors(findings)
    (found,) = of(Severity.WARNING, findings)
    assert "no network security group" in found.message


def test_a_disk_encryption_set_that_can_be_read_is_reported(cloud, examine):
    path = cloud.manager.cluster.add_disk_encryption_set("disks")

    found = of(Severity.OK, examine(node_osdisk_diskencryptionset_id=path))

    assert "the disk encryption set can be read" in [each.message for each in found]


def test_a_missing_disk_encryption_set_is_named(cloud, examine):
    path = cloud.world.resource_id("Microsoft.Compute/diskEncryptionSets", "gone")

    found = errors(examine(node_osdisk_diskencryptionset_id=path))

    assert found[0].message.startswith(f'--node-osdisk-diskencryptionset-id "{path}": ')


@pytest.mark.parametrize(
    ("quota", "part", "severity"),
    [
        ("cores", 'regional vCPUs ("cores", limit 0)', Severity.ERROR),
        ("lowPriorityCores", 'spot vCPUs ("lowPriorityCores", limit 0)', Severity.WARNING),
    ],
)
def test_a_region_without_quota_is_named(cloud, examine, quota, part, severity):
    cloud.usages.set_limit(quota, 0)

    (found,) = [it for it in examine() if it.severity is not Severity.OK]

    assert found.severity is severity
    assert part in found.message
    assert cloud.world.location in found.remedy


def test_a_region_that_does_not_exist_is_the_setting_to_correct(examine):
    found = errors(examine(location="westus9"))

    assert [finding.remedy for finding in found] == ["correct --location"]
    assert '--location "westus9"' in found[0].message


def test_family_quotas_that_are_used_up_are_named():
    used_up = {f"standardd{index}family": Quota(10, 10) for index in range(7)}
    free = {
        "cores": Quota(100, 10),
        "standardefamily": Quota(10, 0),
        "standardnfamily": Quota(0, 0),
    }

    (found,) = quota_findings({**used_up, **free}, location="westus2")

    assert found.severity is Severity.WARNING
    assert "standardd0family" in found.message
    assert "and 2 others" in found.message
    assert "standardnfamily" not in found.message


def test_a_subscription_without_any_family_quota_cannot_launch():
    (found,) = quota_findings({"standarddfamily": Quota(0, 0)}, location="westus2")

    assert found.severity is Severity.ERROR
    assert "vCPUs of every VM family" in found.message


def test_unknown_quotas_and_quotas_with_room_are_no_finding():
    for quotas in ({}, {"cores": Quota(10, 9), "standarddfamily": Quota(10, 9)}):
        (found,) = quota_findings(quotas, location="westus2")
        assert found.severity is Severity.OK
        assert quota_remark(quotas, location="westus2") == ""


def test_the_remark_of_a_condition_does_not_change_with_the_usage():
    before, after = (
        quota_remark({"cores": Quota(10, used), "lowprioritycores": Quota(5, used)}, location="x")
        for used in (10, 11)
    )

    assert before == after
    assert before.startswith('no quota is left in x for regional vCPUs ("cores", limit 10): ')
    assert 'spot vCPUs ("lowPriorityCores", limit 5): no spot instances' in before


DISK_ENCRYPTION_SET = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/d"
)


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        (None, "the disk encryption set can be read", ""),
        (
            AuthError("not permitted", action="diskEncryptionSets:get"),
            "not permitted",
            'grant the role "Reader"',
        ),
        (ArmNotFoundError("not there", status=404), "not there", "correct --node-osdisk"),
    ],
    ids=["there", "denied", "missing"],
)
def test_a_disk_encryption_set_must_be_readable(settings, error, message, remedy):
    def get(*_arguments, **_options):
        if error is not None:
            raise error
        return {}

    def findings(set_id):
        made = settings(node_osdisk_diskencryptionset_id=set_id)
        doctor = ProviderDoctor(SimpleNamespace(get=get), settings=made, security_groups=None)
        return doctor._check_disk_encryption_set()

    assert findings("") == ()
    (found,) = findings(DISK_ENCRYPTION_SET)
    assert (message in found.message, remedy in found.remedy) == (True, True)
    assert found.severity is (Severity.OK if error is None else Severity.ERROR)


@pytest.mark.parametrize(
    ("group", "is_needed", "count"),
    [(SimpleNamespace(name="g"), True, 1), (None, True, 1), (None, False, 0)],
)
def test_a_missing_security_group_is_a_warning_where_one_is_needed(group, is_needed, count):
    groups = SimpleNamespace(current=lambda: group)
    doctor = SimpleNamespace(
        _security_groups=groups,
        _settings=SimpleNamespace(node_resource_group="nodes", vnet_subnet_id=""),
        _network=SimpleNamespace(needs_security_group=lambda _subnet: is_needed),
    )
    check = ProviderDoctor._check_security_group
    assert len(check(doctor)) == count
