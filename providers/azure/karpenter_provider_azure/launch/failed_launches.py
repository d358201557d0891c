"""Finds virtual machines of failed launches; decides on existing ones.

They are listed in the state Failed after Azure had accepted their launch. The reason is that of the operation,
whose URL this process remembers, or else in the instance view of the virtual machine. Each failure is recorded
once, as that of a refused request.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.errors import AuthError, CloudProviderError, LaunchFailedError, ThrottledError
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.instance_tags import foreign_reason
from karpenter_provider_azure.launch.failure_recorder import LOG_NAME
from karpenter_provider_azure.launch.failures import is_of_launch
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ClaimReader
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.instances.vm_reader import VmReader
    from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
    from karpenter_provider_azure.launch.vm_calls import OpenOperations, VmCalls

__all__ = ["ExistingVms", "FailedLaunches"]


@final
class ExistingVms:
    """Adopts or discards virtual machines of earlier launches; callable from any thread."""

    def __init__(
        self,
        calls: VmCalls,
        reader: VmReader,
        *,
        cluster: str,
        failures: FailureRecorder,
        operations: OpenOperations,
    ) -> None:
        """`cluster` is the name of the cluster."""
        self._calls: Final = calls
        self._reader: Final = reader
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
        vm = self._reader.find(vm_name(claim.name))
        if vm is None:
            return None
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


_READS_AT_ONCE: Final = 20
"""Reasons that one poll reads; the next one comes within seconds."""
_LAUNCHES_WITHIN: Final = timedelta(hours=1)
"""An older virtual machine without a claim did not fail at its launch."""


@final
class FailedLaunches:
    """The failed launches of the cluster, for the kit's `LateFailures`; callable from one thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        calls: VmCalls,
        list_vms: Callable[[], Iterable[DescribedVm]],
        read_claims: ClaimReader,
        failures: FailureRecorder,
        operations: OpenOperations,
    ) -> None:
        """`list_vms` lists the virtual machines of the cluster; it may raise CloudProviderError."""
        self._clock: Final = clock
        self._calls: Final = calls
        self._list_vms: Final = list_vms
        self._read_claims: Final = read_claims
        self._failures: Final = failures
        self._operations: Final = operations
        self._log: FilteringBoundLogger = structlog.get_logger(LOG_NAME)
        self._known: dict[tuple[str, str], CloudProviderError | None] = {}
        """By virtual machine: the error of its launch; None for one that failed of something else."""

    def read(self) -> Mapping[str, CloudProviderError]:
        """Return the errors of failed launches by provider ID.

        Raises:
            CloudProviderError: the virtual machines could not be listed.
        """
        failed = [vm for vm in self._list_vms() if vm.has_failed]
        registered = self._are_registered() if failed else {}
        waiting = {
            _key(vm): vm
            for vm in failed
            if not registered.get(vm.provider_id.lower(), self._is_old(vm))
        }
        self._known = {key: error for key, error in self._known.items() if key in waiting}
        unread = [key for key in waiting if key not in self._known]
        for key in unread[:_READS_AT_ONCE]:
            try:
                self._known[key] = self._error_of(waiting[key])
            except ThrottledError:
                break
            except CloudProviderError as error:
                self._log.info(
                    "the reason of a failed launch cannot be read", vm=key[0], error=str(error)
                )
        return {
            waiting[key].provider_id: error
            for key, error in self._known.items()
            if error is not None
        }

    def _are_registered(self) -> dict[str, bool]:
        """Return by provider ID whether the node of a claim has registered."""
        return {
            claim.status.provider_id.lower(): is_true(claim.status.conditions, REGISTERED)
            for claim in self._read_claims().values()
            if claim.status.provider_id
        }

    def _is_old(self, vm: DescribedVm) -> bool:
        at = vm.launched_at
        return at is None or self._clock.now() - at > _LAUNCHES_WITHIN

    def _error_of(self, vm: DescribedVm) -> CloudProviderError | None:
        """Return the error of the launch of a virtual machine, and record it."""
        error = self._operation_error(vm) or self._calls.failure(vm.name)
        if error is not None and not is_of_launch(error):
            return None
        return self._failures.record_vm(vm, error)

    def _operation_error(self, vm: DescribedVm) -> ArmError | None:
        """Return the error of the operation that made a virtual machine; None if it is not known."""
        url = self._operations.get(vm.id)
        if not url:
            return None
        try:
            state = self._calls.poll(url)
        except ArmError:
            return None
        if state.is_done:
            self._operations.drop(vm.id)
        return state.error


def _key(vm: DescribedVm) -> tuple[str, str]:
    """Return what tells a virtual machine from an earlier one of the same name."""
    return vm.name, vm.vm_id or str(vm.launched_at)
