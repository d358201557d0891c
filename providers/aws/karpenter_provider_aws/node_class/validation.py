"""Computes the condition `ValidationSucceeded` of a NodeClass.

Checks without calls come first, in the order in which users correct them; the result of a dry run
is remembered for half an hour, unless NodeClass or findings change.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.conditions import FALSE, UNKNOWN
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClassRef
from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.discovery.call_errors import is_refusal
from karpenter_provider_aws.instance_tags import owned_tags
from karpenter_provider_aws.kubelet.checks import INVALID
from karpenter_provider_aws.launch.template_groups import TemplateRequest, templates_for
from karpenter_provider_aws.node_class.conditions import (
    RETRY_SOON,
    VALIDATION_SUCCEEDED,
    ResolutionPart,
    condition_met,
    condition_unmet,
    refused_condition,
    stable_text,
    unanswered_condition,
)
from karpenter_provider_aws.node_class.dry_runs import DryRunOutcome, DryRunVerdict
from karpenter_provider_aws.node_class.static_checks import INVALID_USER_DATA, NodeClassFinding
from karpenter_provider_aws.node_class.trial_types import trial_tenancy, trial_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.kubelet.sizing import KubeletSizing
    from karpenter_provider_aws.launch.template_groups import ClusterDetails, LaunchTemplate
    from karpenter_provider_aws.node_class.dry_runs import LaunchDryRuns
    from karpenter_provider_aws.node_class.static_checks import Check, ConditionFinding

__all__ = ["NodeClassValidator", "TrialCatalogue"]

NO_INSTANCE_TYPE: Final = "NoInstanceType"
RESULT_TTL: Final = timedelta(minutes=30)
RECHECK_INTERVAL: Final = timedelta(minutes=10)
RETRY_INTERVAL: Final = timedelta(seconds=10)
"""After what is nothing about the NodeClass: EC2 does not yet know a profile just made, say."""
ATTEMPT: Final = "launches could not be tested by dry runs"


class TrialCatalogue(Protocol):
    """The methods of the catalogue that validation uses."""

    def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        """Return every type; CloudProviderError when none is known yet."""
        ...

    def sizing_of(self, node_class: EC2NodeClass) -> Callable[[str], KubeletSizing]:
        """Return what tells, by name of a type, what the kubelet of its nodes is told."""
        ...

    def node_pools(self, node_class: EC2NodeClass) -> Sequence[NodePool]:
        """Return the NodePools that are known to use the NodeClass, by name."""
        ...


@final
class NodeClassValidator:
    """Validates NodeClasses; callable from any thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        network: ServiceNetwork,
        checks: Sequence[Check],
        late_checks: Sequence[Check],
        catalogue: TrialCatalogue,
        cluster: Callable[[], ClusterDetails],
        find_group: Callable[[EC2NodeClass], DescribedPlacementGroup | None],
        dry_runs: LaunchDryRuns | None,
    ) -> None:
        """Take what is asked; `checks` come before what discovery must find, `late_checks` after.

        A check that cannot be made yet raises CloudProviderError. Without `dry_runs` nothing is
        tried out.
        """
        self._network: Final = network
        self._checks: Final = tuple(checks)
        self._late_checks: Final = tuple(late_checks)
        self._catalogue: Final = catalogue
        self._cluster: Final = cluster
        self._find_group: Final = find_group
        self._dry_runs: Final = dry_runs
        self._results: Final[TtlCache[tuple[str, str], DryRunOutcome]] = TtlCache(clock, RESULT_TTL)

    def validate(
        self, node_class: EC2NodeClass, dependencies: Iterable[Condition]
    ) -> ResolutionPart:
        """Return the condition; `node_class` has the status that was just found.

        `dependencies` are the conditions of what a launch needs.
        """
        try:
            problem = self._network_finding(node_class) or _first(self._checks, node_class)
            if problem is not None:
                return condition_unmet(VALIDATION_SUCCEEDED, problem.reason, problem.message)
            waiting = _unmet_dependencies(dependencies)
            if waiting is not None:
                return waiting
            problem = _first(self._late_checks, node_class)
            if problem is not None:
                return condition_unmet(VALIDATION_SUCCEEDED, problem.reason, problem.message)
            if self._dry_runs is None:
                return condition_met(VALIDATION_SUCCEEDED, retry_after=RECHECK_INTERVAL)
            return _part(self._dry_run_outcome(node_class, self._dry_runs))
        except CloudProviderError as error:
            if is_refusal(error):
                return refused_condition(VALIDATION_SUCCEEDED, ATTEMPT, error)
            return unanswered_condition(VALIDATION_SUCCEEDED, ATTEMPT, error)

    def forget(self, node_class: str) -> None:
        """Forget what was tried out for a NodeClass."""
        for key in self._results.items():
            if key[0] == node_class:
                self._results.drop(key)

    def _network_finding(self, node_class: EC2NodeClass) -> NodeClassFinding | None:
        """Have the CIDR of services known where nodes must be told it."""
        if node_class.ami_family is not AmiFamily.AL2023:
            return None
        try:
            cidr = self._network.resolve()
        except CloudProviderError as error:
            if not is_refusal(error):
                raise
            said = stable_text(str(error))
        else:
            if cidr:
                return None
            said = "eks:DescribeCluster tells none"
        message = f"the CIDR of the cluster's services, which AL2023 needs, is not known: {said}"
        return NodeClassFinding(reason="ClusterCIDRResolutionFailed", message=message)

    def _dry_run_outcome(self, node_class: EC2NodeClass, dry_runs: LaunchDryRuns) -> DryRunOutcome:
        key = (node_class.name, _digest(node_class))
        cached_outcome = self._results.get(key)
        if cached_outcome is not None:
            return cached_outcome
        try:
            types = self._catalogue.instance_types(node_class)
        except BadInputError as error:
            return DryRunOutcome(verdict=DryRunVerdict.REFUSED, reason=INVALID, message=str(error))
        try:
            template = self._template(node_class, types)
        except BadInputError as error:
            return DryRunOutcome(
                verdict=DryRunVerdict.REFUSED, reason=INVALID_USER_DATA, message=str(error)
            )
        except LaunchFailedError as error:
            return DryRunOutcome(
                verdict=DryRunVerdict.REFUSED, reason=NO_INSTANCE_TYPE, message=str(error)
            )
        outcome = dry_runs.run(node_class, template)
        if outcome.verdict in {DryRunVerdict.PASSED, DryRunVerdict.FAILED}:
            self._results.put(key, outcome)
        return outcome

    def _template(self, node_class: EC2NodeClass, types: Sequence[InstanceType]) -> LaunchTemplate:
        """Return the launch template of a usual launch, of one instance type.

        Raises:
            BadInputError: the user's text cannot be merged with ours.
            LaunchFailedError: no instance type boots any of the images.
            CloudProviderError: the catalogue is not known yet.
        """
        pools = self._catalogue.node_pools(node_class)
        if not types:
            raise CloudProviderError("no instance types are known yet")
        chosen = trial_type(types, pools, node_class)
        if chosen is None:
            ids = ", ".join(ami.id for ami in node_class.status.amis)
            raise LaunchFailedError(
                f"spec.amiSelectorTerms: no instance type boots any of the images {ids}"
            )
        cluster = self._cluster()
        group = self._find_group(node_class)
        request = TemplateRequest(
            node_class=node_class,
            node_claim=_claim(node_class),
            instance_types=(chosen,),
            capacity_type="on-demand",
            tags=owned_tags(
                node_class.spec.tags,
                cluster=cluster.name,
                node_class=node_class.name,
                # Policies ask for this tag, of whatever value.
                node_pool=pools[0].name if pools else node_class.name,
            ),
            tenancy=trial_tenancy(pools),
            placement_group_id=group.id if group else "",
        )
        (template,) = templates_for(request, cluster, self._catalogue.sizing_of(node_class))
        return template


