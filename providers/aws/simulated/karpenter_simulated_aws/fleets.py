"""Handles CreateFleet of type `instant`.

A fleet tries many pool choices, takes the cheapest available ones and reports errors for the rest.
It may take longer than its caller waits (`CloudBehaviour.fleet_seconds`): the connection breaks,
the instances run, and a call with the same token is refused until then. EC2 documents no code for
that, only that a resource which changes its state may be the reason of a 400; `IncorrectState` is
its code for such a resource.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.pool_choices import choices_of
from karpenter_simulated_aws.protocol import AwsError, NoAnswerError
from karpenter_simulated_aws.selection import (
    check_tags,
    check_token,
    tag_list,
    tags_for,
)
from karpenter_simulated_aws.server import dry_run_success

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import (
        CreateFleetRequestTypeDef,
        DeleteFleetsRequestTypeDef,
        DescribeFleetsRequestTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.behaviour import CloudBehaviour
    from karpenter_simulated_aws.capacity import InstancePool
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.networks import Networks
    from karpenter_simulated_aws.plan_launcher import PlanLauncher
    from karpenter_simulated_aws.plans import InstancePlanChecks
    from karpenter_simulated_aws.pool_choices import PoolChoice
    from karpenter_simulated_aws.prices import Prices
    from karpenter_simulated_aws.selection import TagSpecification
    from karpenter_simulated_aws.templates import LaunchTemplates

__all__ = ["Fleet", "Fleets", "PoolFault"]

_IN_PROGRESS: Final = "IncorrectState"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet that was made."""

    id: str
    created_at: datetime
    tags: Mapping[str, str]
    context: str
    answer: Mapping[str, object]


@dataclass(slots=True, kw_only=True)
class PoolFault:
    """An error that overrides of a pool get in the `Errors` of fleets."""

    pool: InstancePool
    error: AwsError
    times: int | None = None


@dataclass(slots=True, kw_only=True)
class _FleetOutcome:
    instances: list[Mapping[str, object]] = field(default_factory=list["Mapping[str, object]"])
    errors: list[Mapping[str, object]] = field(default_factory=list["Mapping[str, object]"])


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
        self._behaviour: Final = behaviour
        self._checks: Final = checks
        self._launcher: Final = launcher
        self._templates: Final = templates
        self._networks: Final = networks
        self._prices: Final = prices
        self._instances: Final = instances
        self._fleets: dict[str, Fleet] = {}
        self._tokens: dict[str, tuple[str, str]] = {}
        self._answered_at: dict[str, datetime] = {}
        """When each call is answered, by token."""
        self._faults: list[PoolFault] = []

    @property
    def all(self) -> Sequence[Fleet]:
        """Every fleet, in the order of creation."""
        return list(self._fleets.values())

    def fault(self, fault: PoolFault) -> PoolFault:
        """Let overrides of a pool fail."""
        self._faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        """Let overrides fail no more."""
        self._faults.clear()

    def clear(self) -> None:
        """Forget all fleets and faults."""
        self._fleets.clear()
        self._tokens.clear()
        self._answered_at.clear()
        self._faults.clear()

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
        digest = json.dumps({**request, "ClientToken": ""}, sort_keys=True, default=str)
        if token and (before := self._tokens.get(token)) and not request.get("DryRun"):
            if before[1] != digest:
                raise AwsError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in"
                    " previous request(s).",
                )
            if self._is_open(token):
                raise AwsError(
                    _IN_PROGRESS, "A request with this client token is still in progress."
                )
            return self._fleets[before[0]].answer
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
        if token:
            self._tokens[token] = (fleet_id, digest)
            self._answered_at[token] = self._account.clock() + timedelta(
                seconds=self._behaviour.fleet_seconds
            )
        if self._behaviour.fleet_seconds > 0:
            raise NoAnswerError
        return answer

    def _is_open(self, token: str) -> bool:
        """Whether a call with this token was carried out and is not answered yet."""
        until = self._answered_at.get(token)
        return until is not None and self._account.clock() < until

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
                outcome.errors.append(
                    {
                        "LaunchTemplateAndOverrides": choice.told(),
                        "Lifecycle": choice.plan.lifecycle,
                        "ErrorCode": error.code,
                        "ErrorMessage": error.message,
                    }
                )
        return {"FleetId": fleet_id, "Instances": outcome.instances, "Errors": outcome.errors}

    def _tried(self, choice: PoolChoice, wanted: int) -> tuple[int, AwsError | None]:
        for fault in self._faults:
            if fault.times != 0 and fault.pool.holds(choice.pool):
                if fault.times is not None:
                    fault.times -= 1
                return 0, fault.error
        refusal = self._checks.refusal(choice.plan)
        return (0, refusal) if refusal else self._launcher.capacity_left(choice.plan, wanted)

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
        outcome.instances.append(
            {
                "LaunchTemplateAndOverrides": choice.told(),
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
