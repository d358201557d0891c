"""Writes EventBridge messages into the queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.instances import SimulatedInstance, SimulatedInstanceState

__all__ = ["EventBridgeMessages"]


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@final
class EventBridgeMessages:
    """Events about instances, sent to the queue of the cluster."""

    def __init__(self, account: Account, send: Callable[[str, int], None]) -> None:
        """Make it; `send` puts a text into the queue, to be seen after so many seconds."""
        self._account: Final = account
        self._send: Final = send

    def send(
        self,
        *,
        source: str,
        kind: str,
        detail: Mapping[str, object],
        resources: Sequence[str] = (),
        delay_seconds: float = 0,
    ) -> None:
        """Send any event in EventBridge's envelope; `kind` is its `detail-type`."""
        envelope = {
            "version": "0",
            "id": self._account.ids.uuid(),
            "detail-type": kind,
            "source": source,
            "account": self._account.id,
            "time": _stamp(self._account.clock()),
            "region": self._account.region,
            "resources": list(resources),
            "detail": detail,
        }
        self.send_text(json.dumps(envelope), delay_seconds=delay_seconds)

    def send_text(self, text: str, *, delay_seconds: float = 0) -> None:
        """Send a text as it is."""
        self._send(text, round(delay_seconds))

    def spot_interruption(self, instance: SimulatedInstance) -> None:
        """Warn that a spot instance is interrupted."""
        self._about(
            instance,
            "EC2 Spot Instance Interruption Warning",
            {"instance-action": "terminate"},
        )

    def reservation_interruption(self, instance: SimulatedInstance) -> None:
        """Warn that an instance in an interruptible reservation is interrupted."""
        self._about(
            instance,
            "EC2 Capacity Reservation Instance Interruption Warning",
            {"instance-action": "terminate"},
        )

    def rebalance(self, instance: SimulatedInstance) -> None:
        """Recommend to move from a spot instance."""
        self._about(instance, "EC2 Instance Rebalance Recommendation", {})

    def state_change(
        self,
        instance: SimulatedInstance,
        state: SimulatedInstanceState,
        *,
        delay_seconds: float = 0,
    ) -> None:
        """Announce a new state."""
        self._about(
            instance,
            "EC2 Instance State-change Notification",
            {"state": state.value},
            delay_seconds=delay_seconds,
        )

    def scheduled_change(
        self, instances: Sequence[SimulatedInstance], *, starts_at: datetime
    ) -> None:
        """Announce maintenance, as AWS Health does."""
        self.send(
            source="aws.health",
            kind="AWS Health Event",
            resources=[instance.id for instance in instances],
            detail={
                "eventArn": self._account.arn(
                    "health", "event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/1"
                ),
                "service": "EC2",
                "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
                "eventTypeCategory": "scheduledChange",
                "startTime": starts_at.strftime("%a, %d %b %Y %H:%M:%S GMT"),
                "affectedEntities": [{"entityValue": instance.id} for instance in instances],
            },
        )

    def _about(
        self,
        instance: SimulatedInstance,
        kind: str,
        detail: Mapping[str, object],
        *,
        delay_seconds: float = 0,
    ) -> None:
        self.send(
            source="aws.ec2",
            kind=kind,
            resources=[self._account.arn("ec2", f"instance/{instance.id}")],
            detail={"instance-id": instance.id, **detail},
            delay_seconds=delay_seconds,
        )
