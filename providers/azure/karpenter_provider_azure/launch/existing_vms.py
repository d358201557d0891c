"""Decides about a virtual machine that has the name of a NodeClaim already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_provider_azure.described_vms import read_vm
from karpenter_provider_azure.instance_tags import foreign_reason
from karpenter_provider_azure.launch.failure_recorder import LOG_NAME
from karpenter_provider_azure.launch.failures import is_of_launch
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_provider_azure.arm.errors import ArmError
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
    from karpenter_provider_azure.launch.vm_calls import OpenOperations, VmCalls

__all__ = ["ExistingVms"]


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

    def of_claim(self, claim: NodeClaim) -> DescribedVm | CloudProviderError:
        """Return the virtual machine that an earlier launch has made for a claim, or its failure.

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

    def find(self, claim: NodeClaim) -> DescribedVm | CloudProviderError | None:
        """Return the virtual machine of a claim, or the error of its launch; None if there is none.

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

    def _find(self, claim: NodeClaim) -> DescribedVm | CloudProviderError | None:
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
        if not vm.has_failed:
            return vm
        error = self._calls.failure(vm.name)
        if error is not None and not is_of_launch(error):
            return vm
        return self.discard(vm, error)

    def discard(self, vm: DescribedVm, error: ArmError | None) -> CloudProviderError:
        """Delete a virtual machine whose launch failed; return the failure as that of a refusal.

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
        return self._failures.record_vm(vm, error)
