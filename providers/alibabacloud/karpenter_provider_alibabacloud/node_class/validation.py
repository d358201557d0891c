"""Validates ECSNodeClasses, in the last place by dry runs of a usual launch.

`karpenter_core.provider.kit.node_class.validation` has the order of checks, and remembers outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.kit.node_class.findings import (
    DryRunOutcome,
    DryRunVerdict,
    NodeClassFinding,
)
from karpenter_core.provider.kit.node_class.validation import (
    VALIDATION_SUCCEEDED,
    NodeClassValidator,
)
from karpenter_provider_alibabacloud.node_class.conditions import ALIBABA_CLOUD_ERRORS
from karpenter_provider_alibabacloud.node_class.static_checks import (
    INVALID_USER_DATA,
    STATIC_CHECKS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
    from karpenter_provider_alibabacloud.node_class.dry_runs import LaunchDryRuns

__all__ = ["TrialRequestSource", "node_class_validator"]

NO_INSTANCE_TYPE: Final = "NoInstanceType"
SCRIPT: Final = "user data that joins nodes to the cluster is not available"


class TrialRequestSource(Protocol):
    """Builds the request of a launch that is tried out."""

    def request(self, node_class: ECSNodeClass, user_data: str) -> Mapping[str, object]:
        """Return the parameters of RunInstances for one usual instance, with `user_data`.

        Raises:
            LaunchFailedError: no instance type boots any of the images.
            CloudProviderError: no instance types are known yet.
        """
        ...


def node_class_validator(
    clock: Clock,
    *,
    bootstrapper: UserDataBuilder,
    dry_runs: LaunchDryRuns | None,
    launch: TrialRequestSource,
    refused_launches: RefusedLaunches,
    is_custom: bool = False,
) -> NodeClassValidator[ECSNodeClass]:
    """Return the validator; without `dry_runs` nothing is tried out.

    `is_custom` says that the cluster is none of ACK's.
    """

    def user_data_problem(node_class: ECSNodeClass) -> NodeClassFinding | ResolutionPart | None:
        try:
            bootstrapper.trial(node_class)
        except BadInputError as error:
            return NodeClassFinding(reason=INVALID_USER_DATA, message=str(error))
        except CloudProviderError as error:
            return ALIBABA_CLOUD_ERRORS.failed_part(VALIDATION_SUCCEEDED, SCRIPT, error)
        return None

    def dry_run(node_class: ECSNodeClass, dry_runs: LaunchDryRuns) -> DryRunOutcome:
        try:
            request = launch.request(node_class, bootstrapper.trial(node_class))
        except LaunchFailedError as error:
            return DryRunOutcome(
                verdict=DryRunVerdict.REFUSED, reason=NO_INSTANCE_TYPE, message=str(error)
            )
        return dry_runs.run(request)

    return NodeClassValidator(
        clock,
        ALIBABA_CLOUD_ERRORS,
        checks=STATIC_CHECKS,
        late_checks=[user_data_problem],
        dry_run=None if dry_runs is None else lambda node_class: dry_run(node_class, dry_runs),
        refused_launches=refused_launches,
        remark=_unused_fields if is_custom else lambda _node_class: "",
    )


def _unused_fields(node_class: ECSNodeClass) -> str:
    """Return the fields without an effect in a cluster that is none of ACK's."""
    spec = node_class.spec
    fields = (
        ("spec.kubeletConfiguration", spec.kubelet_configuration is not None),
        ("spec.formatDataDisk", spec.format_data_disk),
    )
    idle = [name for name, is_set in fields if is_set]
    return f"{', '.join(idle)}: in a Custom cluster only spec.userData can do so" if idle else ""
