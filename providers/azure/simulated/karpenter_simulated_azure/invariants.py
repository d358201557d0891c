"""Checks the end of a cluster: nothing is left, nothing was done twice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_simulated_azure.cloud import SimulatedAzure

__all__ = ["broken_invariants", "leftovers"]


def leftovers(cloud: SimulatedAzure) -> Iterator[str]:
    """Return the ids of virtual machines, network interfaces and disks that exist."""
    for machine in cloud.living():
        yield machine.resource_id
    for interface in cloud.interfaces.all:
        yield interface.id
    yield from cloud.disks.ids


def broken_invariants(cloud: SimulatedAzure) -> list[str]:
    """Return what is wrong at the end of a test, as sentences; nothing if all is well.

    Virtual machines may still run; network interfaces and disks must belong to one of them.
    """
    now = cloud.time()
    living = {each.resource_id.lower() for each in cloud.living()}
    broken: list[str] = []
    for interface in cloud.interfaces.all:
        owner = interface.attached_to(now).lower()
        if owner not in living:
            broken.append(f"the network interface {interface.id} belongs to no virtual machine")
    owned = {cloud.disk_id(each).lower() for each in cloud.living()}
    broken += [
        f"the disk {each} belongs to no virtual machine"
        for each in cloud.disks.ids
        if each.lower() not in owned
    ]
    if not living:
        used = {name: cores for name, cores in cloud.quotas.used.items() if cores}
        broken += [f"{cores} of the quota {name} are in use" for name, cores in used.items()]
    broken += [
        f"the operation {each.kind} of {each.resource_id} has not ended"
        for each in cloud.operations.running
    ]
    broken += [
        f"the virtual machine {machine_id} was put again {count} times"
        for machine_id, count in Counter(cloud.rewritten).items()
    ]
    return broken
