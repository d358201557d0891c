"""Makes the kit's `ClusterInstances` for Azure, which does not describe virtual machines that are gone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
from karpenter_core.provider.kit.launch.instance_claims import SingleClaims
from karpenter_provider_azure.instances.vm_reader import claim_of
from karpenter_provider_azure.instances.vm_terminator import vm_terminator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.instances.vm_reader import VmReader

__all__ = ["SHOWN_WITHIN", "cluster_vms"]

SHOWN_WITHIN: Final = timedelta(minutes=1)
"""By then Azure lists a virtual machine whose creation it has accepted."""


def cluster_vms(
    clock: Clock,
    *,
    reader: VmReader,
    recent: RecentLaunches,
    delete: Callable[[str], None],
    on_listed: Callable[[Sequence[DescribedVm]], None] = lambda _listed: None,
) -> ClusterInstances[DescribedVm]:
    """Return the virtual machines of one cluster; `delete` is that of `vm_terminator`."""
    return ClusterInstances(
        clock,
        service="Azure",
        reader=reader,
        terminator=vm_terminator(delete, clock),
        claims=SingleClaims(claim_of),
        recent=recent,
        shown_within=SHOWN_WITHIN,
        on_listed=on_listed,
    )
