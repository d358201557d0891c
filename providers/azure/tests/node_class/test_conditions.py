"""Subnets, disk encryption sets and refused launches are conditions of a NodeClass."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    LaunchFailedError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.provider.kit.node_class.readiness import not_ready_error
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.catalogue.quotas import Quota, quota_remark
from karpenter_provider_azure.node_class.conditions import AZURE_ERRORS, error_code, is_refusal
from karpenter_provider_azure.node_class.validation import (
    DiskEncryptionSetCheck,
    launch_refusal,
    node_class_validator,
    unused_fields_remark,
)
from providers.azure.tests.arm.values import SUBNET
from providers.azure.tests.fake_arm import forbidden, not_found, unanswered
from providers.azure.tests.node_class.worlds import (
    DES,
    SECURITY_GROUPS,
    Process,
    node_class_of,
    said,
)

MANAGED = SUBNET.replace("/net/", "/MC_demo/").replace("/vnet/", "/aks-vnet-12345678/")


@pytest.fixture
def process():
    return Process()


def later(process, **amount):
    """Let time pass so that the next pass reads again."""
    process.later(**(amount or {"minutes": 2}))
    return process


def test_periods_of_the_parts(process):  # case 67
    answer = process.answer(node_class_of())
    assert answer.retry_after == timedelta(minutes=3)

    parts = process.resolver._parts_of(node_class_of())
    assert [part.resolve().retry_after for part in parts] == [
        timedelta(minutes=15),
        timedelta(minutes=5),
        timedelta(minutes=3),
        timedelta(minutes=5),
    ]
    validated = process.resolver._validation.validate(node_class_of(), ())
    assert validated.retry_after == timedelta(hours=1)


@pytest.mark.parametrize(
    ("subnet", "reason", "part"),
    [
        (SUBNET.removesuffix("/nodes"), "SubnetIDInvalid", "is no resource id"),  # case 68
        (SUBNET.replace("/vnet/", "/web/"), "SubnetIDInvalid", "not in the virtual network"),  # 69
        (SUBNET.replace("/nodes", "/gone"), "SubnetNotFound", "it does not exist"),  # case 68
    ],
)
def test_a_subnet_that_cannot_be_used_is_named_with_the_cause(process, subnet, reason, part):
    found = process.resolve(node_class_of(vnetSubnetID=subnet))

    status, shown, message = said(found, "SubnetsReady")
    assert (status, shown) == ("False", reason)
    assert message.startswith("spec.vnetSubnetID")
    assert f'"{subnet}"' in message
    assert part in message
    assert said(found, "ImagesReady")[0] == "True"


def test_a_managed_virtual_network_takes_no_other_subnet():  # case 69
    process = Process(vnet_subnet_id=MANAGED.replace("/nodes", "/aks-subnet"))

    found = process.resolve(node_class_of(vnetSubnetID=MANAGED))

    assert said(found, "SubnetsReady")[:2] == ("False", "SubnetIDInvalid")


def test_a_subnet_that_may_not_be_read_is_unknown_and_names_the_setting(process):  # case 68
    process.arm.put(SUBNET, forbidden())

    status, reason, message = said(process.resolve(node_class_of()), "SubnetsReady")

    assert (status, reason) == ("False", "SubnetUnknownError")
    assert message.startswith(f'setting vnet-subnet-id "{SUBNET}": ')
    assert "subnets/read" in message


def test_an_unanswered_subnet_keeps_the_condition(process):
    found = process.resolve(node_class_of())
    process.arm.put(SUBNET, unanswered())

    after = later(process).resolve(found)

    assert said(after, "SubnetsReady") == said(found, "SubnetsReady")
    assert said(after, "Ready")[0] == "True"


def test_a_missing_guid_of_the_virtual_network_is_no_ready_subnet():
    process = Process(vnet_guid="")
    process.arm.put(SUBNET.rpartition("/subnets/")[0], forbidden("virtualNetworks/read"))

    assert said(process.resolve(node_class_of()), "SubnetsReady")[:2] == (
        "False",
        "SubnetUnknownError",
    )


def test_two_security_groups_of_aks_are_named(process):  # case 78
    names = [f"aks-agentpool-{digits}-nsg" for digits in ("12345678", "87654321")]
    process.arm.put(SECURITY_GROUPS, [{"id": f"/{name}", "name": name} for name in names])

    status, reason, message = said(process.resolve(node_class_of()), "SubnetsReady")

    assert (status, reason) == ("False", "SeveralSecurityGroups")
    assert all(name in message for name in names)


def test_security_groups_that_may_not_be_read_are_named(process):
    process.arm.put(SECURITY_GROUPS, forbidden("Microsoft.Network/networkSecurityGroups/read"))

    status, _, message = said(process.resolve(node_class_of()), "SubnetsReady")

    assert status == "False"
    assert "Microsoft.Network/networkSecurityGroups/read" in message


def encrypted():
    process = Process(node_osdisk_diskencryptionset_id=DES)
    process.arm.put(DES, {"name": "des"})
    return process


def test_validation_succeeds_without_a_disk_encryption_set_despite_other_failures(process):
    process.arm.put(SUBNET, not_found())

    found = process.resolve(node_class_of())

    assert said(found, "ValidationSucceeded")[0] == "True"
    assert said(found, "Ready")[0] == "False"
    assert "diskEncryptionSets:get" not in process.arm.calls


def test_a_disk_encryption_set_without_a_role_blocks_until_it_is_granted():  # case 70
    process = encrypted()
    process.arm.put(DES, forbidden("Microsoft.Compute/diskEncryptionSets/read"))

    answer = process.answer(node_class_of())
    assert answer.retry_after == timedelta(minutes=1)
    found = process.resolve(node_class_of())
    status, reason, message = said(found, "ValidationSucceeded")
    assert (status, reason) == ("False", "DiskEncryptionSetRBACMissing")
    assert f'setting node-osdisk-diskencryptionset-id "{DES}"' in message
    assert "diskEncryptionSets/read" in message
    process.arm.put(DES, {"name": "des"})
    assert said(process.resolve(found), "ValidationSucceeded")[0] == "True"


def test_an_unanswered_disk_encryption_set_leaves_the_condition():  # case 70
    process = encrypted()
    found = process.resolve(node_class_of())
    process.arm.put(DES, unanswered())

    after = process.resolve(found)

    assert said(after, "ValidationSucceeded") == said(found, "ValidationSucceeded")
    assert process.answer(found).retry_after == timedelta(minutes=1)
    new = process.resolve(node_class_of())
    assert said(new, "ValidationSucceeded")[0] == "Unknown"


def test_a_disk_encryption_set_that_does_not_exist_is_named():
    process = encrypted()
    process.arm.put(DES, not_found())

    assert said(process.resolve(node_class_of()), "ValidationSucceeded")[:2] == (
        "False",
        "DiskEncryptionSetNotFound",
    )


def test_more_tags_than_azure_permits_are_named(process):
    """Azure would refuse every launch."""
    validator = node_class_validator(
        process.clock,
        DiskEncryptionSetCheck(process.arm, ""),
        refused_launches=process.refused_launches,
        additional_tags={"team": "x", "key-1": "y"},
    )

    def condition(count):
        made = node_class_of(tags={f"Key-{n}": "x" for n in range(count)})
        return validator.validate(made, ()).condition

    assert condition(45).status == "True"
    found = condition(46)
    assert (found.status, found.reason) == ("False", "TooManyTags")
    assert "spec.tags" in found.message
    assert "46" in found.message
    assert "51" in found.message
    assert "additional-tags" in found.message


def test_exhausted_quotas_are_named_by_a_condition_that_stays_true(process):
    validator = node_class_validator(
        process.clock,
        DiskEncryptionSetCheck(process.arm, ""),
        refused_launches=process.refused_launches,
        additional_tags={},
        remark=lambda _node_class: quota_remark({"cores": Quota(4, 4)}, location="westus2"),
    )

    condition = validator.validate(node_class_of(), ()).condition

    assert condition.status == "True"
    assert 'westus2 for regional vCPUs ("cores", limit 4)' in condition.message


@pytest.mark.parametrize(
    ("spec", "mode", "remark"),
    [
        ({}, "aksscriptless", ""),
        ({"localDNS": {"mode": "Disabled"}}, "aksscriptless", ""),
        ({"artifactStreaming": {"enabled": True}}, "bootstrappingclient", ""),
        (
            {"artifactStreaming": {"enabled": True}, "localDNS": {"mode": "Required"}},
            "aksscriptless",
            "spec.localDNS, spec.artifactStreaming",
        ),
    ],
)
def test_fields_without_an_effect_are_named(spec, mode, remark):
    found = unused_fields_remark(node_class_of(**spec), provision_mode=mode)

    ending = f": no effect with the setting provision-mode {mode}"
    assert found == (f"{remark}{ending}" if remark else "")


def test_a_launch_that_no_role_permits_becomes_a_condition_for_five_minutes(process):
    node_class = node_class_of()
    request = SimpleNamespace(node_class=node_class)
    error = forbidden("Microsoft.Compute/virtualMachines/write")

    process.refused_launches.note([request], [error])

    found = process.resolve(node_class)
    status, reason, message = said(found, "ValidationSucceeded")
    assert (status, reason) == ("False", "AuthorizationFailed")
    assert message.startswith("launches were refused: ")
    assert "Microsoft.Compute/virtualMachines/write" in message
    process.later(minutes=6)
    assert said(process.resolve(found), "ValidationSucceeded")[0] == "True"
    process.refused_launches.note([request], [CloudProviderError("no capacity")])
    assert said(process.resolve(found), "ValidationSucceeded")[0] == "True"


def test_credentials_that_give_no_token_are_named(process):
    trace = "0a1b2c3d-0000-1111-2222-333344445555"
    text = f"AADSTS700016: not found. Trace ID: {trace} Timestamp: 2030-01-01 12:00:00Z"
    process.arm.put(SUBNET, AuthError(f"subnets:get: NoToken: {text}", action="subnets:get"))

    _, reason, message = said(process.resolve(node_class_of()), "SubnetsReady")

    assert reason == "SubnetUnknownError"
    assert message.endswith("NoToken: AADSTS700016: not found.")


def test_readiness_blocks_launches(process):  # case 72
    new = node_class_of()
    unknown = not_ready_error(new)
    assert isinstance(unknown, LaunchFailedError)
    assert unknown.reason == "NodeClassReadinessUnknown"

    ready = process.resolve(new)
    assert not_ready_error(ready) is None

    changed = ready.model_copy(
        update={"metadata": ready.metadata.model_copy(update={"generation": 2})}
    )
    assert isinstance(not_ready_error(changed), NodeClassNotReadyError)

    process.arm.put(SUBNET, not_found())
    error = not_ready_error(later(process).resolve(ready))
    assert isinstance(error, NodeClassNotReadyError)
    assert "SubnetsReady=False" in str(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (forbidden(), True),
        (AuthError("no token", action="x"), True),
        (ThrottledError("slow down"), False),
        (unanswered(), False),
        (CloudProviderError("a page is missing"), False),
        (ArmError("bad", code="InvalidParameter", status=400), True),
        (not_found(), True),
        (ArmError("busy", code="Conflict", status=409), False),
        (ArmError("changed", status=412), False),
        (ArmError("broken", status=500), False),
        (ArmError("failed later", code="AllocationFailed"), False),
    ],
)
def test_a_refusal_is_an_error_that_a_repetition_would_meet(error, expected):
    assert is_refusal(error) is expected


def test_codes_are_those_of_azure():
    assert error_code(forbidden()) == "AuthorizationFailed"
    assert error_code(not_found()) == "ResourceNotFound"
    assert error_code(unanswered()) == ""


@pytest.mark.parametrize(
    "text",
    [
        "failed. Correlation ID: 0a1b2c3d-0000-1111-2222-333344445555",
        "failed. (tracking id '0a1b2c3d000011112222333344445555').",
        "failed. Timestamp: 2030-01-01T12:00:00.123Z",
        'failed {"timestamp": "2030-01-01 12:00:00Z", "trace_id": "0a1b2c3d-0000-1111-2222-333344445555"}',
    ],
)
def test_texts_that_differ_each_time_are_left_out(text):
    assert not any(char.isdigit() for char in AZURE_ERRORS.stable_text(text))


@pytest.mark.parametrize(
    ("kubelet", "said_of"),
    [
        ({"allowedUnsafeSysctls": ["kernel.msg*", "kernel.sem", "kernel/shmmax"]}, ""),
        ({"allowedUnsafeSysctls": ["net.*", "net.core.somaxconn", "fs.mqueue.queues_max"]}, ""),
        ({"allowedUnsafeSysctls": ["vm.max_map_count"]}, 'allowedUnsafeSysctls "vm.max_map_count"'),
        ({"allowedUnsafeSysctls": ["net.*", "*"]}, 'allowedUnsafeSysctls "*"'),
        ({"allowedUnsafeSysctls": ["net.*.x"]}, 'allowedUnsafeSysctls "net.*.x"'),
        ({"allowedUnsafeSysctls": ["kernel.semaphore"]}, '"kernel.semaphore"'),
        ({"imageGCHighThresholdPercent": 75}, ""),
        ({"imageGCHighThresholdPercent": 0}, "imageGCHighThresholdPercent 0"),
        ({"imageGCLowThresholdPercent": 100}, "imageGCLowThresholdPercent 100"),
        (
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50},
            "imageGCHighThresholdPercent 50",
        ),
    ],
)
def test_settings_that_no_kubelet_starts_with_launch_nothing(process, kubelet, said_of):
    status, reason, message = said(
        process.resolve(node_class_of(kubelet=kubelet)), "ValidationSucceeded"
    )
    assert (status, reason) == (
        ("False", "InvalidKubeletConfiguration") if said_of else ("True", "ValidationSucceeded")
    )
    assert said_of in message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("ReadOnlyDisabledSubscription", "ReadOnlyDisabledSubscription"),
        ("readonlydisabledsubscription", "readonlydisabledsubscription"),
        ("ScopeLocked", "ScopeLocked"),
        ("Conflict", None),
    ],
)
def test_a_subscription_without_writes_stops_the_launches_of_a_node_class(code, reason):
    """It does not pay, or its resource group has a lock."""
    process = Process()
    node_class = node_class_of()
    error = LaunchFailedError("the subscription is disabled", reason="CreateInstanceFailed")
    error.__cause__ = ArmError("the subscription is disabled", code=code, status=409)
    request = SimpleNamespace(node_class=node_class)

    process.refused_launches.note([request], [error])

    status, said_reason, message = said(process.resolve(node_class), "ValidationSucceeded")
    assert status == ("True" if reason is None else "False")
    if reason is not None:
        assert said_reason == reason
        assert "launches were refused: the subscription is disabled" in message


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (
            "the 'Microsoft.Compute/EncryptionAtHost' Feature is not enabled for this subscription.",
            True,
        ),
        ("The property 'x' is not valid.", False),
    ],
)
def test_a_feature_that_the_subscription_lacks_stops_the_launches_of_a_node_class(text, is_refused):
    error = LaunchFailedError(text, reason="CreateInstanceFailed")
    error.__cause__ = ArmError(text, code="InvalidParameter", status=400)

    finding = launch_refusal(error)

    assert (finding is not None) is is_refused
    if finding is not None:
        assert finding.reason == "InvalidParameter"
        assert "EncryptionAtHost" in finding.message


@pytest.mark.parametrize(("status", "is_refused"), [(401, False), (403, True)])
def test_a_token_that_azure_does_not_accept_is_no_missing_permission(status, is_refused):
    error = AuthError("virtualMachines:put", action="virtualMachines:put")
    error.__cause__ = ArmError("no", code="InvalidAuthenticationToken", status=status)

    assert (launch_refusal(error) is not None) is is_refused
