"""Remembers the scripts that make nodes join, until an extension runs them.

A bootstrapping service gives a script for each node together with its custom data. It is in no tag, because
it contains the bootstrap token: a process that does not remember it asks the service again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_azure.launch.boot_data import BootTarget
from karpenter_provider_azure.launch.launched_nodes import uses_ultra_ssd

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.launch.boot_data import BootDataBuilder
    from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue

__all__ = ["CustomScripts"]

_KEPT: Final = timedelta(hours=1)


@final
class CustomScripts:
    """Scripts by virtual machine; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        boot: BootDataBuilder,
        catalogue: LaunchCatalogue,
        node_class_of: Callable[[NodeClaim], AKSNodeClass | None],
    ) -> None:
        """`node_class_of` returns the NodeClass of a claim; None if it is not known."""
        self._boot: Final = boot
        self._catalogue: Final = catalogue
        self._node_class_of: Final = node_class_of
        self._scripts: Final[TtlCache[str, str]] = TtlCache(clock, _KEPT)

    def put(self, instance_id: str, script: str) -> None:
        """Remember the script of a virtual machine that is being made; empty for none."""
        if script:
            self._scripts.put(instance_id, script)

    def script(self, vm: DescribedVm, claim: NodeClaim) -> str:
        """Return the script of a virtual machine; empty for none.

        Raises:
            CloudProviderError: it is not known, and cannot be asked for.
            BadInputError: the NodeClass or the claim cannot be used.
        """
        known = self._scripts.get(vm.id)
        if known is not None:
            return known
        script = self._boot.boot_data(self._target(vm, claim)).custom_script
        self.put(vm.id, script)
        return script

    def _target(self, vm: DescribedVm, claim: NodeClaim) -> BootTarget:
        node_class = self._node_class_of(claim)
        if node_class is None:
            raise CloudProviderError(f'the AKSNodeClass of NodeClaim "{claim.name}" is not known')
        size = self._catalogue.sizes().get(vm.instance_type)
        for it in self._catalogue.instance_types(node_class):
            if it.name != vm.instance_type or size is None:
                continue
            for offering in it.offerings:
                if (offering.zone, offering.capacity_type) == (vm.zone, vm.capacity_type):
                    return BootTarget(
                        node_claim=claim,
                        node_class=node_class,
                        instance_type=it,
                        offering=offering,
                        size=size,
                        image_id=vm.image_id,
                        uses_ultra_ssd=uses_ultra_ssd(claim),
                    )
        raise CloudProviderError(
            f"the offering of virtual machine {vm.name} is not in the catalogue: "
            f"{vm.instance_type} in {vm.zone} ({vm.capacity_type})"
        )
