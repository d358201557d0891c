"""Values of launches that the simulated Alibaba Cloud refuses as the API reference says."""

from __future__ import annotations

import pytest

LEVEL_DISK = {"Category": "cloud_essd", "Size": "100"}
SPOT = {"SpotStrategy": "SpotAsPriceGo"}
WRONG = [
    ({"Amount": 0}, "InvalidParameter.Amount"),
    ({"Amount": 101}, "InvalidParameter.Amount"),
    ({"Amount": 2, "MinAmount": 3}, "InvalidParameter.MinAmount"),
    ({"InstanceChargeType": "Free"}, "InvalidInstanceChargeType.NotFound"),
    ({"InstanceChargeType": "PrePaid", **SPOT}, "InvalidSpotPrepaid"),
    ({"SpotStrategy": "SpotAsYouLike"}, "InvalidSpotStrategy"),
    ({"SpotStrategy": "SpotWithPriceLimit"}, "InvalidSpotPriceLimit"),
    ({"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": 1.2345}, "InvalidSpotPriceLimit"),
    ({"SystemDisk": {"Category": "cloud_tape"}}, "InvalidSystemDiskCategory.ValueNotSupported"),
    ({"SystemDisk": {**LEVEL_DISK, "PerformanceLevel": "PL9"}},
     "InvalidPerformanceLevel.Malformed"),
    ({"SystemDisk": {**LEVEL_DISK, "PerformanceLevel": "PL2"}},
     "OperationDenied.PerformanceLevelNotMatch"),
    ({"SystemDisk": {**LEVEL_DISK, "Size": "2049"}}, "InvalidSystemDiskSize.ValueNotSupported"),
    ({"SystemDisk": {**LEVEL_DISK, "KMSKeyId": "key-1"}}, "InvalidEncrypted.NotMatchKmsKeyId"),
    ({"SystemDisk": {"Category": "cloud_auto", "Size": "40", "ProvisionedIops": 36201}},
     "InvalidProvisionedIops.LimitExceed"),
    ({"DataDisk": [{"Category": "cloud_tape"}]}, "InvalidDataDiskCategory.ValueNotSupported"),
    ({"DataDisk": [{"Category": "cloud_essd", "Size": 460, "PerformanceLevel": "PL2"}]},
     "OperationDenied.PerformanceLevelNotMatch"),
    ({"DataDisk": [{"Category": "cloud_auto", "Size": 65537}]},
     "InvalidDataDiskSize.ValueNotSupported"),
]  # fmt: skip
WRONG_IN_BOTH = [
    ({"SpotDuration": 6}, "InvalidSpotDuration"),
    ({"SpotInterruptionBehavior": "Explode"}, "InvalidSpotInterruptionBehavior"),
    ({"InternetMaxBandwidthOut": 101}, "InvalidInternetMaxBandwidthOut.Malformed"),
    ({"InternetMaxBandwidthOut": -1}, "InvalidInternetMaxBandwidthOut.Malformed"),
    ({"InternetChargeType": "PayByNobody"}, "InvalidInternetChargeType.ValueNotSupported"),
    ({"Password": "short1A"}, "InvalidPassword.Malformed"),
    ({"Password": "alllowercase"}, "InvalidPassword.Malformed"),
    ({"Password": "Passw0rd !"}, "InvalidPassword.Malformed"),
    ({"Password": "Passw\u00f6rd0!"}, "InvalidPassword.Malformed"),
    ({"Password": "Passw0rd!\\"}, "InvalidPassword.Malformed"),
    ({"Password": 'Passw0rd!"'}, "InvalidPassword.Malformed"),
    ({"Password": "Passw0rd!", "PasswordInherit": True}, "InvalidPasswordParam.Mismatch"),
    ({"SecurityGroupId": "sg-1"}, "InvalidParameter.Conflict"),
    ({"ImageId": "m-none"}, "InvalidImageId.NotFound"),
    ({"SecurityGroupIds": ["sg-none"]}, "InvalidSecurityGroupId.NotFound"),
    ({"UserData": "YWFh" * 10923}, "InvalidUserData.SizeExceeded"),
    ({"Tag": [{"Key": "aliyun.x", "Value": ""}]}, "InvalidTagKey.Malformed"),
    ({"Tag": [{"Key": "acs:x", "Value": ""}]}, "InvalidTagKey.Malformed"),
    ({"Tag": [{"Key": "see-https://x", "Value": ""}]}, "InvalidTagKey.Malformed"),
    ({"Tag": [{"Key": "k" * 129, "Value": ""}]}, "InvalidTagKey.Malformed"),
    ({"Tag": [{"Key": "k", "Value": "v" * 129}]}, "InvalidTagValue.Malformed"),
    ({"Tag": [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]}, "Duplicate.TagKey"),
]  # fmt: skip
RIGHT = [
    {"InternetMaxBandwidthOut": 100, "InternetChargeType": "PayByTraffic"},
    {"SystemDisk": {**LEVEL_DISK, "PerformanceLevel": "PL2", "Size": "461"}},
    {"SystemDisk": {**LEVEL_DISK, "KMSKeyId": "key-1", "Encrypted": "true"}},
    {"SystemDisk": {"Category": "cloud_auto", "Size": "40", "ProvisionedIops": 36200}},
    {"DataDisk": [{"Category": "cloud_auto", "Size": 65536}]},
    {"Password": "Passw0rd!"},
    {"Password": "Aa1()`~!@#$%^&*-_+="},
    {"Password": "Aa1|{}[]:;'<>,.?/"},
    {"Tag": [{"Key": "k" * 128, "Value": "v" * 128}]},
    {"UserData": "YWFh" * 10922},
    {"SpotDuration": 0, "SpotInterruptionBehavior": "Stop", **SPOT},
]


