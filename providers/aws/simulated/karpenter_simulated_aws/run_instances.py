"""Handles RunInstances: dry runs, and instances outside of fleets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.tokens import ClientTokens
from karpenter_simulated_aws.plans import InstancePlan
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import check_tags, check_token, tags_for
from karpenter_simulated_aws.server import dry_run_success
from karpenter_simulated_aws.templates import check_user_data
from karpenter_simulated_aws.tokens import TOKEN_ERRORS

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import (
        RequestLaunchTemplateDataTypeDef,
        RunInstancesRequestTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.instance_calls import InstanceCalls
    from karpenter_simulated_aws.networks import Networks
    from karpenter_simulated_aws.plan_launcher import PlanLauncher
    from karpenter_simulated_aws.plans import InstancePlanChecks
    from karpenter_simulated_aws.selection import TagSpecification
    from karpenter_simulated_aws.templates import LaunchTemplates

__all__ = ["RunInstancesCalls"]


@final
class RunInstancesCalls:
    """Launches without a fleet: one plan, all or nothing."""

    def __init__(
        self,
        account: Account,
        *,
        checks: InstancePlanChecks,
        launcher: PlanLauncher,
        templates: LaunchTemplates,
        networks: Networks,
        calls: InstanceCalls,
    ) -> None:
        self._account: Final = account
        self._checks: Final = checks
        self._launcher: Final = launcher
        self._templates: Final = templates
        self._networks: Final = networks
        self._calls: Final = calls
        self._tokens: Final = ClientTokens[Sequence[str]](account.clock, TOKEN_ERRORS)

    def clear(self) -> None:
        """Forget the tokens of earlier calls."""
        self._tokens.clear()

    def run(self, request: RunInstancesRequestTypeDef) -> Mapping[str, object]:
        """Answer RunInstances."""
        token = request.get("ClientToken", "")
        check_token(token)
        if request.get("DryRun"):
            self._launch(request, token)
        ids = self._tokens.once(
            token, {**request, "ClientToken": ""}, lambda: self._launch(request, token)
        )
        return self._reservation(ids)

    def _launch(self, request: RunInstancesRequestTypeDef, token: str) -> Sequence[str]:
        plan, template_tags = self._plan(request)
        check_user_data(plan.data.get("UserData"))
        if refusal := self._checks.refusal(plan):
            raise refusal
        own = cast("Sequence[TagSpecification]", request.get("TagSpecifications", ()))
        from_template = cast("Sequence[TagSpecification]", plan.data.get("TagSpecifications", ()))
        check_tags(tags_for("instance", from_template, own))
        if request.get("DryRun"):
            raise dry_run_success()
        had, error = self._launcher.capacity_left(plan, request["MaxCount"])
        if had < request["MinCount"]:
            raise error or AwsError("InsufficientInstanceCapacity", "There is no capacity.")
        made = self._launcher.launch(
            plan,
            had,
            launch_id=self._account.ids.new("r"),
            tags={**tags_for("instance", from_template, own), **template_tags},
            volume_tags=tags_for("volume", from_template, own),
            interface_tags=tags_for("network-interface", from_template, own),
            client_token=token,
        )
        return [instance.id for instance in made]

    def _reservation(self, ids: Sequence[str]) -> Mapping[str, object]:
        found = cast(
            "Sequence[Mapping[str, object]]",
            self._calls.describe({"InstanceIds": ids})["Reservations"],
        )
        return found[0]

    def _plan(self, request: RunInstancesRequestTypeDef) -> tuple[InstancePlan, Mapping[str, str]]:
        data: dict[str, object] = {}
        tags: dict[str, str] = {}
        if wanted := request.get("LaunchTemplate"):
            template = self._templates.find(
                template_id=wanted.get("LaunchTemplateId", ""),
                name=wanted.get("LaunchTemplateName", ""),
            )
            number, from_template = template.version(wanted.get("Version"))
            data.update(from_template)
            tags = {
                "aws:ec2launchtemplate:id": template.id,
                "aws:ec2launchtemplate:version": str(number),
            }
        data.update({k: v for k, v in request.items() if k not in _OF_THE_CALL})
        merged = cast("RequestLaunchTemplateDataTypeDef", data)
        interface = (merged.get("NetworkInterfaces") or [{}])[0]
        market = str(merged.get("InstanceMarketOptions", {}).get("MarketType", ""))
        subnet_id = request.get("SubnetId") or interface.get("SubnetId", "") or self._default()
        plan = InstancePlan(
            data=merged,
            instance_type=merged.get("InstanceType", "m1.small"),
            image_id=merged.get("ImageId", ""),
            subnet_id=subnet_id,
            zone=request.get("Placement", {}).get("AvailabilityZone", ""),
            spot=market == "spot",
            market="" if market in {"spot", "on-demand"} else market,
        )
        return plan, tags

    def _default(self) -> str:
        subnets = sorted(
            (each for each in self._networks.subnets().values() if each.default),
            key=lambda subnet: subnet.zone,
        )
        if not subnets:
            raise AwsError("MissingInput", "No subnets found for the default VPC.")
        return subnets[0].id


_OF_THE_CALL: Final = frozenset(
    {
        "ClientToken",
        "DryRun",
        "LaunchTemplate",
        "MaxCount",
        "MinCount",
        "SubnetId",
        "TagSpecifications",
    }
)
