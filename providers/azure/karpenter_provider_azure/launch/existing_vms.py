"""Decides about a virtual machine that has the name of a NodeClaim already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.described_vms import read_vm
from karpenter_provider_azure.instance_tags import foreign_reason
from karpenter_provider_azure.labels import NODE_POOL_TAG
from karpenter_provider_azure.launch.failure_recorder import FAILED, LOG_NAME
from karpenter_provider_azure.launch.failures import is_of_launch
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
    from karpenter_provider_azure.launch.open_operations import OpenOperations
    from karpenter_provider_azure.launch.vm_calls import VmCalls

__all__ = ["ExistingVms", "FailedVm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVm:
    """A virtual machine of a claim whose launch failed, and that is being deleted."""

    error: CloudProviderError
    """The outcome of the claim: that of a refused launch."""


@final
class ExistingVms:
    """Adopts or discards virtual machines of earlier launches; callable from any thread."""

    def __init__(
        self,
        calls: VmCalls,
        *,
        cluster: str,
        failures: FailureRecorder,
        operations: OpenOperations,
    ) -> None:
        """`cluster` is the name of the cluster."""
        self._calls: Final = calls
        self._cluster: Final = cluster
        self._failures: Final = failures
        self._operations: Final = operations
        self._log: FilteringBoundLogger = structlog.get_logger(LOG_NAME)

    def of_claim(self, claim: NodeClaim) -> DescribedVm | FailedVm:
        """Return the virtual machine that an earlier launch has made for a claim.

        Raises:
            CloudProviderError: it is being deleted, or just was: the claim is launched again later.
            LaunchFailedError: it belongs to another claim or cluster.
        """
        vm = self.find(claim)
        if vm is None:
            raise CloudProviderError(
                f"virtual machine {vm_name(claim.name)} existed and was deleted meanwhile"
            )
        return vm

    def find(self, claim: NodeClaim) -> DescribedVm | FailedVm | None:
        """Return the virtual machine of a claim; None if there is none.

        Raises:
            CloudProviderError: it is being deleted, or cannot be read or discarded.
            LaunchFailedError: it belongs to another claim or cluster.
        """
        try:
            return self._find(claim)
        except (ThrottledError, AuthError) as error:
            # Of a launch these errors say that the claim has no virtual machine.
            raise CloudProviderError(
                f"virtual machine {vm_name(claim.name)} may exist and cannot be read: {error}"
            ) from error

    def _find(self, claim: NodeClaim) -> DescribedVm | FailedVm | None:
        body = self._calls.find(vm_name(claim.name))
        if body is None:
            return None
        vm = read_vm(body)
        if reason := foreign_reason(vm.tags, cluster=self._cluster, claim_uid=claim.uid):
            raise LaunchFailedError(
                f"virtual machine {vm.name} exists and is not that of NodeClaim "
                f'"{claim.name}": {reason}; delete it or the NodeClaim',
                reason="VirtualMachineExists",
            )
        if vm.is_leaving:
            raise CloudProviderError(
                f"virtual machine {vm.name} of an earlier launch is being deleted"
            )
        if not vm.has_failed and not vm.instance_type:
            raise CloudProviderError(
                f"virtual machine {vm.name} of an earlier launch has no size "
                "(properties.hardwareProfile.vmSize): delete it or the NodeClaim"
            )
        if not vm.has_failed:
            return vm
        error = self._calls.failure(vm.name)
        if error is not None and not is_of_launch(error):
            return vm
        return self.discard(vm, error)

    def discard(self, vm: DescribedVm, error: ArmError | None) -> FailedVm:
        """Delete a virtual machine whose launch failed; record the failure as that of a refusal.

        Raises:
            CloudProviderError: it cannot be deleted.
        """
        self._log.info("deleting a virtual machine that failed", vm=vm.name, error=str(error))
        try:
            self._calls.delete(vm.name)
        except (ThrottledError, AuthError) as refusal:
            raise CloudProviderError(
                f"virtual machine {vm.name} failed and cannot be deleted: {refusal}"
            ) from refusal
        self._operations.drop(vm.id)
        return FailedVm(
            error=self._failures.record(
                error or ArmError(f"virtual machine {vm.name} failed, and Azure gives no reason"),
                self._failures.attempt(vm.instance_type, vm.zone, vm.capacity_type),
                image=vm.image_id,
                node_pool=vm.tags.get(NODE_POOL_TAG, ""),
                phase=FAILED,
            )
        )
