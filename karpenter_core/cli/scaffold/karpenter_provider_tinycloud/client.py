"""Calls the cloud's REST API; raises its refusals as typed errors.

Every call has a time limit, shorter than that of the hooks. The client may be used from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final
from urllib.parse import quote

from karpenter_core.api.json_objects import JsonObject
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    TerminationRefusedError,
)
from karpenter_core.provider.kit.calls.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

__all__ = ["Json", "TinyCloudClient"]

Json: TypeAlias = JsonObject


@final
class TinyCloudClient:
    """Calls the cloud; raises a typed error for each refusal."""

    def __init__(self, endpoint: str, token: str, *, timeout: timedelta) -> None:
        self._rest: Final = RestClient(
            endpoint,
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            error_of=_error_of,
        )

    def sizes(self) -> Sequence[Json]:
        """List the VM sizes."""
        return self._rest.get("list sizes", "/v1/sizes", Json)["sizes"]

    def image_version(self, name: str) -> str | None:
        """Return the newest version of an image; None when there is no such image."""
        found = self._rest.find("get image", f"/v1/images/{quote(name, safe='')}", Json)
        return found["version"] if found else None

    def create_vm(self, wish: Mapping[str, object]) -> Json:
        """Create a VM, or return the one that was created with the same token."""
        return self._rest.call("create VM", "POST", "/v1/vms", Json, body=wish)

    def vms(self, cluster: str) -> Json:
        """List a cluster's VMs, and the zones that could not be read."""
        return self._rest.get("list VMs", "/v1/vms", Json, cluster=cluster)

    def vm(self, vm_id: str) -> Json | None:
        """Fetch a VM; None if it does not exist."""
        return self._rest.find("get VM", _path(vm_id), Json)

    def tag_vm(self, vm_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to a VM; one that does not exist is left alone."""
        self._rest.find("tag VM", _path(vm_id), Json, method="PATCH", body={"tags": dict(tags)})

    def delete_vm(self, vm_id: str) -> bool:
        """Start the deletion of a VM; False if it does not exist."""
        return self._rest.find("delete VM", _path(vm_id), Json, method="DELETE") is not None

    def notices(self, cluster: str) -> Sequence[Json]:
        """List the interruption notices for a cluster's VMs."""
        return self._rest.get("list notices", "/v1/notices", Json, cluster=cluster)["notices"]

    def delete_notice(self, notice_id: str) -> None:
        """Delete an interruption notice."""
        path = f"/v1/notices/{quote(notice_id, safe='')}"
        self._rest.find("delete notice", path, Json, method="DELETE")


def _path(vm_id: str) -> str:
    return f"/v1/vms/{quote(vm_id, safe='')}"


def _error_of(code: str, message: str) -> CloudProviderError | None:
    """Return the error for a code of the cloud; None leaves the refusal as it is."""
    match code:
        case "token-used":
            return LaunchFailedError(message, reason="InstanceGone")
        case "protected":
            return TerminationRefusedError(message)
        case "sold-out":
            return InsufficientCapacityError(message)
        case "quota":
            return InsufficientCapacityError(message, scope=ExhaustedScope.REGION)
        case "invalid":
            return LaunchFailedError(message, reason="InvalidRequest")
        case _:
            return None
