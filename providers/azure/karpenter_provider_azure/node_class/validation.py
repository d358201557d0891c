"""Validates AKSNodeClasses: tags, kubelet, disk encryption, launches."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.node_class.findings import NodeClassFinding
from karpenter_core.provider.kit.node_class.validation import (
    VALIDATION_SUCCEEDED,
    NodeClassValidator,
)
from karpenter_provider_azure.api.local_dns import LocalDNSMode
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.instance_tags import MAX_TAGS, instance_tags
from karpenter_provider_azure.node_class.conditions import AZURE_ERRORS, error_code
from karpenter_provider_azure.setting_specs import SCRIPTLESS_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmClient

__all__ = [
    "DISK_API_VERSION",
    "DISK_ENCRYPTION_SET_MISSING_ROLE",
    "DiskEncryptionSetCheck",
    "launch_refusal",
    "node_class_validator",
    "unused_fields_remark",
]

RECHECK_INTERVAL: Final = timedelta(hours=1)
DISK_ENCRYPTION_SET_MISSING_ROLE: Final = "DiskEncryptionSetRBACMissing"
DISK_ENCRYPTION_SET_NOT_FOUND: Final = "DiskEncryptionSetNotFound"
LAUNCH_NOT_PERMITTED: Final = "LaunchNotPermitted"
INVALID_KUBELET: Final = "InvalidKubeletConfiguration"
TOO_MANY_TAGS: Final = "TooManyTags"
_UNAUTHENTICATED: Final = 401
_NO_WRITES: Final = frozenset({"readonlydisabledsubscription", "scopelocked"})
"""Codes of every write, with status 409: the subscription does not pay, or the resource group has a lock."""
_LACKS_FEATURE: Final = "feature is not enabled for this subscription"
"""In the text about a field that needs one, as `security.encryptionAtHost`."""
DISK_API_VERSION: Final = "2024-03-02"
"""Of disks and disk encryption sets."""


@final
class DiskEncryptionSetCheck:
    """Checks the disk encryption set of the settings; callable from any thread."""

    def __init__(self, arm: ArmClient, disk_encryption_set_id: str) -> None:
        """`disk_encryption_set_id` is empty if none is set."""
        self._arm: Final = arm
        self._id: Final = disk_encryption_set_id

    def check(self, _node_class: AKSNodeClass) -> NodeClassFinding | ResolutionPart | None:
        """Return the finding if launches would fail for lack of the disk encryption set.

        Another failure of the call leaves the condition as it is.
        """
        if not self._id:
            return None
        field = f'setting node-osdisk-diskencryptionset-id "{self._id}"'
        try:
            self._arm.get(self._id, api_version=DISK_API_VERSION, action="diskEncryptionSets:get")
        except AuthError as error:
            return NodeClassFinding(
                reason=DISK_ENCRYPTION_SET_MISSING_ROLE,
                message=f"{field}: {AZURE_ERRORS.stable_text(error)}; grant the controller's "
                "identity the role Reader on it",
            )
        except ArmNotFoundError as error:
            return NodeClassFinding(
                reason=DISK_ENCRYPTION_SET_NOT_FOUND,
                message=f"{field}: {AZURE_ERRORS.stable_text(error)}",
            )
        except CloudProviderError as error:
            return AZURE_ERRORS.failed_part(VALIDATION_SUCCEEDED, field, error)
        return None


def tag_check(
    additional_tags: Mapping[str, str],
) -> Callable[[AKSNodeClass], NodeClassFinding | None]:
    """Return a check that nodes get no more tags than Azure permits: it would refuse their launches.

    `additional_tags` are those of the settings.
    """

    def check(node_class: AKSNodeClass) -> NodeClassFinding | None:
        own = node_class.spec.tags
        tags = instance_tags(
            own, additional_tags=additional_tags, cluster="-", claim_uid="-", node_pool="-"
        )
        if len(tags) <= MAX_TAGS:
            return None
        return NodeClassFinding(
            reason=TOO_MANY_TAGS,
            message=f"spec.tags: {len(own)} tags, with those of the setting additional-tags and "
            f"Karpenter's own {len(tags)}, and Azure permits {MAX_TAGS}",
        )

    return check


def kubelet_check(node_class: AKSNodeClass) -> NodeClassFinding | None:
    """Return the finding if no kubelet would start with the settings: its node would never join."""
    kubelet = node_class.spec.kubelet
    if kubelet is None:
        return None
    complaints = [
        f'spec.kubelet.allowedUnsafeSysctls "{name}": must be a sysctl of pods, as net.core.somaxconn, '
        "or the beginning of some, as kernel.msg*"
        for name in kubelet.unusable_sysctls
    ]
    thresholds = kubelet.image_gc_thresholds
    if thresholds is not None and thresholds[0] <= thresholds[1]:
        complaints.append(
            f"spec.kubelet: imageGCHighThresholdPercent {thresholds[0]} must be above "
            f"imageGCLowThresholdPercent {thresholds[1]}"
        )
    if not complaints:
        return None
    return NodeClassFinding(reason=INVALID_KUBELET, message="; ".join(complaints))


def launch_refusal(error: CloudProviderError) -> NodeClassFinding | None:
    """Return the refusal that every launch of a NodeClass would meet.

    It is a missing permission, a subscription or group that takes no writes, or a feature that the
    subscription does not have.

    `RefusedLaunches` keeps it, and nothing is launched from the NodeClass meanwhile. A token that Azure
    does not accept (status 401) is no missing permission: the next call has another one.
    """
    cause = error.__cause__
    is_unauthenticated = isinstance(cause, ArmError) and cause.status == _UNAUTHENTICATED
    is_denied = isinstance(error, AuthError) and not is_unauthenticated
    is_of_subscription = isinstance(cause, ArmError) and (
        cause.code.lower() in _NO_WRITES or _LACKS_FEATURE in cause.text.lower()
    )
    if not is_denied and not is_of_subscription:
        return None
    return NodeClassFinding(
        reason=AZURE_ERRORS.refusal_reason(error) if error_code(error) else LAUNCH_NOT_PERMITTED,
        message=f"launches were refused: {AZURE_ERRORS.stable_text(error)}",
    )


def unused_fields_remark(node_class: AKSNodeClass, *, provision_mode: str) -> str:
    """Return a remark about fields that have no effect in a provision mode; empty for none."""
    if provision_mode != SCRIPTLESS_MODE:
        return ""
    spec = node_class.spec
    fields = (
        ("spec.localDNS", spec.local_dns_mode != LocalDNSMode.DISABLED),
        ("spec.artifactStreaming", spec.uses_artifact_streaming),
    )
    unused = [name for name, is_used in fields if is_used]
    if not unused:
        return ""
    return f"{', '.join(unused)}: no effect with the setting provision-mode {provision_mode}"


def node_class_validator(
    clock: Clock,
    disk_encryption_set: DiskEncryptionSetCheck,
    *,
    refused_launches: RefusedLaunches,
    additional_tags: Mapping[str, str],
    remark: Callable[[AKSNodeClass], str] = lambda _node_class: "",
) -> NodeClassValidator[AKSNodeClass]:
    """Return the validator; `additional_tags` are those of the settings, and `remark` is the message of a condition that is True."""
    return NodeClassValidator(
        clock,
        AZURE_ERRORS,
        checks=[tag_check(additional_tags), kubelet_check, disk_encryption_set.check],
        refused_launches=refused_launches,
        remark=remark,
        recheck_after=RECHECK_INTERVAL,
    )
