"""Tries out launches with a NodeClass by dry runs.

A launch template is really created, since both other calls refer to it; `CreateFleet` and
`RunInstances` are sent as dry runs, which EC2 answers with an error in any case.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit.node_class.findings import PASSED, DryRunOutcome, DryRunVerdict
from karpenter_core.provider.kit.node_class.parts import UNREACHABLE_REASON
from karpenter_provider_aws.codes import (
    is_dry_run_success,
    is_instance_profile_missing,
    is_launch_template_missing,
    is_server_fault,
    is_unfulfillable,
    is_user_data_too_large,
    launch_failure,
)
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import to_tag_list
from karpenter_provider_aws.node_class.conditions import stable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from types_boto3_ec2.literals import InstanceTypeType, ResourceTypeType
    from types_boto3_ec2.type_defs import (
        CreateFleetRequestTypeDef,
        InstanceNetworkInterfaceSpecificationTypeDef,
        RunInstancesRequestTypeDef,
        TagSpecificationTypeDef,
    )

    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, Subnet
    from karpenter_provider_aws.launch.template_groups import LaunchTemplate
    from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["LaunchDryRuns", "dry_run_outcome", "fleet_dry_run", "instance_dry_run"]

INSTANCE_PROFILE_FIELD: Final = "spec.instanceProfile"

CREATE_TEMPLATE: Final = "ec2:CreateLaunchTemplate"
CREATE_FLEET: Final = "ec2:CreateFleet"
RUN_INSTANCES: Final = "ec2:RunInstances"

_DENIED_REASONS: Final = {
    CREATE_TEMPLATE: "CreateLaunchTemplateAuthCheckFailed",
    CREATE_FLEET: "CreateFleetAuthCheckFailed",
    RUN_INSTANCES: "RunInstancesAuthCheckFailed",
}
_REFUSED_REASON: Final = "DryRunRefused"
_UNMAPPED: Final = "LaunchFailed"
_LATEST: Final = "$Latest"


def fleet_dry_run(
    node_class: EC2NodeClass, template: LaunchTemplate, *, instance_type: str
) -> CreateFleetRequestTypeDef:
    """Return the fleet to try out: one instance on demand, in any subnet of the status."""
    request: CreateFleetRequestTypeDef = {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": template.name,
                    "Version": _LATEST,
                },
                "Overrides": [
                    {
                        "InstanceType": cast("InstanceTypeType", instance_type),
                        "SubnetId": subnet.id,
                    }
                    for subnet in node_class.status.subnets
                ],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "on-demand",
        },
        "OnDemandOptions": {"AllocationStrategy": "lowest-price"},
        "TagSpecifications": _tag_specifications(template.tags, "instance", "volume", "fleet"),
        "DryRun": True,
    }
    if node_class.spec.context:
        request["Context"] = node_class.spec.context
    return request


def instance_dry_run(
    node_class: EC2NodeClass, template: LaunchTemplate, subnet: Subnet, *, instance_type: str
) -> RunInstancesRequestTypeDef:
    """Return the instance to try out in one subnet, with the interfaces that the template has."""
    return {
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": template.name, "Version": _LATEST},
        "InstanceType": cast("InstanceTypeType", instance_type),
        "NetworkInterfaces": _interfaces(node_class, subnet),
        "TagSpecifications": _tag_specifications(
            template.tags, "instance", "volume", "network-interface"
        ),
        "DryRun": True,
    }


def _interfaces(
    node_class: EC2NodeClass, subnet: Subnet
) -> list[InstanceNetworkInterfaceSpecificationTypeDef]:
    return [
        {
            "NetworkCardIndex": interface.network_card_index,
            "DeviceIndex": interface.device_index,
            "InterfaceType": interface.interface_type,
            "SubnetId": subnet.id,
        }
        for interface in node_class.spec.network_interfaces
    ] or [{"DeviceIndex": 0, "SubnetId": subnet.id}]


def _tag_specifications(
    tags: Mapping[str, str], *resources: ResourceTypeType
) -> list[TagSpecificationTypeDef]:
    listed = to_tag_list(tags)
    return [{"ResourceType": resource, "Tags": listed} for resource in resources]


def dry_run_outcome(
    action: str, error: CloudProviderError | None, *, instance_profile: str
) -> DryRunOutcome:
    """Return what the answer to a call tells; None is an answer without an error.

    `instance_profile` is the one that the user names in the NodeClass, if one is named.
    """
    if error is None:
        return PASSED
    failure = refusal_behind(error)
    if failure is None:
        # Without credentials nothing was sent: no different from a refusal.
        return _denied(action, str(error)) if isinstance(error, AuthError) else _retry(error)
    code, message = failure.code, failure.message
    if is_dry_run_success(code) or is_unfulfillable(code, message):
        return PASSED  # a lack of stock is no lack of permission
    if isinstance(error, ThrottledError) or is_server_fault(failure):
        return _retry(error)
    said = launch_failure(code, message)
    if isinstance(error, AuthError):
        return _denied(action, f"{error.action}: {said.message}")
    if is_instance_profile_missing(code, message):
        if not instance_profile:  # made a moment ago, and EC2 does not know it yet
            return _retry(error)
        return DryRunOutcome(
            verdict=DryRunVerdict.REFUSED,
            reason="InstanceProfileNotFound",
            message=f'{INSTANCE_PROFILE_FIELD}: there is no instance profile "{instance_profile}"',
        )
    if is_launch_template_missing(code):
        return _retry(error)
    if is_user_data_too_large(code, message):
        text = f"spec.userData: {said.message}"
        return DryRunOutcome(
            verdict=DryRunVerdict.FAILED, reason="UserDataSizeLimitExceeded", message=text
        )
    reason = _REFUSED_REASON if said.reason == _UNMAPPED else said.reason
    text = f"{action} would be refused: {code}: {message}"
    return DryRunOutcome(verdict=DryRunVerdict.REFUSED, reason=reason, message=text)


def _denied(action: str, message: str) -> DryRunOutcome:
    return DryRunOutcome(
        verdict=DryRunVerdict.FAILED, reason=_DENIED_REASONS[action], message=stable_text(message)
    )


def _retry(error: CloudProviderError) -> DryRunOutcome:
    return DryRunOutcome(
        verdict=DryRunVerdict.RETRY, reason=UNREACHABLE_REASON, message=stable_text(str(error))
    )


@final
class LaunchDryRuns:
    """Tries launches out; callable from any thread."""

    def __init__(self, clients: CloudClients, templates: ClusterLaunchTemplates) -> None:
        self._clients: Final = clients
        self._templates: Final = templates

    def run(self, node_class: EC2NodeClass, template: LaunchTemplate) -> DryRunOutcome:
        """Return what the first call tells that does not pass, or that all pass.

        The first type of the template stands for all.
        """
        try:
            return self._templates.run([template], lambda: self._launches(node_class, template))
        except CloudProviderError as error:
            return dry_run_outcome(
                CREATE_TEMPLATE, error, instance_profile=node_class.spec.instance_profile
            )

    def _launches(self, node_class: EC2NodeClass, template: LaunchTemplate) -> DryRunOutcome:
        ec2 = self._clients.ec2
        profile = node_class.spec.instance_profile
        name = template.instance_types[0].name
        fleet = fleet_dry_run(node_class, template, instance_type=name)
        error = _answer(CREATE_FLEET, partial(ec2.create_fleet, **fleet))
        outcome = dry_run_outcome(CREATE_FLEET, error, instance_profile=profile)
        if outcome.verdict is not DryRunVerdict.PASSED:
            return outcome
        # Policies do not differ by subnet: the first one's answer counts, unless any passes. EC2 would
        # throttle the others too.
        first: DryRunOutcome | None = None
        for subnet in node_class.status.subnets:
            instance = instance_dry_run(node_class, template, subnet, instance_type=name)
            error = _answer(RUN_INSTANCES, partial(ec2.run_instances, **instance))
            outcome = dry_run_outcome(RUN_INSTANCES, error, instance_profile=profile)
            if outcome.verdict is DryRunVerdict.PASSED or isinstance(error, ThrottledError):
                return outcome
            first = first or outcome
        return first or PASSED


def _answer(action: str, call: Callable[[], object]) -> CloudProviderError | None:
    """Return the error that a call is answered with.

    Raises:
        CloudProviderError: the launch template is not there; its owner makes it anew.
    """
    try:
        with core_errors_of(action):
            call()
    except CloudProviderError as error:
        failure = refusal_behind(error)
        if failure is not None and is_launch_template_missing(failure.code):
            raise
        return error
    return None
