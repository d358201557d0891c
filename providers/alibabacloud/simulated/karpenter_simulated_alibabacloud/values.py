"""Checks values of launch parameters: enums and ranges of the API.

The parameters are those of RunInstances, and of the launch configuration of a provisioning group,
which takes the same; refusals have the codes of the API reference. A parameter that is not given is
not checked.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.types import DISK_CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_simulated_alibabacloud.instances import Disk
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["check_disk_size", "check_launch", "disk_category", "one_of", "performance_level"]

_FORBIDDEN: Final = 403
_ESSD: Final = "cloud_essd"
_AUTO: Final = "cloud_auto"
_LEVELS: Final = ("PL0", "PL1", "PL2", "PL3")
_LEAST_OF_LEVEL: Final = {"PL0": 1, "PL1": 20, "PL2": 461, "PL3": 1261}
"""GiB of an ESSD at least."""
_SYSTEM_SIZES: Final = {"cloud": (20, 500), _ESSD: (1, 2048), _AUTO: (1, 2048)}
"""GiB of a system disk, by category."""
_OTHER_SYSTEM_SIZES: Final = (20, 2048)
_DATA_SIZES: Final = {
    "cloud": (5, 2000),
    "cloud_essd": (1, 65536),
    "cloud_auto": (1, 65536),
    "cloud_essd_entry": (10, 32768),
}
"""GiB of a data disk, by category."""
_OTHER_DATA_SIZES: Final = (20, 32768)
_MOST_IOPS: Final = 50_000
_IOPS_PER_GIB: Final = 1000
_BASELINE_IOPS: Final = (1800, 50)
"""Of an AutoPL disk: so many, and so many for each GiB."""
_BANDWIDTHS: Final = range(101)
_HOPS: Final = range(1, 65)
_PASSWORD_LENGTHS: Final = range(8, 31)
_PASSWORD_SPECIALS: Final = frozenset("()`~!@#$%^&*-_+=|{}[]:;'<>,.?/")
"""All that there may be besides letters and digits of ASCII (API reference of RunInstances)."""
_KINDS_IN_PASSWORD: Final = 3
_PRICE_DECIMALS: Final = 3


def one_of(own: RequestParameters, name: str, allowed: Collection[str], code: str) -> str:
    """Return a value that must be one of some, or empty.

    Raises:
        CloudError: it is another one.
    """
    value = own.text(name)
    if value and value not in allowed:
        raise CloudError(code, f'The specified parameter "{name}" is not valid: {value}.')
    return value


def disk_category(disk: RequestParameters, name: str, *, system: bool) -> str:
    """Return the category of a disk, empty where none is given.

    Raises:
        CloudError: there is none like that.
    """
    kind = "System" if system else "Data"
    return one_of(disk, name, DISK_CATEGORIES, f"Invalid{kind}DiskCategory.ValueNotSupported")


def performance_level(disk: RequestParameters, name: str) -> str:
    """Return the performance level of a disk, empty where none is given.

    Raises:
        CloudError: there is none like that.
    """
    return one_of(disk, name, _LEVELS, "InvalidPerformanceLevel.Malformed")


def check_disk_size(disk: Disk, category: str, *, system: bool) -> CloudError | None:
    """Return why a disk of a category cannot be as it is asked for; None where it can."""
    least, most = (
        _SYSTEM_SIZES.get(category, _OTHER_SYSTEM_SIZES)
        if system
        else _DATA_SIZES.get(category, _OTHER_DATA_SIZES)
    )
    size, kind = disk.size_gib, "SystemDisk" if system else "DataDisk"
    if category == _ESSD and size < _LEAST_OF_LEVEL[disk.performance_level or "PL1"]:
        return CloudError(
            "OperationDenied.PerformanceLevelNotMatch",
            f"The specified PerformanceLevel {disk.performance_level or 'PL1'} and the disk size"
            f" {size} of {kind} do not match.",
            status=_FORBIDDEN,
        )
    if not least <= size <= most and not disk.snapshot_id:
        return CloudError(
            f"Invalid{kind}Size.ValueNotSupported",
            f"The specified {kind}.Size {size} is not from {least} to {most} GiB, as {category}"
            " can be.",
        )
    if disk.kms_key_id and not disk.encrypted:
        return CloudError(
            "InvalidEncrypted.NotMatchKmsKeyId",
            f"The specified parameter {kind}.Encrypted must be true when KmsKeyId is not empty.",
        )
    first, each = _BASELINE_IOPS
    baseline = min(first + each * size, _MOST_IOPS)
    if category == _AUTO and not 0 <= disk.provisioned_iops <= min(
        _MOST_IOPS, _IOPS_PER_GIB * size - baseline
    ):
        return CloudError(
            "InvalidProvisionedIops.LimitExceed",
            f"The specified {kind}.ProvisionedIops {disk.provisioned_iops} exceeds the limit of a"
            f" disk of {size} GiB.",
        )
    return None


def check_launch(own: RequestParameters) -> None:
    """Refuse values of a launch that are out of their range.

    Raises:
        CloudError: one is.
    """
    one_of(own, "InstanceChargeType", ("PrePaid", "PostPaid"), "InvalidInstanceChargeType.NotFound")
    strategy = one_of(
        own,
        "SpotStrategy",
        ("NoSpot", "SpotAsPriceGo", "SpotWithPriceLimit"),
        "InvalidSpotStrategy",
    )
    if strategy not in {"", "NoSpot"} and own.text("InstanceChargeType") == "PrePaid":
        raise CloudError(
            "InvalidSpotPrepaid", "The specified Spot type is not support PrePay Instance."
        )
    _check_price_limit(own, strategy)
    one_of(own, "SpotDuration", ("0", "1"), "InvalidSpotDuration")
    one_of(
        own, "SpotInterruptionBehavior", ("Terminate", "Stop"), "InvalidSpotInterruptionBehavior"
    )
    _check_range(
        own, "InternetMaxBandwidthOut", _BANDWIDTHS, "InvalidInternetMaxBandwidthOut.Malformed"
    )
    one_of(
        own,
        "InternetChargeType",
        ("PayByBandwidth", "PayByTraffic"),
        "InvalidInternetChargeType.ValueNotSupported",
    )
    one_of(own, "HttpEndpoint", ("enabled", "disabled"), "InvalidHttpEndpoint.NotSupported")
    one_of(own, "HttpTokens", ("optional", "required"), "InvalidHttpTokens.NotSupported")
    _check_range(
        own, "HttpPutResponseHopLimit", _HOPS, "InvalidHttpPutResponseHopLimit.NotSupported"
    )
    _check_password(own)
    _check_interfaces(own)


def _check_range(own: RequestParameters, name: str, allowed: range, code: str) -> None:
    if own.text(name) and own.integer(name) not in allowed:
        raise CloudError(code, f"The specified parameter {name} is not valid: {own.text(name)}.")


def _check_price_limit(own: RequestParameters, strategy: str) -> None:
    limit = own.number("SpotPriceLimit")
    is_fine = limit > 0 and round(limit, _PRICE_DECIMALS) == limit
    if strategy == "SpotWithPriceLimit" and not is_fine:
        raise CloudError("InvalidSpotPriceLimit", f"The specified SpotPriceLimit {limit} is wrong.")


def _check_password(own: RequestParameters) -> None:
    password = own.text("Password")
    if not password:
        return
    if own.flag("PasswordInherit"):
        raise CloudError(
            "InvalidPasswordParam.Mismatch",
            "The input password should be null when passwdInherit is true.",
        )
    kinds = (string.ascii_lowercase, string.ascii_uppercase, string.digits, _PASSWORD_SPECIALS)
    used = sum(any(letter in kind for letter in password) for kind in kinds)
    is_foreign = any(not any(letter in kind for kind in kinds) for letter in password)
    if len(password) not in _PASSWORD_LENGTHS or used < _KINDS_IN_PASSWORD or is_foreign:
        raise CloudError(
            "InvalidPassword.Malformed", 'The specified parameter "Password" is not valid.'
        )


def _check_interfaces(own: RequestParameters) -> None:
    """Refuse security groups and vSwitches that are given twice: for the call and its interface."""
    for each in own.items_of("NetworkInterface"):
        given = [name for name in ("SecurityGroupId", "SecurityGroupIds") if each.get(name)]
        if len(given) > 1:
            raise CloudError(
                "InvalidParameter.Conflict",
                "NetworkInterface.N.SecurityGroupId and NetworkInterface.N.SecurityGroupIds.N must"
                " not be given together.",
            )
        if each.text("InstanceType", "Secondary") != "Primary":
            continue
        both = [
            name for name in ("SecurityGroupId", "SecurityGroupIds", "VSwitchId") if own.get(name)
        ]
        if both:
            raise CloudError(
                "InvalidParameter.Conflict",
                f"{both[0]} must not be given beside a primary NetworkInterface.N.",
            )
