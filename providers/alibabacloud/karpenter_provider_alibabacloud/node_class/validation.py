"""Computes the condition `ValidationSucceeded` of a NodeClass."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.conditions import FALSE, UNKNOWN
from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    ResolutionPart,
    condition_met,
    condition_unmet,
)
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.discovery.call_errors import is_refusal
from karpenter_provider_alibabacloud.node_class.conditions import (
    VALIDATION_SUCCEEDED,
    refused_condition,
    unanswered_condition,
)
from karpenter_provider_alibabacloud.node_class.dry_runs import DryRunOutcome, DryRunVerdict
from karpenter_provider_alibabacloud.node_class.static_checks import (
    INVALID_USER_DATA,
    STATIC_CHECKS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.conditions import Condition
    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
    from karpenter_provider_alibabacloud.node_class.dry_runs import LaunchDryRuns
    from karpenter_provider_alibabacloud.node_class.refused_launches import RefusedLaunches

__all__ = ["NodeClassValidator", "TrialRequestSource"]

NO_INSTANCE_TYPE: Final = "NoInstanceType"
RESULT_TTL: Final = timedelta(minutes=30)
"""How long a dry run that would have succeeded counts, for an unchanged NodeClass; another is made again
at each look, as what is missing may be given at any time."""
RECHECK_INTERVAL: Final = timedelta(minutes=10)
RETRY_INTERVAL: Final = timedelta(seconds=10)
"""After what is nothing about the NodeClass."""
ATTEMPT: Final = "launches could not be tested by dry runs"
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


@final
class NodeClassValidator:
    """Validates NodeClasses; callable from any thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        bootstrapper: UserDataBuilder,
        dry_runs: LaunchDryRuns | None,
        launch: TrialRequestSource | None,
        refused_launches: RefusedLaunches,
        is_custom: bool = False,
    ) -> None:
        """Without `dry_runs` and `launch` nothing is tried out.

        `is_custom` says that the cluster is none of ACK's.
        """
        self._bootstrapper: Final = bootstrapper
        self._dry_runs: Final = dry_runs
        self._launch: Final = launch
        self._refused_launches: Final = refused_launches
        self._is_custom: Final = is_custom
        self._results: Final[TtlCache[tuple[str, str], DryRunOutcome]] = TtlCache(clock, RESULT_TTL)

    def validate(
        self, node_class: ECSNodeClass, dependencies: Iterable[Condition]
    ) -> ResolutionPart:
        """Return the condition; `node_class` has the status that was just found.

        `dependencies` are the conditions of what a launch needs.
        """
        problems = (check(node_class) for check in STATIC_CHECKS)
        problem = next((each for each in problems if each is not None), None)
        if problem is not None:
            return condition_unmet(VALIDATION_SUCCEEDED, problem.reason, problem.message)
        waiting = _unmet_dependencies(dependencies)
        if waiting is not None:
            return waiting
        try:
            user_data = self._bootstrapper.trial(node_class)
        except BadInputError as error:
            return condition_unmet(VALIDATION_SUCCEEDED, INVALID_USER_DATA, str(error))
        except CloudProviderError as error:
            return _failed(SCRIPT, error)
        try:
            return self._part(node_class, self._dry_run_outcome(node_class, user_data))
        except CloudProviderError as error:
            return _failed(ATTEMPT, error)

    def forget(self, node_class: str) -> None:
        """Forget what was tried out for a NodeClass."""
        for key in self._results.items():
            if key[0] == node_class:
                self._results.drop(key)
        self._refused_launches.forget(node_class)

    def _dry_run_outcome(self, node_class: ECSNodeClass, user_data: str) -> DryRunOutcome | None:
        if self._dry_runs is None or self._launch is None:
            return None
        key = (node_class.name, _digest(node_class))
        cached_outcome = self._results.get(key)
        if cached_outcome is not None:
            return cached_outcome
        try:
            request = self._launch.request(node_class, user_data)
        except LaunchFailedError as error:
            return DryRunOutcome(
                verdict=DryRunVerdict.REFUSED, reason=NO_INSTANCE_TYPE, message=str(error)
            )
        outcome = self._dry_runs.run(request)
        if outcome.verdict is DryRunVerdict.PASSED:
            self._results.put(key, outcome)
        return outcome

    def _part(self, node_class: ECSNodeClass, outcome: DryRunOutcome | None) -> ResolutionPart:
        if outcome is None or outcome.verdict is DryRunVerdict.PASSED:
            refused = self._refused_launches.of(node_class.name)
            if refused is not None:
                return condition_unmet(VALIDATION_SUCCEEDED, refused.reason, refused.message)
            remark = self._remark(node_class)
            return condition_met(VALIDATION_SUCCEEDED, remark, retry_after=RECHECK_INTERVAL)
        if outcome.verdict is DryRunVerdict.RETRY:
            part = unanswered_condition(
                VALIDATION_SUCCEEDED, ATTEMPT, CloudProviderError(outcome.message)
            )
            return replace(part, retry_after=RETRY_INTERVAL)
        return condition_unmet(VALIDATION_SUCCEEDED, outcome.reason, outcome.message)

    def _remark(self, node_class: ECSNodeClass) -> str:
        """Return what is odd, though nodes can be launched."""
        spec = node_class.spec
        fields = (
            ("spec.kubeletConfiguration", spec.kubelet_configuration is not None),
            ("spec.formatDataDisk", spec.format_data_disk),
        )
        idle = [name for name, is_set in fields if is_set]
        if not self._is_custom or not idle:
            return ""
        return f"{', '.join(idle)}: in a Custom cluster only spec.userData can do so"


def _failed(attempt: str, error: CloudProviderError) -> ResolutionPart:
    if is_refusal(error):
        return refused_condition(VALIDATION_SUCCEEDED, attempt, error)
    return unanswered_condition(VALIDATION_SUCCEEDED, attempt, error)


def _unmet_dependencies(dependencies: Iterable[Condition]) -> ResolutionPart | None:
    dependencies = tuple(dependencies)
    for status in (FALSE, UNKNOWN):
        names = [condition.type for condition in dependencies if condition.status == status]
        if names:
            part = condition_unmet(
                VALIDATION_SUCCEEDED, "DependenciesNotReady", f"waiting for {', '.join(names)}"
            )
            condition = part.condition.model_copy(update={"status": status})
            return ResolutionPart(condition=condition, retry_after=RETRY_SOON)
    return None


def _digest(node_class: ECSNodeClass) -> str:
    """Return a digest of all that a dry run depends on, or may; lists count as sets.

    An annotation counts, so that users can have it tried out again at once.
    """
    status = node_class.status
    whole = {
        "spec": node_class.spec.model_dump(mode="json"),
        "annotations": node_class.metadata.annotations,
        "vSwitches": sorted(vswitch.id for vswitch in status.v_switches),
        "securityGroups": sorted(group.id for group in status.security_groups),
        "images": sorted(image.model_dump_json() for image in status.images),
    }
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
