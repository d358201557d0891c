"""Validates EC2NodeClasses, in the last place by dry runs of a usual launch.

`karpenter_core.provider.kit.node_class.validation` has the order of checks, and remembers outcomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClassRef
from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.kit.node_class.findings import DryRunOutcome, DryRunVerdict
from karpenter_core.provider.kit.node_class.validation import NodeClassValidator
from karpenter_provider_aws.instance_tags import owned_tags
from karpenter_provider_aws.kubelet.checks import INVALID
from karpenter_provider_aws.launch.template_groups import TemplateRequest, templates_for
from karpenter_provider_aws.node_class.conditions import AWS_ERRORS
from karpenter_provider_aws.node_class.static_checks import INVALID_USER_DATA
from karpenter_provider_aws.node_class.trial_types import trial_tenancy, trial_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.kit.node_class.validation import NodeClassCheck
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.kubelet.sizing import KubeletSizing
    from karpenter_provider_aws.launch.template_groups import ClusterDetails, LaunchTemplate
    from karpenter_provider_aws.node_class.dry_runs import LaunchDryRuns

__all__ = ["LaunchTrial", "TrialCatalogue", "node_class_validator"]

NO_INSTANCE_TYPE: Final = "NoInstanceType"


class TrialCatalogue(Protocol):
    """The methods of the catalogue that validation uses."""

    def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        """Return every type; CloudProviderError when none is known yet."""
        ...

    def sizing_of(self, node_class: EC2NodeClass) -> Callable[[str], KubeletSizing]:
        """Return a function from a type's name to the sizing of its nodes' kubelet."""
        ...

    def node_pools(self, node_class: EC2NodeClass) -> Sequence[NodePool]:
        """Return the NodePools that are known to use the NodeClass, by name."""
        ...


def node_class_validator(
    clock: Clock,
    *,
    checks: Sequence[NodeClassCheck[EC2NodeClass]],
    late_checks: Sequence[NodeClassCheck[EC2NodeClass]],
    trial: LaunchTrial | None,
) -> NodeClassValidator[EC2NodeClass]:
    """Return the validator; without `trial` nothing is tried out.

    What policies forbid is remembered like success: a dry run makes a launch template.
    """
    return NodeClassValidator(
        clock,
        AWS_ERRORS,
        checks=checks,
        late_checks=late_checks,
        dry_run=None if trial is None else trial.run,
        remembered={DryRunVerdict.PASSED, DryRunVerdict.FAILED},
    )


@final
class LaunchTrial:
    """Tries out a usual launch; callable from any thread."""

    def __init__(
        self,
        dry_runs: LaunchDryRuns,
        catalogue: TrialCatalogue,
        *,
        cluster: Callable[[], ClusterDetails],
        find_group: Callable[[EC2NodeClass], DescribedPlacementGroup | None],
    ) -> None:
        self._dry_runs: Final = dry_runs
        self._catalogue: Final = catalogue
        self._cluster: Final = cluster
        self._find_group: Final = find_group

    def run(self, node_class: EC2NodeClass) -> DryRunOutcome:
        """Return the outcome for a NodeClass with its resolved status.

        Raises:
            CloudProviderError: no launch can be tried out now.
        """
        try:
            types = self._catalogue.instance_types(node_class)
        except BadInputError as error:
            return _refused(INVALID, error)
        try:
            template = self._template(node_class, types)
        except BadInputError as error:
            return _refused(INVALID_USER_DATA, error)
        except LaunchFailedError as error:
            return _refused(NO_INSTANCE_TYPE, error)
        return self._dry_runs.run(node_class, template)

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
        (template,) = templates_for(
            request,
            cluster,
            self._catalogue.sizing_of(node_class),
            lambda _: (),  # the claim asks for no EFA
        )
        return template


def _refused(reason: str, error: Exception) -> DryRunOutcome:
    return DryRunOutcome(verdict=DryRunVerdict.REFUSED, reason=reason, message=str(error))


def _claim(node_class: EC2NodeClass) -> NodeClaim:
    """Return a claim without wishes: it is only there for what templates say of claims."""
    resource = node_class.resource
    ref = NodeClassRef(group=resource.group, kind=resource.kind, name=node_class.name)
    return NodeClaim(spec=NodeClaimSpec(node_class_ref=ref))
