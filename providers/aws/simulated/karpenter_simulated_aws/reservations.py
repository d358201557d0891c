"""Capacity reservations: on-demand, interruptible, capacity blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import (
    check_tags,
    list_page,
    tag_list,
    tags_for,
)
from karpenter_simulated_aws.type_catalogue import zone_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import (
        CancelCapacityReservationRequestTypeDef,
        CreateCapacityReservationRequestTypeDef,
        DescribeCapacityReservationsRequestTypeDef,
        ModifyCapacityReservationRequestTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.selection import TagSpecification

__all__ = ["Reservation", "Reservations"]

_PAGE: Final = 1000


@dataclass(slots=True, kw_only=True)
class Reservation:
    """A capacity reservation."""

    id: str
    owner: str
    instance_type: str
    zone: str
    total: int
    match: str = "targeted"
    """`open`: any instance of the type takes it up; `targeted`: only those that name it."""
    kind: str = "default"
    """`default` or `capacity-block`."""
    interruptible: bool = False
    created_at: datetime
    ends_at: datetime | None = None
    cancelled: bool = False
    tags: dict[str, str]

    @property
    def market(self) -> str:
        """The market on which its instances are bought; empty for on-demand."""
        if self.kind == "capacity-block":
            return "capacity-block"
        return "interruptible-capacity-reservation" if self.interruptible else ""

    def state(self, now: datetime) -> str:
        """`active`, `cancelled` or `expired`."""
        if self.cancelled:
            return "cancelled"
        return "expired" if self.ends_at is not None and now >= self.ends_at else "active"


@final
class Reservations:
    """The capacity reservations that the account may use."""

    def __init__(self, account: Account, instances: Instances) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self._reservations: dict[str, Reservation] = {}

    def add(
        self,
        *,
        instance_type: str,
        zone: str,
        total: int,
        match: str = "targeted",
        kind: str = "default",
        interruptible: bool = False,
        ends_at: datetime | None = None,
        owner: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Reservation:
        """Reserve instances."""
        reservation = Reservation(
            id=self._account.ids.new("cr"),
            owner=owner or self._account.id,
            instance_type=instance_type,
            zone=zone,
            total=total,
            match=match,
            kind=kind,
            interruptible=interruptible,
            created_at=self._account.clock(),
            ends_at=ends_at,
            tags=dict(tags or {}),
        )
        self._reservations[reservation.id] = reservation
        return reservation

    def get(self, reservation_id: str) -> Reservation | None:
        """Return a reservation, None when there is none of this id."""
        return self._reservations.get(reservation_id)

    def clear(self) -> None:
        """Forget all reservations."""
        self._reservations.clear()

    def open_for(self, instance_type: str, zone: str) -> Reservation | None:
        """Return an open reservation that an instance takes up without asking."""
        now = self._account.clock()
        available = self.available()
        for reservation in self._reservations.values():
            if (
                (reservation.instance_type, reservation.zone) == (instance_type, zone)
                and reservation.match == "open"
                and not reservation.market
                and reservation.state(now) == "active"
                and available[reservation.id] > 0
            ):
                return reservation
        return None

    def available(self) -> Counter[str]:
        """Return how many instances of each reservation are free."""
        free = Counter({each.id: each.total for each in self._reservations.values()})
        free.subtract(
            each.capacity_reservation_id
            for each in self._instances.living
            if each.capacity_reservation_id in self._reservations
        )
        return free

    def create(self, request: CreateCapacityReservationRequestTypeDef) -> Mapping[str, object]:
        """Answer CreateCapacityReservation."""
        tags = tags_for(
            "capacity-reservation",
            cast("Sequence[TagSpecification]", request.get("TagSpecifications", ())),
        )
        check_tags(tags)
        reservation = self.add(
            instance_type=request["InstanceType"],
            zone=request.get("AvailabilityZone", ""),
            total=request["InstanceCount"],
            match=request.get("InstanceMatchCriteria", "open"),
            ends_at=cast("datetime | None", request.get("EndDate")),
            tags=tags,
        )
        return {"CapacityReservation": self._described(reservation)}

    def modify(self, request: ModifyCapacityReservationRequestTypeDef) -> Mapping[str, object]:
        """Answer ModifyCapacityReservation: how many, and until when."""
        reservation = self._named(request["CapacityReservationId"])
        reservation.total = request.get("InstanceCount", reservation.total)
        if "EndDate" in request:
            reservation.ends_at = cast("datetime", request["EndDate"])
        return {"Return": True}

    def cancel(self, request: CancelCapacityReservationRequestTypeDef) -> Mapping[str, object]:
        """Answer CancelCapacityReservation; instances that run in it become on-demand ones."""
        reservation = self._named(request["CapacityReservationId"])
        reservation.cancelled = True
        for instance in self._instances.living:
            if instance.capacity_reservation_id == reservation.id:
                instance.capacity_reservation_id = ""
        return {"Return": True}

    def describe(self, request: DescribeCapacityReservationsRequestTypeDef) -> Mapping[str, object]:
        """Answer DescribeCapacityReservations."""
        ids: Sequence[str] = request.get("CapacityReservationIds", ())
        wanted = [self._named(each) for each in ids] if ids else list(self._reservations.values())

        def values(reservation: Reservation, name: str) -> Sequence[str] | None:
            known: Mapping[str, Sequence[str]] = {
                "instance-type": (reservation.instance_type,),
                "owner-id": (reservation.owner,),
                "instance-match-criteria": (reservation.match,),
                "availability-zone": (reservation.zone,),
                "state": (reservation.state(self._account.clock()),),
                "tenancy": ("default",),
                "instance-platform": ("Linux/UNIX",),
            }
            return known.get(name)

        shown, token = list_page(
            request,
            wanted,
            values=values,
            tags=lambda reservation: reservation.tags,
            maximum=_PAGE,
        )
        return {
            "CapacityReservations": [self._described(reservation) for reservation in shown],
            "NextToken": token,
        }

    def tagged(self, reservation_id: str) -> dict[str, str] | None:
        """Return the tags of a reservation, to be changed in place."""
        found = self._reservations.get(reservation_id)
        return None if found is None else found.tags

    def _named(self, reservation_id: str) -> Reservation:
        found = self._reservations.get(reservation_id)
        if found is None:
            raise AwsError(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation with ID '{reservation_id}' does not exist",
            )
        return found

    def _described(self, reservation: Reservation) -> Mapping[str, object]:
        now = self._account.clock()
        active = reservation.state(now) == "active"
        return {
            "CapacityReservationId": reservation.id,
            "CapacityReservationArn": self._account.arn(
                "ec2", f"capacity-reservation/{reservation.id}"
            ),
            "OwnerId": reservation.owner,
            "InstanceType": reservation.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": reservation.zone,
            "AvailabilityZoneId": zone_ids(self._account).get(reservation.zone),
            "Tenancy": "default",
            "TotalInstanceCount": reservation.total,
            "AvailableInstanceCount": max(0, self.available()[reservation.id]) if active else 0,
            "State": reservation.state(now),
            "InstanceMatchCriteria": reservation.match,
            "ReservationType": reservation.kind,
            "Interruptible": reservation.interruptible,
            "CreateDate": reservation.created_at,
            "StartDate": reservation.created_at,
            "EndDate": reservation.ends_at,
            "EndDateType": "unlimited" if reservation.ends_at is None else "limited",
            "Tags": tag_list(reservation.tags),
        }
