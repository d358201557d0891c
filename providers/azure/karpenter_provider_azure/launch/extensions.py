"""Installs the extensions of virtual machines whose launch has succeeded.

An extension can be added only to a virtual machine that has been made, and only one at a time. Which ones are
missing is read from Azure, so that a process that starts continues the work of the one before it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.errors import BadInputError, CloudProviderError, ThrottledError
from karpenter_core.provider.contract import PeriodicTask
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.launch.boot_data import SCRIPT_EXTENSION, BootTarget
from karpenter_provider_azure.launch.claim_launches import uses_ultra_ssd
from karpenter_provider_azure.launch.failure_recorder import LOG_NAME
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ClaimReader
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.launch.boot_data import BootDataBuilder
    from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
    from karpenter_provider_azure.launch.vm_calls import VmCalls
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "BILLING_EXTENSION",
    "SCRIPT_EXTENSION",
    "CustomScripts",
    "ExtensionInstaller",
    "billing_extension",
    "script_extension",
]

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
            is_listed = it.name == vm.instance_type and any(
                (each.zone, each.capacity_type) == (vm.zone, vm.capacity_type)
                for each in it.offerings
            )
            if is_listed and size is not None:
                return BootTarget(
                    node_claim=claim,
                    node_class=node_class,
                    size=size,
                    requirements=it.requirements,
                    capacity_type=vm.capacity_type,
                    zone=vm.zone,
                    image_id=vm.image_id,
                    uses_ultra_ssd=uses_ultra_ssd(claim),
                )
        raise CloudProviderError(
            f"the offering of virtual machine {vm.name} is not in the catalogue: "
            f"{vm.instance_type} in {vm.zone} ({vm.capacity_type})"
        )


BILLING_EXTENSION: Final = "computeAksLinuxBilling"
TASK_NAME: Final = "extensions"
PERIOD: Final = timedelta(seconds=15)
_NEW_WITHIN: Final = timedelta(minutes=30)
"""Claims of this age may wait for extensions; virtual machines are listed while there are any."""
_LOOKED_FOR_EVERY: Final = timedelta(hours=1)
"""Period between two listings of virtual machines without a new claim."""
_REPEATED_AFTER: Final = timedelta(hours=6)
"""An extension that Azure accepted and that is not listed by then is requested again."""
_RETRIED_AFTER: Final = timedelta(minutes=5)
"""An extension that was refused is requested again."""


def billing_extension(location: str, tags: Mapping[str, str]) -> JsonObject:
    """Return the body of the extension by which Azure bills nodes of AKS."""
    return _extension(location, tags, "Microsoft.AKS", "Compute.AKS.Linux.Billing", "1.0")


def script_extension(location: str, tags: Mapping[str, str], script: str) -> JsonObject:
    """Return the body of the extension that runs the script by which a node joins."""
    body = _extension(location, tags, "Microsoft.Azure.Extensions", "CustomScript", "2.0")
    body["properties"]["protectedSettings"] = {"commandToExecute": script}
    return body


def _extension(
    location: str, tags: Mapping[str, str], publisher: str, kind: str, version: str
) -> JsonObject:
    return {
        "location": location,
        "tags": dict(tags),
        "properties": {
            "publisher": publisher,
            "type": kind,
            "typeHandlerVersion": version,
            "autoUpgradeMinorVersion": True,
            "settings": {},
        },
    }


@final
class ExtensionInstaller:
    """Installs missing extensions, as a periodic task of the leader."""

    def __init__(
        self,
        settings: AzureSettings,
        clock: Clock,
        *,
        calls: VmCalls,
        list_vms: Callable[[], Iterable[DescribedVm]],
        read_claims: ClaimReader,
        scripts: CustomScripts | None,
    ) -> None:
        """`list_vms` lists the virtual machines of the cluster; it may raise CloudProviderError.

        `scripts` is None if nodes join by their custom data alone.
        """
        self._settings: Final = settings
        self._clock: Final = clock
        self._calls: Final = calls
        self._list_vms: Final = list_vms
        self._read_claims: Final = read_claims
        self._scripts: Final = scripts
        self._requested: Final[TtlCache[tuple[str, str, str], bool]] = TtlCache(
            clock, _REPEATED_AFTER
        )
        self._listed_at: float | None = None
        self._log: FilteringBoundLogger = structlog.get_logger(LOG_NAME)

    def task(self) -> PeriodicTask:
        """Return the task."""
        return PeriodicTask(name=TASK_NAME, period=PERIOD, run=self.run)

    def run(self) -> None:
        """Install the next missing extension of each virtual machine that has been made.

        Raises:
            CloudProviderError: the virtual machines could not be listed, or calls are throttled.
        """
        claims = {vm_name(name).lower(): claim for name, claim in self._read_claims().items()}
        if not self._wanted(None) or not self._may_be_missing(claims.values()):
            return
        vms = tuple(self._list_vms())
        self._listed_at = self._clock.monotonic()
        for vm in vms:
            claim = claims.get(vm.id)
            missing = [name for name in self._wanted(claim) if name.lower() not in vm.extensions]
            if vm.has_succeeded and missing:
                self._install(vm, missing[0], claim)

    def _wanted(self, claim: NodeClaim | None) -> tuple[str, ...]:
        """Return the extensions of a virtual machine, in the order in which they are added.

        A node that has joined without the script did so by its custom data.
        """
        has_joined = claim is not None and is_true(claim.status.conditions, REGISTERED)
        script = (SCRIPT_EXTENSION,) if self._scripts is not None and not has_joined else ()
        billing = (BILLING_EXTENSION,) if self._settings.cloud.has_billing_extension else ()
        return script + billing

    def _may_be_missing(self, claims: Iterable[NodeClaim]) -> bool:
        if (
            self._listed_at is None
            or self._clock.monotonic() - self._listed_at >= _LOOKED_FOR_EVERY.total_seconds()
        ):
            return True
        now = self._clock.now()
        return any(
            claim.metadata.creation_timestamp is None
            or now - claim.metadata.creation_timestamp < _NEW_WITHIN
            for claim in claims
        )

    def _install(self, vm: DescribedVm, extension: str, claim: NodeClaim | None) -> None:
        key = vm.name, vm.vm_id, extension
        if self._requested.get(key):
            return
        try:
            body = self._body(vm, extension, claim)
            if body is None:
                return
            self._calls.put_extension(vm.name, extension, body)
        except ArmNotFoundError:
            return
        except ThrottledError:
            raise
        except (CloudProviderError, BadInputError) as error:
            self._log.warning(
                "an extension cannot be installed",
                vm=vm.name,
                extension=extension,
                error=str(error),
            )
            self._requested.put(key, value=True, ttl=_RETRIED_AFTER)
        else:
            self._requested.put(key, value=True)

    def _body(self, vm: DescribedVm, extension: str, claim: NodeClaim | None) -> JsonObject | None:
        """Return the body of an extension; None if it cannot be made without the claim."""
        location = self._settings.location
        if extension == BILLING_EXTENSION:
            return billing_extension(location, vm.tags)
        if claim is None or self._scripts is None:
            return None
        return script_extension(location, vm.tags, self._scripts.script(vm, claim))