def _first(checks: Iterable[Check], node_class: EC2NodeClass) -> ConditionFinding | None:
    problems = (check(node_class) for check in checks)
    return next((problem for problem in problems if problem is not None), None)


def _unmet_dependencies(dependencies: Iterable[Condition]) -> ResolutionPart | None:
    dependencies = tuple(dependencies)
    for status in (FALSE, UNKNOWN):
        names = [c.type for c in dependencies if c.status == status]
        if names:
            part = condition_unmet(
                VALIDATION_SUCCEEDED, "DependenciesNotReady", f"waiting for {', '.join(names)}"
            )
            condition = part.condition.model_copy(update={"status": status})
            return ResolutionPart(condition=condition, retry_after=RETRY_SOON)
    return None


def _part(outcome: DryRunOutcome) -> ResolutionPart:
    if outcome.verdict is DryRunVerdict.PASSED:
        return condition_met(VALIDATION_SUCCEEDED, retry_after=RECHECK_INTERVAL)
    if outcome.verdict is DryRunVerdict.RETRY:
        part = unanswered_condition(
            VALIDATION_SUCCEEDED, ATTEMPT, CloudProviderError(outcome.message)
        )
        return replace(part, retry_after=RETRY_INTERVAL)
    return condition_unmet(VALIDATION_SUCCEEDED, outcome.reason, outcome.message)


def _claim(node_class: EC2NodeClass) -> NodeClaim:
    """Return a claim without wishes: it is only there for what templates say of claims."""
    resource = node_class.resource
    ref = NodeClassRef(group=resource.group, kind=resource.kind, name=node_class.name)
    return NodeClaim(spec=NodeClaimSpec(node_class_ref=ref))


def _digest(node_class: EC2NodeClass) -> str:
    """Return a digest of all that dry runs depend on, or may; lists count as sets.

    An annotation counts, so that users can have it tried out again at once.
    """
    status = node_class.status
    whole = {
        "spec": node_class.spec.model_dump(mode="json"),
        "annotations": node_class.metadata.annotations,
        "subnets": sorted(subnet.id for subnet in status.subnets),
        "securityGroups": sorted(group.id for group in status.security_groups),
        "amis": sorted(ami.model_dump_json() for ami in status.amis),
        "instanceProfile": status.instance_profile,
    }
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
