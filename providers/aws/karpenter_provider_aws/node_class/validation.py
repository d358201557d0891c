"""The condition `ValidationSucceeded`: whether nodes of a NodeClass could be launched at all.

What needs no call comes first, in the order in which users mend it; what was tried out is
remembered for half an hour, unless NodeClass or findings change.
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
from karpenter_provider_aws.discovery.calls import is_refusal
from karpenter_provider_aws.instance_tags import owned_tags
from karpenter_provider_aws.kubelet.checks import INVALID
from karpenter_provider_aws.launch.template_groups import TemplateRequest, templates_for
from karpenter_provider_aws.node_class.dry_runs import Outcome, Verdict
from karpenter_provider_aws.node_class.findings import (
    SOON,
    VALIDATION_SUCCEEDED,
    Part,
    met,
    refused,
    stable_text,
    unasked,
    unmet,
)
from karpenter_provider_aws.node_class.static_checks import INVALID_USER_DATA, Problem
from karpenter_provider_aws.node_class.trial_types import trial_tenancy, trial_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
    from karpenter_provider_aws.discovery.placement_groups import PlacementGroup
    from karpenter_provider_aws.kubelet.numbers import KubeletNumbers
    from karpenter_provider_aws.launch.template_groups import ClusterDetails, LaunchTemplate
    from karpenter_provider_aws.node_class.dry_runs import DryRuns
    from karpenter_provider_aws.node_class.static_checks import Check, Complaint

__all__ = ["TrialCatalogue", "Validator"]

NO_INSTANCE_TYPE: Final = "NoInstanceType"
RESULT_TTL: Final = timedelta(minutes=30)
NEXT_LOOK: Final = timedelta(minutes=10)
TRY_AGAIN: Final = timedelta(seconds=10)
"""After what is nothing about the NodeClass: EC2 does not yet know a profile just made, say."""
ATTEMPT: Final = "launches could not be tried out"


class TrialCatalogue(Protocol):
    """What validation asks of the catalogue and its NodePools."""

    def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        """Return every type; CloudProviderError when none is known yet."""
        ...

    def numbers_of(self, node_class: EC2NodeClass) -> Callable[[str], KubeletNumbers]:
        """Return what tells, by name of a type, what the kubelet of its nodes is told."""
        ...

    def node_pools(self, node_class: EC2NodeClass) -> Sequence[NodePool]:
        """Return the NodePools that are known to use the NodeClass, by name."""
        ...


@final
class Validator:
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
        find_group: Callable[[EC2NodeClass], PlacementGroup | None],
        dry_runs: DryRuns | None,
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
        self._results: Final[TtlCache[tuple[str, str], Outcome]] = TtlCache(clock, RESULT_TTL)

    def validate(self, node_class: EC2NodeClass, dependencies: Iterable[Condition]) -> Part:
        """Return the condition; `node_class` has the status that was just found.

        `dependencies` are the conditions of what a launch needs.
        """
        try:
            problem = self._network_problem(node_class) or _first(self._checks, node_class)
            if problem is not None:
                return unmet(VALIDATION_SUCCEEDED, problem.reason, problem.message)
            waiting = _waiting(dependencies)
            if waiting is not None:
                return waiting
            problem = _first(self._late_checks, node_class)
            if problem is not None:
                return unmet(VALIDATION_SUCCEEDED, problem.reason, problem.message)
            if self._dry_runs is None:
                return met(VALIDATION_SUCCEEDED, retry_after=NEXT_LOOK)
            return _part(self._tried(node_class, self._dry_runs))
        except CloudProviderError as error:
            if is_refusal(error):
                return refused(VALIDATION_SUCCEEDED, ATTEMPT, error)
            return unasked(VALIDATION_SUCCEEDED, ATTEMPT, error)

    def forget(self, node_class: str) -> None:
        """Forget what was tried out for a NodeClass."""
        for key in self._results.items():
            if key[0] == node_class:
                self._results.drop(key)

    def _network_problem(self, node_class: EC2NodeClass) -> Problem | None:
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
        return Problem(reason="ClusterCIDRResolutionFailed", message=message)

    def _tried(self, node_class: EC2NodeClass, dry_runs: DryRuns) -> Outcome:
        key = (node_class.name, _digest(node_class))
        known = self._results.get(key)
        if known is not None:
            return known
        try:
            types = self._catalogue.instance_types(node_class)
        except BadInputError as error:
            return Outcome(verdict=Verdict.REFUSED, reason=INVALID, message=str(error))
        try:
            template = self._template(node_class, types)
        except BadInputError as error:
            return Outcome(verdict=Verdict.REFUSED, reason=INVALID_USER_DATA, message=str(error))
        except LaunchFailedError as error:
            return Outcome(verdict=Verdict.REFUSED, reason=NO_INSTANCE_TYPE, message=str(error))
        outcome = dry_runs.run(node_class, template)
        if outcome.verdict in {Verdict.PASSED, Verdict.FAILED}:
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
        (template,) = templates_for(request, cluster, self._catalogue.numbers_of(node_class))
        return template


def _first(checks: Iterable[Check], node_class: EC2NodeClass) -> Complaint | None:
    found = (check(node_class) for check in checks)
    return next((problem for problem in found if problem is not None), None)


def _waiting(dependencies: Iterable[Condition]) -> Part | None:
    dependencies = tuple(dependencies)
    for status in (FALSE, UNKNOWN):
        names = [c.type for c in dependencies if c.status == status]
        if names:
            part = unmet(
                VALIDATION_SUCCEEDED, "DependenciesNotReady", f"waiting for {', '.join(names)}"
            )
            condition = part.condition.model_copy(update={"status": status})
            return Part(condition=condition, retry_after=SOON)
    return None


def _part(outcome: Outcome) -> Part:
    if outcome.verdict is Verdict.PASSED:
        return met(VALIDATION_SUCCEEDED, retry_after=NEXT_LOOK)
    if outcome.verdict is Verdict.RETRY:
        part = unasked(VALIDATION_SUCCEEDED, ATTEMPT, CloudProviderError(outcome.message))
        return replace(part, retry_after=TRY_AGAIN)
    return unmet(VALIDATION_SUCCEEDED, outcome.reason, outcome.message)


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
