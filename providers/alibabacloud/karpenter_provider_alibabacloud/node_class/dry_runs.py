"""Tries out launches with a NodeClass by dry runs.

ECS answers a dry run with an error in any case; one of its codes means that the launch would succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.findings import PASSED, DryRunOutcome, DryRunVerdict
from karpenter_core.provider.kit.node_class.parts import UNREACHABLE_REASON, code_reason
from karpenter_provider_alibabacloud.codes import SHORTAGES, ApiError, ErrorClass
from karpenter_provider_alibabacloud.node_class.conditions import stable_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["LaunchDryRuns", "denied", "dry_run_outcome", "field_of"]

_FIELDS: Final = (
    ("DeploymentSet.", "spec.deploymentSetId"),
    ("InvalidDataDisk", "spec.dataDisks"),
    ("InvalidDeploymentSet", "spec.deploymentSetId"),
    ("InvalidEncrypted.", "spec.systemDisk.encrypted, spec.dataDisks"),
    ("InvalidHttp", "spec.metadataOptions"),
    ("InvalidImage", "spec.imageSelectorTerms"),
    ("InvalidInternetChargeType", "spec.internetChargeType"),
    ("InvalidInternetMaxBandwidthOut", "spec.internetMaxBandwidthOut"),
    ("InvalidKeyPair", "spec.keyPairName"),
    ("InvalidPassword", "spec.password"),
    ("InvalidPerformanceLevel", "spec.systemDisk.performanceLevel"),
    ("InvalidProvisionedIops", "spec.systemDisk.provisionedIops"),
    ("InvalidRamRole", "spec.ramRoleName"),
    ("InvalidResourceGroup", "spec.resourceGroupId"),
    ("InvalidSecurityGroup", "spec.securityGroupSelectorTerms"),
    ("InvalidSystemDisk", "spec.systemDisk"),
    ("InvalidTag", "spec.tags"),
    ("InvalidUserData", "spec.userData"),
    ("InvalidVSwitch", "spec.vSwitchSelectorTerms"),
    ("OperationDenied.PerformanceLevelNotMatch", "spec.systemDisk.performanceLevel"),
)
"""The field that a code is about, by how the code begins."""


def denied(action: str) -> str:
    """Return the reason of a condition for an action (`ecs:RunInstances`) that is not permitted."""
    return f"{action.rpartition(':')[2]}AuthCheckFailed"


def field_of(code: str) -> str:
    """Return the field of a NodeClass that a refusal with this code is about; empty for none."""
    return next((field for prefix, field in _FIELDS if code.startswith(prefix)), "")


def dry_run_outcome(error: ApiError | None) -> DryRunOutcome:
    """Return what the answer to a dry run of RunInstances tells; None is one without an error."""
    if error is None:
        return PASSED
    error_text = stable_text(str(error))
    error_class = error.error_class
    if error_class is ErrorClass.DRY_RUN or error_class in SHORTAGES:
        return PASSED  # no stock, but no lack of permission
    if error_class in {ErrorClass.THROTTLED, ErrorClass.TRANSIENT, ErrorClass.STATE}:
        return DryRunOutcome(
            verdict=DryRunVerdict.RETRY, reason=UNREACHABLE_REASON, message=error_text
        )
    if error_class is ErrorClass.AUTH:
        return DryRunOutcome(
            verdict=DryRunVerdict.FAILED, reason=denied("RunInstances"), message=error_text
        )
    field = field_of(error.code)
    message = f"launches would be refused: {error_text}"
    return DryRunOutcome(
        verdict=DryRunVerdict.REFUSED,
        reason=code_reason(error.code),
        message=f"{field}: {message}" if field else message,
    )


@final
class LaunchDryRuns:
    """Tries launches out; callable from any thread."""

    def __init__(self, clients: CloudClients) -> None:
        self._clients: Final = clients

    def run(self, request: Mapping[str, object]) -> DryRunOutcome:
        """Return what ECS says of a launch; `request` is one of RunInstances."""
        try:
            self._clients.ecs.call("RunInstances", {**request, "DryRun": True})
        except ApiError as error:
            return dry_run_outcome(error)
        return PASSED
