"""Handles CreateFleet of type `instant`.

A fleet tries many pool choices, takes the cheapest available ones and reports errors for the rest.
It may take longer than its caller waits (`CloudBehaviour.fleet_seconds`): the connection breaks,
the instances run, and a call with the same token is refused until then. EC2 documents no code for
that, only that a resource which changes its state may be the reason of a 400; `IncorrectState` is
its code for such a resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.launch_calls import LaunchCalls
from karpenter_core.provider.kit.simulated.pools import InstancePool, PoolFaults
from karpenter_core.provider.kit.simulated.tokens import ClientTokens
from karpenter_simulated_aws.capacity import SOLD_OUT
from karpenter_simulated_aws.plans import NOT_IN_ZONE
from karpenter_simulated_aws.pool_choices import choices_of
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import (
    check_tags,
    check_token,
    tag_list,
    tags_for,
)
from karpenter_simulated_aws.server import dry_run_success
from karpenter_simulated_aws.tokens import TOKEN_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import (
        CreateFleetRequestTypeDef,
        DeleteFleetsRequestTypeDef,
        DescribeFleetsRequestTypeDef,
    )

    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.behaviour import CloudBehaviour
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.networks import Networks
    from karpenter_simulated_aws.plan_launcher import PlanLauncher
    from karpenter_simulated_aws.plans import InstancePlanChecks
    from karpenter_simulated_aws.pool_choices import PoolChoice
    from karpenter_simulated_aws.prices import Prices
    from karpenter_simulated_aws.selection import TagSpecification
    from karpenter_simulated_aws.templates import LaunchTemplates

__all__ = ["Fleet", "Fleets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet that was made."""

    id: str
    created_at: datetime
    tags: Mapping[str, str]
    context: str
    answer: Mapping[str, object]


@dataclass(slots=True, kw_only=True)
class _FleetOutcome:
    instances: list[Mapping[str, object]] = field(default_factory=list["Mapping[str, object]"])
    errors: list[Mapping[str, object]] = field(default_factory=list["Mapping[str, object]"])
    sold_out: list[InstancePool] = field(default_factory=list["InstancePool"])
    bought: Counter[InstancePool] = field(default_factory=Counter["InstancePool"])


