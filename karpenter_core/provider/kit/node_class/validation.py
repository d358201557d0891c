"""Computes the condition `ValidationSucceeded` of a NodeClass.

In this order: checks of the spec, the parts that a launch needs, checks that need these parts, a dry
run of a launch, and refusals of real launches. The first problem becomes the condition. The outcome
of a dry run is remembered until the NodeClass changes, for half an hour at most.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, final

from karpenter_core.api.conditions import FALSE, UNKNOWN
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.findings import DryRunVerdict
from karpenter_core.provider.kit.node_class.hashing import significant_value
from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    ResolutionPart,
    condition_met,
    condition_unknown,
    condition_unmet,
)
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from karpenter_core.api.conditions import Condition
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.node_class.call_errors import CallErrors
    from karpenter_core.provider.kit.node_class.findings import ConditionFinding, DryRunOutcome
    from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches

__all__ = ["VALIDATION_SUCCEEDED", "NodeClassCheck", "NodeClassValidator"]

VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"
RESULT_TTL: Final = timedelta(minutes=30)
RECHECK_INTERVAL: Final = timedelta(minutes=10)
RETRY_INTERVAL: Final = timedelta(seconds=10)
"""After an answer that says nothing about the NodeClass."""
ATTEMPT: Final = "launches could not be tested by dry runs"

_NOT_LAUNCHED: Final = {"conditions", "capacity_reservations"}
"""Fields of the status that no dry run depends on."""

C = TypeVar("C", bound=NodeClass)


NodeClassCheck: TypeAlias = "Callable[[C], ConditionFinding | ResolutionPart | None]"
"""Returns the first mistake in a NodeClass, or the whole condition where reason and message are not
enough, or None. Raises CloudProviderError if it cannot be made now."""


def _no_remark(_node_class: NodeClass) -> str:
    return ""


@final
class NodeClassValidator(Generic[C]):
    """Validates NodeClasses; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        errors: CallErrors,
        *,
        checks: Sequence[NodeClassCheck[C]] = (),
        late_checks: Sequence[NodeClassCheck[C]] = (),
        dry_run: Callable[[C], DryRunOutcome] | None = None,
        remembered: Collection[DryRunVerdict] = frozenset({DryRunVerdict.PASSED}),
        refused_launches: RefusedLaunches | None = None,
        remark: Callable[[C], str] = _no_remark,
        recheck_after: timedelta = RECHECK_INTERVAL,
    ) -> None:
        """Take `checks`, which need the spec alone, and `late_checks`, which need resolved parts.

        `dry_run` needs them too; it raises CloudProviderError if it cannot be made now. Outcomes with
        a verdict in `remembered` are not tried out again. `remark` is the message of a condition that is
        True, which is validated again `recheck_after`.
        """
        self._errors: Final = errors
        self._checks: Final = tuple(checks)
        self._late_checks: Final = tuple(late_checks)
        self._dry_run: Final = dry_run
        self._remembered: Final = frozenset(remembered)
        self._refused_launches: Final = refused_launches
        self._remark: Final = remark
        self._recheck_after: Final = recheck_after
        self._outcomes: Final[TtlCache[tuple[str, str], DryRunOutcome]]
        self._outcomes = TtlCache(clock, RESULT_TTL)

    def validate(self, node_class: C, dependencies: Iterable[Condition]) -> ResolutionPart:
        """Return the condition; `node_class` has the status that was just resolved.

        `dependencies` are the conditions of the parts that a launch needs.
        """
        try:
            return (
                _first_problem(self._checks, node_class)
                or self._waiting_part(dependencies)
                or _first_problem(self._late_checks, node_class)
                or self._launch_problem(node_class)
                or condition_met(
                    VALIDATION_SUCCEEDED,
                    self._remark(node_class),
                    retry_after=self._recheck_after,
                )
            )
        except CloudProviderError as error:
            return self._errors.failed_part(VALIDATION_SUCCEEDED, ATTEMPT, error)

    def forget(self, node_class: C) -> None:
        """Forget the dry runs and refused launches of a NodeClass."""
        for key in self._outcomes.items():
            if key[0] == node_class.name:
                self._outcomes.drop(key)
        if self._refused_launches is not None:
            self._refused_launches.forget(node_class.name)

    def _waiting_part(self, dependencies: Iterable[Condition]) -> ResolutionPart | None:
        if not self._late_checks and self._dry_run is None:
            return None  # nothing needs the parts
        return _waiting_part(tuple(dependencies))

    def _launch_problem(self, node_class: C) -> ResolutionPart | None:
        if self._dry_run is not None:
            outcome = self._dry_run_outcome(node_class, self._dry_run)
            if outcome.verdict is DryRunVerdict.RETRY:
                message = f"{ATTEMPT}: {self._errors.stable_text(outcome.message)}"
                part = condition_unknown(VALIDATION_SUCCEEDED, message)
                return replace(part, retry_after=RETRY_INTERVAL)
            if outcome.verdict is not DryRunVerdict.PASSED:
                return _unmet(outcome)
        if self._refused_launches is None:
            return None
        refusal = self._refused_launches.of(node_class.name)
        return None if refusal is None else _unmet(refusal)

    def _dry_run_outcome(
        self, node_class: C, dry_run: Callable[[C], DryRunOutcome]
    ) -> DryRunOutcome:
        key = (node_class.name, _launch_digest(node_class))
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = dry_run(node_class)
            if outcome.verdict in self._remembered:
                self._outcomes.put(key, outcome)
        return outcome


def _first_problem(checks: Iterable[NodeClassCheck[C]], node_class: C) -> ResolutionPart | None:
    for check in checks:
        problem = check(node_class)
        if problem is not None:
            return problem if isinstance(problem, ResolutionPart) else _unmet(problem)
    return None


def _unmet(problem: ConditionFinding) -> ResolutionPart:
    return condition_unmet(VALIDATION_SUCCEEDED, problem.reason, problem.message)


def _waiting_part(dependencies: Sequence[Condition]) -> ResolutionPart | None:
    for status in (FALSE, UNKNOWN):
        names = [condition.type for condition in dependencies if condition.status == status]
        if names:
            part = condition_unmet(
                VALIDATION_SUCCEEDED, "DependenciesNotReady", f"waiting for {', '.join(names)}"
            )
            condition = part.condition.model_copy(update={"status": status})
            return ResolutionPart(condition=condition, retry_after=RETRY_SOON)
    return None


def _launch_digest(node_class: NodeClass) -> str:
    """Return a digest of all that a dry run may depend on; the order of lists does not count.

    Annotations count, so that users can have a launch tried out again at once.
    """
    whole = {
        "spec": node_class.model_dump(mode="json", include={"spec"}),
        "annotations": node_class.metadata.annotations,
        "status": significant_value(
            node_class.status.model_dump(mode="json", exclude=_NOT_LAUNCHED)
        ),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
