"""Defines the simulated cloud that `karpenter demo --provider NAME` runs on.

A distribution declares one in the entry-point group `karpenter.simulations`, under the provider's
name: a context manager that starts and stops the cloud. The controller runs in its own process and
calls the cloud through the provider's unmodified SDK; the demo reads the state of the cloud,
registers its instances as Nodes, and triggers events such as interruptions.

    [project.entry-points."karpenter.simulations"]
    mycloud = "karpenter_provider_mycloud.simulated.demo:simulated_cloud"
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.errors import OfferingKey

__all__ = ["DemoCloud", "DemoFeature", "DemoInstance", "LoggedLaunchCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoInstance:
    """An instance that is billed."""

    offering: OfferingKey
    image: str
    price_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedLaunchCall:
    """One launch call in the cloud's log."""

    action: str
    """Name of the call: `CreateFleet`."""
    sold_out: Sequence[OfferingKey]
    """Offerings that were tried and had no capacity, in the order of the attempts."""
    bought: Mapping[OfferingKey, int]
    """Number of launched instances by offering."""


class DemoFeature(StrEnum):
    """A step of the demo that a cloud may not be able to show."""

    SPOT = "spot instances"
    """Spot instances, and announcements of their interruption."""
    STOCK = "offerings that sell out"
    NEWER_IMAGE = "newer image"


class DemoCloud(Protocol):
    """A running simulated cloud; callable from any thread.

    A class that derives from this one inherits the defaults.
    """

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that direct the SDK to this cloud, and settings of `karpenter run`."""
        ...

    @property
    def currency(self) -> str:
        """Currency of its prices; USD by default."""
        return "USD"

    @property
    def lacks(self) -> Collection[DemoFeature]:
        """Features that it cannot show; the demo skips these steps and says so. Empty by default."""
        return ()

    @property
    def requirements(self) -> Sequence[Mapping[str, object]]:
        """Requirements of the NodePool that keep nodes small enough for a demo; none by default."""
        return ()

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """The `spec` of a NodeClass for this cloud, with an image that is not the newest."""
        ...

    @property
    def newer_image(self) -> Mapping[str, object]:
        """The fields of that `spec` that change when the newest image is selected."""
        return {}

    def instances(self) -> Mapping[str, DemoInstance]:
        """Return every instance that is not gone, by provider ID."""
        ...

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return the Node of every instance whose kubelet has registered it, by provider ID."""
        ...

    def launch_calls(self) -> Sequence[LoggedLaunchCall]:
        """Return the launch calls, oldest first; none if the cloud keeps no log of them."""
        return ()

    def sell_out(self, offering: OfferingKey) -> None:
        """Make an offering sell out; running instances continue. Not called if `STOCK` is lacking."""
        raise NotImplementedError

    def interrupt(self, provider_id: str) -> datetime:
        """Announce the interruption of a spot instance; return the deadline.

        Not called if `SPOT` is lacking.
        """
        raise NotImplementedError

    def list_resources(self) -> Collection[str]:
        """Return the ids of all resources of the cluster in the cloud; by default its instances."""
        return self.instances().keys()
