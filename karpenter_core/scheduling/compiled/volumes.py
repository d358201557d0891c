"""Models attach limits of volumes as resources.

A node attaches a bounded number of volumes per CSI driver. A volume of one pod alone counts like a
resource of that pod; one that several pods share counts once on every node that has any of them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes, SchedulingProblem

__all__ = ["NO_LIMIT", "VolumeAttachments", "attach_resource", "is_attach_resource"]

NO_LIMIT: Final = 1 << 40
"""The attach limit of a node without limit: more than there are volumes."""

_PREFIX: Final = "attachments:"

_LIMITS: Final[Callable[[ExistingNode], Mapping[str, int]]] = attrgetter("volume_limits")


def attach_resource(driver: str) -> str:
    """Name the resource that counts the volumes of a driver; no cluster has it."""
    return _PREFIX + driver


def is_attach_resource(name: str) -> bool:
    """Whether a resource counts volumes."""
    return name.startswith(_PREFIX)


@final
class VolumeAttachments:
    """The volumes that count against limits, and those that several pods share."""

    def __init__(self, problem: SchedulingProblem) -> None:
        self.drivers: Final = frozenset[str]().union(*map(_LIMITS, problem.nodes))
        """Drivers with a limit somewhere; without any, nothing is counted."""
        users: dict[str, int] = {}
        if self.drivers:
            for volumes in problem.volumes.values():
                for driver in self.drivers & volumes.attached.keys():
                    for claim in volumes.attached[driver]:
                        users[claim] = users.get(claim, 0) + 1
            for node in problem.nodes:
                for driver in self.drivers & node.volumes.keys():
                    for claim in node.volumes[driver]:
                        users[claim] = users.get(claim, 0) + 1
        self._users: Final = users

    def requests(self, volumes: PodVolumes) -> dict[str, int]:
        """Return how many volumes of its own a pod attaches, by resource."""
        counts: dict[str, int] = {}
        for driver in sorted(self.drivers & volumes.attached.keys()):
            own = sum(self._users[claim] == 1 for claim in volumes.attached[driver])
            if own:
                counts[attach_resource(driver)] = own
        return counts

    def shared(self, volumes: PodVolumes) -> tuple[tuple[str, str], ...]:
        """Return the shared volumes of a pod: resource and claim."""
        return tuple(
            (attach_resource(driver), claim)
            for driver in sorted(self.drivers & volumes.attached.keys())
            for claim in sorted(volumes.attached[driver])
            if self._users[claim] > 1
        )

    def signature(self, volumes: PodVolumes) -> object:
        """Return what makes two pods' volumes the same to the solver."""
        return tuple(self.requests(volumes).items()), self.shared(volumes)

    @staticmethod
    def free(node: ExistingNode, resource: str) -> int:
        """Return how many more volumes a node attaches."""
        driver = resource.removeprefix(_PREFIX)
        limit = node.volume_limits.get(driver)
        return NO_LIMIT if limit is None else limit - len(node.volumes.get(driver, ()))
