"""Launches the virtual machine of one NodeClaim.

The name of a virtual machine follows from its claim, and Azure makes a virtual machine of a name only once
(`If-None-Match: *`). So however often a claim is launched, by this process or the one before it, it gets one
virtual machine: the first request makes it, and every later one finds it.

An offering that Azure refuses is followed by the next one in the same launch.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    InsufficientCapacityError,
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.launch.answers import merge_shortages
from karpenter_core.provider.kit.launch.cheapest import create_in_order
from karpenter_core.provider.kit.launch.existing_instances import as_outcome
from karpenter_core.provider.kit.node_class.readiness import not_ready_error
from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunch
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.arm.operations import POLL_PERIOD, operation_url
from karpenter_provider_azure.described_vms import DescribedVm, instance_id
from karpenter_provider_azure.images.versions import image_for
from karpenter_provider_azure.instance_tags import instance_tags
from karpenter_provider_azure.launch.boot_data import BootTarget
from karpenter_provider_azure.launch.claim_launches import (
    ClaimLaunch,
    OfferingOrder,
    launched_node,
    node_class_of,
    uses_ultra_ssd,
)
from karpenter_provider_azure.launch.failed_launches import ExistingVms
from karpenter_provider_azure.launch.failure_recorder import LOG_NAME, REFUSED
from karpenter_provider_azure.launch.virtual_machines import VirtualMachine, vm_body
from karpenter_provider_azure.resource_ids import provider_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmAnswer
    from karpenter_provider_azure.launch.boot_data import BootDataBuilder
    from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
    from karpenter_provider_azure.launch.extensions import CustomScripts
    from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
    from karpenter_provider_azure.launch.node_network import NodeNetwork
    from karpenter_provider_azure.launch.vm_calls import OpenOperations, VmCalls
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["VmLauncher"]

_EXISTS: Final = 412
"""The status of a request with `If-None-Match: *` for a name that exists."""
_CHANGE_NOT_ALLOWED: Final = "PropertyChangeNotAllowed"
"""The code of a request that would change the size or zone of a virtual machine that exists."""
_LONGEST_STANDALONE_WAIT: Final = timedelta(seconds=90)
"""Shorter than the time limit of the hook."""
_BAD_NODE_CLASS: Final = "InvalidNodeClass"
_LAUNCH_HOOK: Final = "karpenter_launch_instances"


@final
class VmLauncher:
    """Launches virtual machines; callable from any thread."""

    def __init__(
        self,
        settings: AzureSettings,
        clock: Clock,
        *,
        calls: VmCalls,
        catalogue: LaunchCatalogue,
        network: NodeNetwork,
        boot: BootDataBuilder,
        failures: FailureRecorder,
        existing: ExistingVms,
        operations: OpenOperations,
        scripts: CustomScripts,
        recent: RecentLaunches,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`draw` returns a random number, which decides between equal zones."""
        self._settings: Final = settings
        self._clock: Final = clock
        self._calls: Final = calls
        self._catalogue: Final = catalogue
        self._network: Final = network
        self._boot: Final = boot
        self._failures: Final = failures
        self._existing: Final = existing
        self._operations: Final = operations
        self._scripts: Final = scripts
        self._recent: Final = recent
        self._order: Final = OfferingOrder(draw)
        self._sleep: Final = sleep
        self._log: FilteringBoundLogger = structlog.get_logger(LOG_NAME)

    def launch(self, request: LaunchRequest) -> LaunchedInstance:
        """Launch the virtual machine of a claim, or return the one that it has.

        The virtual machine is not waited for, unless the claim has no NodePool.

        Raises:
            InsufficientCapacityError: nothing that the claim allows is available.
            CloudProviderError: nothing was launched, or Azure did not say so.
        """
        try:
            return self._launch(request)
        except BadInputError as error:
            raise as_outcome(error, reason=_BAD_NODE_CLASS) from error

    def _launch(self, request: LaunchRequest) -> LaunchedInstance:
        node_class = node_class_of(request)
        if (unready := not_ready_error(node_class)) is not None:
            raise unready
        launch = ClaimLaunch(request=request, node_class=node_class)
        made, shortages = self._made(launch)
        if isinstance(made, CloudProviderError):
            raise made if not shortages else merge_shortages(shortages[0], made)
        # Azure gives the id of a virtual machine that exists, and not of one that it makes now.
        existed = bool(made.vm_id)
        outcome = replace(self._outcome(launch, made), shortages=shortages, existed=existed)
        self._remember(request, made, outcome)
        if not launch.node_pool:
            self._wait(made)
        return outcome

    # -- requests --------------------------------------------------------------------------------

    def _made(
        self, launch: ClaimLaunch
    ) -> tuple[DescribedVm | CloudProviderError, tuple[InsufficientCapacityError, ...]]:
        """Return the virtual machine of the claim, and the shortages that its launch met."""
        # Quota reserved by an earlier launch of the claim would count against this one.
        self._catalogue.quotas.release(launch.request.token)
        try:
            return create_in_order(
                launch.request,
                self._order.offerings(launch.request),
                partial(self._create, launch),
                is_open=self._catalogue.is_open,
            )
        except InsufficientCapacityError as error:
            # The virtual machine of an earlier launch may be what has used up the quota.
            existing = self._existing.find(launch.request.node_claim)
            if existing is None:
                raise
            return existing, (error,)

    def _create(
        self, launch: ClaimLaunch, it: InstanceType, offering: Offering
    ) -> DescribedVm | CloudProviderError:
        """Request a virtual machine from an offering; return it, or the one that exists.

        Raises:
            InsufficientCapacityError: Azure refused for a shortage, which is recorded; or launches at
                the same time have taken what was left of a quota.
        """
        vm, uid = self._virtual_machine(launch, it, offering), launch.request.token
        attempt = self._failures.attempt(
            it.name, vm.zone, vm.capacity_type, image=vm.image_id, node_pool=launch.node_pool
        )
        if short := self._catalogue.quotas.reserve(uid, vm.size, vm.capacity_type):
            raise InsufficientCapacityError(
                f'NodeClaim "{launch.request.node_claim.name}": the quota "{short}" has no '
                f"{vm.size.cpus} vCPUs left for {vm.size.name}",
                quota_groups=[
                    QuotaGroup(
                        label=INSTANCE_TYPE, value=it.name, capacity_type=offering.capacity_type
                    )
                ],
            )
        self._failures.metrics.note_requested(attempt)
        try:
            answer = self._request(vm, launch.node_class)
        except ThrottledError as error:
            self._catalogue.quotas.release(uid)
            # Every launch needs the same writes, and would be throttled too.
            raise ThrottledError(
                str(error), retry_after=error.retry_after, pauses=(_LAUNCH_HOOK,)
            ) from error
        except ArmError as error:
            if error.may_be_done and not _exists(error):
                raise UncertainCallError(str(error)) from error
            self._catalogue.quotas.release(uid)
            if _exists(error):
                return self._existing.of_claim(launch.request.node_claim)
            raised = self._failures.record(error, attempt, phase=REFUSED)
            raise launch.of_all_offerings(raised) from error
        except UncertainCallError:
            raise
        except CloudProviderError:
            self._catalogue.quotas.release(uid)
            raise
        self._catalogue.quotas.note_launched(uid)
        return self._accepted(vm, answer)

    def _request(self, vm: VirtualMachine, node_class: AKSNodeClass) -> ArmAnswer:
        """Send the request; once more if a backend pool was deleted since the pools were read."""
        body = vm_body(vm, node_class, self._settings)
        try:
            return self._calls.create(vm.name, body)
        except ArmError as error:
            if _exists(error):
                raise
            interface = self._network.with_current_pools(vm.interface, error)
            if interface is None:
                raise
        body = vm_body(replace(vm, interface=interface), node_class, self._settings)
        return self._calls.create(vm.name, body)

    def _virtual_machine(
        self, launch: ClaimLaunch, it: InstanceType, offering: Offering
    ) -> VirtualMachine:
        claim, node_class = launch.request.node_claim, launch.node_class
        size = self._catalogue.sizes()[it.name]
        image_id = image_for(node_class.status.images, it).id
        target = BootTarget(
            node_claim=claim,
            node_class=node_class,
            size=size,
            requirements=it.requirements,
            capacity_type=offering.capacity_type,
            zone=offering.zone,
            image_id=image_id,
            uses_ultra_ssd=uses_ultra_ssd(claim),
        )
        boot_data = self._boot.boot_data(target)
        return VirtualMachine(
            name=launch.vm_name,
            size=size,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            image_id=image_id,
            custom_data=boot_data.custom_data,
            custom_script=boot_data.custom_script,
            interface=self._network.interface(launch.vm_name, node_class, size),
            tags=instance_tags(
                node_class.spec.tags,
                additional_tags=self._settings.additional_tags,
                cluster=self._settings.cluster_name,
                claim_uid=launch.request.token,
                node_pool=launch.node_pool,
                claim_name=claim.name,
            ),
            uses_ultra_ssd=target.uses_ultra_ssd,
        )

    def _accepted(self, vm: VirtualMachine, answer: ArmAnswer) -> DescribedVm:
        """Return a virtual machine that Azure makes now, and remember its operation."""
        made = DescribedVm(
            id=instance_id(vm.name),
            name=vm.name,
            provider_id=provider_id(self._calls.resource_id(vm.name)),
            instance_type=vm.size.name,
            zone=vm.zone,
            capacity_type=vm.capacity_type,
            image_id=vm.image_id,
            launched_at=self._clock.now(),
            tags=vm.tags,
        )
        self._operations.put(made.id, operation_url(answer))
        self._scripts.put(made.id, vm.custom_script)
        return made

    # -- outcomes --------------------------------------------------------------------------------

    def _outcome(self, launch: ClaimLaunch, vm: DescribedVm) -> LaunchedInstance:
        it = self._type_of(launch, vm)
        return launched_node(launch.request.node_claim, vm, it)

    def _type_of(self, launch: ClaimLaunch, vm: DescribedVm) -> InstanceType:
        """Return the type of a virtual machine, which the claim may no longer be offered."""
        requested: Sequence[InstanceType] = launch.request.instance_types
        for types in (requested, self._catalogue.instance_types(launch.node_class)):
            for it in types:
                if it.name == vm.instance_type:
                    return it
        raise CloudProviderError(
            f'virtual machine {vm.name} has the size "{vm.instance_type}", which the region does '
            "not sell any more"
        )

    def _remember(self, request: LaunchRequest, vm: DescribedVm, outcome: LaunchedInstance) -> None:
        """Remember a launch while listings may not show it."""
        owner = ClaimRef(name=request.node_claim.name, uid=request.token)
        created = vm.launched_at or self._clock.now()
        self._recent.add(RecentLaunch.of(vm.id, owner, outcome, created=created))

    def _wait(self, vm: DescribedVm) -> None:
        """Wait for the launch of a claim that no NodePool would replace.

        Raises:
            CloudProviderError: it failed; its virtual machine is deleted.
        """
        ends_at = self._clock.monotonic() + _LONGEST_STANDALONE_WAIT.total_seconds()
        url = self._operations.get(vm.id)
        while url and self._clock.monotonic() < ends_at:
            try:
                state = self._calls.poll(url)
            except CloudProviderError as error:
                self._log.info(
                    "the operation of a launch cannot be read", vm=vm.name, error=str(error)
                )
                return
            if state.error is not None:
                self._recent.forget(vm.id)
                raise self._existing.discard(vm, state.error)
            if state.is_done:
                return
            self._sleep((state.retry_after or POLL_PERIOD).total_seconds())


def _exists(error: ArmError) -> bool:
    """Whether a request was refused because there is a virtual machine of that name."""
    return error.status == _EXISTS or error.code == _CHANGE_NOT_ALLOWED