@final
class Fleets:
    """The fleets of an account."""

    def __init__(
        self,
        account: Account,
        behaviour: CloudBehaviour,
        *,
        checks: InstancePlanChecks,
        launcher: PlanLauncher,
        templates: LaunchTemplates,
        networks: Networks,
        prices: Prices,
        instances: Instances,
    ) -> None:
        self._account: Final = account
        self._checks: Final = checks
        self._launcher: Final = launcher
        self._templates: Final = templates
        self._networks: Final = networks
        self._prices: Final = prices
        self._instances: Final = instances
        self._fleets: dict[str, Fleet] = {}
        self._tokens: Final = ClientTokens[Mapping[str, object]](
            account.clock, TOKEN_ERRORS, working_seconds=lambda: behaviour.fleet_seconds
        )
        self.refusals: Final = PoolFaults()
        """Errors that overrides of a pool get in the `Errors` of fleets."""
        self.launches: Final = LaunchCalls()

    @property
    def all(self) -> Sequence[Fleet]:
        """Every fleet, in the order of creation."""
        return list(self._fleets.values())

    def clear(self) -> None:
        """Forget all fleets."""
        self._fleets.clear()
        self._tokens.clear()
        self.launches.clear()

    def create(self, request: CreateFleetRequestTypeDef) -> Mapping[str, object]:
        """Answer CreateFleet; the same token with the same parameters gets the same answer.

        Raises:
            AwsError: it is refused.
            NoAnswerError: it is carried out, and takes longer than its caller waits.
        """
        if request.get("Type", "maintain") != "instant":
            raise AwsError(
                "InvalidParameterValue", "Only fleets of the type 'instant' are simulated."
            )
        token = request.get("ClientToken", "")
        check_token(token)
        if request.get("DryRun"):
            return self._create(request)
        return self._tokens.once(
            token, {**request, "ClientToken": ""}, lambda: self._create(request)
        )

    def _create(self, request: CreateFleetRequestTypeDef) -> Mapping[str, object]:
        choices = choices_of(
            request,
            templates=self._templates,
            subnets=self._networks.subnets(),
            prices=self._prices,
        )
        specifications = cast("Sequence[TagSpecification]", request.get("TagSpecifications", ()))
        check_tags(tags_for("instance", specifications))
        if request.get("DryRun"):
            raise dry_run_success()
        fleet_id = "fleet-" + self._account.ids.uuid()
        answer = self._launched(request, choices, fleet_id)
        self._fleets[fleet_id] = Fleet(
            id=fleet_id,
            created_at=self._account.clock(),
            tags=tags_for("fleet", specifications),
            context=request.get("Context", ""),
            answer=answer,
        )
        return answer

    def _launched(
        self,
        request: CreateFleetRequestTypeDef,
        choices: Sequence[PoolChoice],
        fleet_id: str,
    ) -> Mapping[str, object]:
        wanted = request["TargetCapacitySpecification"]["TotalTargetCapacity"]
        launch_id = self._account.ids.new("r")
        outcome = _FleetOutcome()
        for choice in choices:
            if wanted == 0:
                break
            had, error = self._tried(choice, wanted)
            if had:
                self._launch(request, choice, had, fleet_id, launch_id, outcome)
                wanted -= had
            if error is not None:
                if error.code == SOLD_OUT:
                    outcome.sold_out.append(choice.pool)
                outcome.errors.append(
                    {
                        "LaunchTemplateAndOverrides": choice.fleet_fields(),
                        "Lifecycle": choice.plan.lifecycle,
                        "ErrorCode": error.code,
                        "ErrorMessage": error.message,
                    }
                )
        self.launches.add("CreateFleet", sold_out=outcome.sold_out, bought=outcome.bought)
        return {"FleetId": fleet_id, "Instances": outcome.instances, "Errors": outcome.errors}

    def _tried(self, choice: PoolChoice, wanted: int) -> tuple[int, CloudError | None]:
        if fault := self.refusals.strike(choice.pool):
            return 0, fault.error
        refusal = self._checks.refusal(choice.plan)
        if refusal is None:
            return self._launcher.capacity_left(choice.plan, wanted)
        if NOT_IN_ZONE in refusal.message:  # a single launch has the code Unsupported
            refusal = AwsError("InvalidFleetConfiguration", refusal.message)
        return 0, refusal

    def _launch(
        self,
        request: CreateFleetRequestTypeDef,
        choice: PoolChoice,
        count: int,
        fleet_id: str,
        launch_id: str,
        outcome: _FleetOutcome,
    ) -> None:
        own = cast("Sequence[TagSpecification]", request.get("TagSpecifications", ()))
        template = cast("Sequence[TagSpecification]", choice.plan.data.get("TagSpecifications", ()))
        made = self._launcher.launch(
            choice.plan,
            count,
            launch_id=launch_id,
            tags={
                **tags_for("instance", template, own),
                "aws:ec2:fleet-id": fleet_id,
                "aws:ec2launchtemplate:id": choice.template.id,
                "aws:ec2launchtemplate:version": str(choice.version),
            },
            volume_tags=tags_for("volume", template, own),
            interface_tags=tags_for("network-interface", template),
            fleet_id=fleet_id,
            client_token=request.get("ClientToken", ""),
        )
        outcome.bought[choice.pool] += len(made)
        outcome.instances.append(
            {
                "LaunchTemplateAndOverrides": choice.fleet_fields(),
                "Lifecycle": choice.plan.lifecycle,
                "InstanceIds": [instance.id for instance in made],
                "InstanceType": choice.plan.instance_type,
                "Platform": "windows" if made[0].windows else None,
                "AvailabilityZone": made[0].zone,
                "AvailabilityZoneId": made[0].zone_id,
                "SubnetId": made[0].subnet_id,
            }
        )

    def describe(self, request: DescribeFleetsRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribeFleets; as in AWS, fleets of the type `instant` only when named."""
        found: list[Mapping[str, object]] = []
        for fleet_id in request.get("FleetIds", ()):
            fleet = self._fleets.get(fleet_id)
            if fleet is None:
                raise AwsError(
                    "InvalidFleetId.NotFound", f"The fleet ID '{fleet_id}' does not exist"
                )
            found.append(
                {
                    "FleetId": fleet.id,
                    "FleetState": "active",
                    "Type": "instant",
                    "CreateTime": fleet.created_at,
                    "Context": fleet.context,
                    "Tags": tag_list(fleet.tags),
                    "Instances": fleet.answer["Instances"],
                    "Errors": fleet.answer["Errors"],
                }
            )
        return {"Fleets": found}

    def delete(self, request: DeleteFleetsRequestTypeDef) -> Mapping[str, object]:
        """Answer DeleteFleets; an instant fleet takes its instances along."""
        deleted: list[Mapping[str, object]] = []
        unsuccessful: list[Mapping[str, object]] = []
        for fleet_id in request["FleetIds"]:
            if self._fleets.pop(fleet_id, None) is None:
                problem = {"Code": "fleetIdDoesNotExist", "Message": "The fleet does not exist"}
                unsuccessful.append({"FleetId": fleet_id, "Error": problem})
                continue
            for instance in self._instances.living:
                if instance.fleet_id == fleet_id:
                    self._instances.end(instance, reason="Client.UserInitiatedShutdown")
            deleted.append(
                {
                    "FleetId": fleet_id,
                    "CurrentFleetState": "deleted_terminating",
                    "PreviousFleetState": "active",
                }
            )
        return {"SuccessfulFleetDeletions": deleted, "UnsuccessfulFleetDeletions": unsuccessful}