@pytest.mark.parametrize(("more", "expected"), [*WRONG, *WRONG_IN_BOTH])
def test_a_run_with_a_value_out_of_range_is_refused(cloud, launch, code, more, expected):
    assert code(launch.run, **more) == expected
    assert code(launch.run, **more, DryRun=True) in {expected, "DryRunOperation"}
    assert cloud.living() == []


@pytest.mark.parametrize(("more", "expected"), WRONG_IN_BOTH)
def test_a_group_with_a_value_out_of_range_is_refused(cloud, launch, code, more, expected):
    assert code(launch.group, "ecs.g7.large", launch=more) == expected
    assert cloud.living() == []


@pytest.mark.parametrize("more", RIGHT)
def test_values_at_the_end_of_their_range_are_taken(cloud, launch, more):
    assert launch.run(**more)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"SystemDiskConfig": [{"DiskCategory": "cloud_tape"}]},
         "InvalidSystemDiskCategory.ValueNotSupported"),
        ({"DataDiskConfig": [{"DiskCategory": "cloud_tape"}]},
         "InvalidDataDiskCategory.ValueNotSupported"),
        ({"SystemDiskConfig": [{"DiskCategory": "cloud_ssd"}] * 2}, "Duplicate.DiskCategory"),
        ({"launch": {"SystemDiskPerformanceLevel": "PL4"}}, "InvalidPerformanceLevel.Malformed"),
        ({"count": 2001}, "TotalTargetCapacityLimitExceed"),
        ({"TotalTargetCapacity": "1", "SpotTargetCapacity": "1"},
         "InvalidParameter.TargetCapacity"),
        ({"PayAsYouGoAllocationStrategy": "random"},
         "InvalidPayAsYouGoAllocationStrategy.ValueNotSupported"),
    ],
)  # fmt: skip
def test_a_group_with_missing_resources_is_refused(cloud, launch, code, more, expected):
    assert code(launch.group, "ecs.g7.large", **more) == expected
    assert cloud.living() == []


def test_a_group_reports_disks_out_of_range_per_choice(launch):
    group = launch.group("ecs.g7.large", zones="b", launch={"SystemDiskSize": 2049})

    assert group.errors == [("ecs.g7.large", "b", "InvalidSystemDiskSize.ValueNotSupported")]


@pytest.mark.parametrize(
    "interface",
    [
        {"SecurityGroupId": "sg-1", "SecurityGroupIds": ["sg-2"]},
        {"InstanceType": "Primary", "SecurityGroupId": "sg-1"},
        {"InstanceType": "Primary"},
    ],
)
def test_security_groups_of_the_call_and_of_its_interface_are_not_taken_together(
    cloud, launch, code, interface
):
    assert code(launch.run, NetworkInterface=[interface]) == "InvalidParameter.Conflict"
    assert launch.run(NetworkInterface=[{"InstanceType": "Secondary", "SecurityGroupId": "sg-1"}])
