"""Runs demos on a simulated cloud that stands on this kit."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from karpenter_core.provider.kit.demo_cloud import DemoCloud, DemoInstance
from karpenter_core.provider.kit.simulated.instances import SimulatedInstance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud

__all__ = ["SimulatedCloudDemo"]

Item = TypeVar("Item", bound=SimulatedInstance)


class SimulatedCloudDemo(DemoCloud, Generic[Item]):
    """A demo cloud made of a `SimulatedCloud`; what differs is the NodeClass and its images."""

    def __init__(self, cloud: SimulatedCloud[Item]) -> None:
        self._cloud: Final = cloud

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that direct the SDK to the cloud."""
        return self._cloud.environment

    @property
    @abstractmethod
    def node_class_spec(self) -> Mapping[str, object]:
        """The `spec` of a NodeClass for this cloud."""

    def instances(self) -> Mapping[str, DemoInstance]:
        """Return every instance that is not gone, by provider ID."""
        prices = self._cloud.shared.prices
        return {
            self._cloud.provider_id(each): DemoInstance(
                offering=each.pool.offering,
                image=each.image_id,
                price_per_hour=prices.of(each.pool),
            )
            for each in self._cloud.living()
        }

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return the Nodes that kubelets have registered, by provider ID."""
        return self._cloud.nodes()

    def sell_out(self, offering: OfferingKey) -> None:
        """Leave nothing of a pool."""
        self._cloud.shared.capacity.sell_out(
            capacity_type=offering.capacity_type,
            instance_type=offering.instance_type,
            zone=offering.zone,
        )

    def interrupt(self, provider_id: str) -> datetime:
        """Announce an interruption, and terminate the instance after the notice."""
        return self._cloud.reclaim(provider_id)

    def list_resources(self) -> Collection[str]:
        """Return the ids of the instances that are not gone."""
        return [each.id for each in self._cloud.living()]
