"""Whether launches with a NodeClass would be allowed: tried out without launching anything.

ECS answers a dry run with an error in any case; one of its codes means that the launch would succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class_parts import UNREACHABLE, code_reason
from karpenter_provider_alibabacloud.codes import SHORTAGES, ApiError, ErrorClass
from karpenter_provider_alibabacloud.node_class.findings import stable_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_alibabacloud.sdk import Clients

__all__ = ["PASSED", "DryRuns", "Outcome", "Verdict", "denied", "field_of", "judge"]

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


class Verdict(Enum):
    """What a dry run tells."""

    PASSED = "passed"
    RETRY = "retry"
    """Nothing about the NodeClass: throttled, or not answered."""
    FAILED = "failed"
    """A launch would not be permitted."""
    REFUSED = "refused"
    """A launch would be refused for something else; what is missing may be there the next minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a dry run, as a condition says it."""

    verdict: Verdict
    reason: str = ""
    message: str = ""


PASSED: Final = Outcome(verdict=Verdict.PASSED)


def denied(action: str) -> str:
    """Return the reason of a condition for an action (`ecs:RunInstances`) that is not permitted."""
    return f"{action.rpartition(':')[2]}AuthCheckFailed"


def field_of(code: str) -> str:
    """Return the field of a NodeClass that a refusal with this code is about; empty for none."""
    return next((field for prefix, field in _FIELDS if code.startswith(prefix)), "")


def judge(error: ApiError | None) -> Outcome:
    """Return what the answer to a dry run of RunInstances tells; None is one without an error."""
    if error is None:
        return PASSED
    said = stable_text(str(error))
    error_class = error.error_class
    if error_class is ErrorClass.DRY_RUN or error_class in SHORTAGES:
        return PASSED  # no stock, but no lack of permission
    if error_class in {ErrorClass.THROTTLED, ErrorClass.TRANSIENT, ErrorClass.STATE}:
        return Outcome(verdict=Verdict.RETRY, reason=UNREACHABLE, message=said)
    if error_class is ErrorClass.AUTH:
        return Outcome(verdict=Verdict.FAILED, reason=denied("RunInstances"), message=said)
    field = field_of(error.code)
    message = f"launches would be refused: {said}"
    return Outcome(
        verdict=Verdict.REFUSED,
        reason=code_reason(error.code),
        message=f"{field}: {message}" if field else message,
    )


@final
class DryRuns:
    """Tries launches out; callable from any thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients: Final = clients

    def run(self, request: Mapping[str, object]) -> Outcome:
        """Return what ECS says of a launch; `request` is one of RunInstances."""
        try:
            self._clients.ecs.call("RunInstances", {**request, "DryRun": True})
        except ApiError as error:
            return judge(error)
        return PASSED
