"""Defines the simulated cloud that `karpenter demo --provider NAME` runs on.

A distribution names one in the entry-point group `karpenter.simulations`, under the provider's name: a
function that starts the cloud and ends it, as a context manager. The controller runs in a process of
its own and reaches the cloud through the provider's unmodified SDK; the demo looks into the cloud, lets
its instances join the cluster, and makes happen what clouds do.

    [project.entry-points."karpenter.simulations"]
    mycloud = "karpenter_provider_mycloud.simulated.demo:simulated_cloud"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.errors import OfferingKey

__all__ = ["DemoCloud", "DemoInstance", "LaunchCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoInstance:
    """An instance that is paid for."""

    offering: OfferingKey
    image: str
    price_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCall:
    """One call that launched instances, as in the cloud's log."""

    action: str
    """The call's name: `CreateFleet`."""
    sold_out: Sequence[OfferingKey]
    """What was asked for and could not be had, in the order in which it was tried."""
    bought: Mapping[OfferingKey, int]
    """How many instances of each offering it launched."""


class DemoCloud(Protocol):
    """One cloud, started; may be called from any thread."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead the SDK here, and settings of `karpenter run` by their variables."""
        ...

    @property
    def currency(self) -> str:
        """What its prices are in."""
        ...

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """The `spec` of a NodeClass that works here, with an image that is not the newest."""
        ...

    @property
    def newer_image(self) -> Mapping[str, object]:
        """The fields of that `spec` that are different once the newest image is asked for."""
        ...

    def instances(self) -> Mapping[str, DemoInstance]:
        """Return every instance that is not gone, by provider id."""
        ...

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return the Node of every instance whose kubelet has registered it, by provider id."""
        ...

    def launch_calls(self) -> Sequence[LaunchCall]:
        """Return the calls that launched instances, oldest first."""
        ...

    def sell_out(self, offering: OfferingKey) -> None:
        """Let nothing be left of an offering; what runs goes on."""
        ...

    def interrupt(self, provider_id: str) -> datetime:
        """Announce that a spot instance is interrupted; returns when it is."""
        ...

    def list_resources(self) -> Collection[str]:
        """Return everything of the cluster's that the cloud holds, by the cloud's own word."""
        ...
