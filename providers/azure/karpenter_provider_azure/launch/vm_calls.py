"""Makes the calls that concern one virtual machine."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, final
from urllib.parse import quote

from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.arm.operations import OperationState, state_of_poll
from karpenter_provider_azure.described_vms import VM_API_VERSION
from karpenter_provider_azure.json_values import object_of, objects_of
from karpenter_provider_azure.resource_ids import vm_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_provider_azure.arm.client import ArmAnswer, ArmClient
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["OpenOperations", "VmCalls", "open_operations"]

_NEW_ONLY: Final = {"If-None-Match": "*"}
_STATE: Final = "provisioningstate"
_FAILED: Final = frozenset({"failed", "canceled"})


OpenOperations: TypeAlias = "TtlCache[str, str]"
"""URLs of the operations that make virtual machines, by instance id; empty for an unknown one."""


def open_operations(clock: Clock) -> OpenOperations:
    """Return no operations; a launch that takes longer than an hour has been given up before."""
    return TtlCache(clock, timedelta(hours=1))


@final
class VmCalls:
    """Creates, reads and deletes virtual machines by name; callable from any thread.

    Every method raises the errors of `ArmClient`. Changes are fenced.
    """

    def __init__(
        self,
        arm: ArmClient,
        settings: AzureSettings,
        fence: LeaderFence,
        *,
        image_headers: Callable[[], Mapping[str, str]],
        note_deleted: Callable[[], None],
    ) -> None:
        """`image_headers` returns the headers that permit images of other tenants; may raise.

        `note_deleted` is called after each deletion that Azure has accepted.
        """
        self._arm: Final = arm
        self._settings: Final = settings
        self._fence: Final = fence
        self._image_headers: Final = image_headers
        self._note_deleted: Final = note_deleted

    def resource_id(self, name: str) -> str:
        """Return the id of a virtual machine."""
        return vm_id(self._arm.subscription_id, self._settings.node_resource_group, name)

    def create(self, name: str, body: JsonMapping) -> ArmAnswer:
        """Create a virtual machine that does not exist; the answer comes before it is made.

        One of that name is refused with status 412. So a request without an answer may be repeated: the
        repetition never changes what the first one made.
        """
        headers = {**_NEW_ONLY, **self._image_headers()}
        self._fence.check()
        return self._arm.send(
            "PUT",
            self._path(name),
            api_version=VM_API_VERSION,
            action="virtualMachines:put",
            body=body,
            headers=headers,
        )

    def failure(self, name: str) -> ArmError | None:
        """Return the error of the last operation of a virtual machine, as its instance view tells.

        None if the virtual machine does not exist any more, or tells no failure.
        """
        try:
            body = self._arm.get(
                self._path(name),
                api_version=VM_API_VERSION,
                action="virtualMachines:get",
                query={"$expand": "instanceView"},
            )
        except ArmNotFoundError:
            return None
        return failure_in_view(body)

    def delete(self, name: str) -> None:
        """Start the deletion of a virtual machine, its disk and its interface; return if it is gone.

        The deletion is forced: nothing on the node is worth a graceful shutdown.
        """
        self._fence.check()
        try:
            self._arm.send(
                "DELETE",
                self._path(name),
                api_version=VM_API_VERSION,
                action="virtualMachines:delete",
                query={"forceDeletion": "true"},
            )
        except ArmNotFoundError:
            return
        self._note_deleted()

    def put_extension(self, name: str, extension: str, body: JsonMapping) -> None:
        """Start the installation of an extension."""
        headers = self._image_headers()
        self._fence.check()
        self._arm.send(
            "PUT",
            f"{self._path(name)}/extensions/{quote(extension, safe='')}",
            api_version=VM_API_VERSION,
            action="virtualMachines/extensions:put",
            body=body,
            headers=headers,
        )

    def poll(self, url: str) -> OperationState:
        """Return the state of an operation by its URL."""
        return state_of_poll(self._arm.follow(url, action="operations:get"))

    def _path(self, name: str) -> str:
        return self.resource_id(quote(name, safe=""))


def failure_in_view(body: JsonMapping) -> ArmError | None:
    """Return the failure in the statuses of an instance view; None if there is none.

    The code of such a status is `ProvisioningState/failed/CODE`, its message that of the error.
    """
    view = object_of(object_of(body.get("properties")).get("instanceView"))
    for status in objects_of(view.get("statuses")):
        state, result, code = [*str(status.get("code") or "").split("/", 2), "", ""][:3]
        if state.lower() == _STATE and result.lower() in _FAILED:
            message = str(status.get("message") or status.get("displayStatus") or "")
            return ArmError(message, code=code or result)
    return None
