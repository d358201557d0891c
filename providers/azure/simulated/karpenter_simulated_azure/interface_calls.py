"""The calls about network interfaces."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_azure.arm_api import ArmFault, ArmReply
from karpenter_simulated_azure.network_interfaces import (
    INTERFACE_TYPE,
    check_tags,
    in_use_fault,
    reserved_fault,
)
from karpenter_simulated_azure.networks import NETWORK_VERSIONS
from karpenter_simulated_azure.resources import check_etag, not_found, page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.network_interfaces import NetworkInterface, NetworkInterfaces
    from karpenter_simulated_azure.operations import Operations
    from karpenter_simulated_azure.permissions import Permissions
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["InterfaceCalls"]

_CREATED: Final = 201
_ACCEPTED: Final = 202
_NO_CONTENT: Final = 204
_PAGE: Final = 100


@final
class InterfaceCalls:
    """The calls about network interfaces."""

    def __init__(
        self,
        world: AzureWorld,
        interfaces: NetworkInterfaces,
        operations: Operations,
        permissions: Permissions,
        clock: Callable[[], datetime],
    ) -> None:
        self._world: Final = world
        self._interfaces: Final = interfaces
        self._operations: Final = operations
        self._permissions: Final = permissions
        self._clock: Final = clock
        self.page_size = _PAGE

    def clear(self) -> None:
        """Restore the default."""
        self.page_size = _PAGE

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        for method, handler in (
            ("PUT", self._put),
            ("GET", self._get),
            ("LIST", self._list),
            ("PATCH", self._patch),
            ("DELETE", self._delete),
        ):
            routes.add(method, INTERFACE_TYPE, handler, api_versions=NETWORK_VERSIONS)

    def _found(self, call: ArmCall) -> NetworkInterface:
        found = self._interfaces.get(call.path)
        if found is None:
            raise not_found(call)
        return found

    def _get(self, call: ArmCall) -> ArmReply:
        found = self._found(call)
        return ArmReply(body=found.to_json(self._clock()), headers={"ETag": found.etag})

    def _list(self, call: ArmCall) -> ArmReply:
        scope = call.path.lower().partition("/providers/")[0]
        now = self._clock()
        items = [
            each.to_json(now)
            for each in self._interfaces.all
            if each.id.lower().startswith(f"{scope}/")
        ]
        return page(call, items, size=self.page_size)

    def _put(self, call: ArmCall) -> ArmReply:
        before = self._interfaces.get(call.path)
        check_etag(call, before.etag if before is not None else None)
        location = str(call.body.get("location") or "").lower().replace(" ", "")
        if not location:
            raise ArmFault(
                "LocationRequired", "The location property is required for this definition."
            )
        if location != self._world.location:
            raise ArmFault(
                "LocationNotAvailableForResourceType",
                f"The provided location '{location}' is not available for resource type"
                f" '{INTERFACE_TYPE}'. List of available regions for the resource type is"
                f" '{self._world.location}'.",
            )
        found = self._interfaces.create(
            call.path,
            call.body.get("properties") or {},
            tags=_tags(call),
            permit=partial(self._permissions.check_linked, call),
        )
        now = self._clock()
        operation = self._operations.start(
            call, done_at=found.ready_at, on_result=lambda: found.to_json(self._clock())
        )
        headers = {**operation.headers, "ETag": found.etag}
        del headers["Location"]  # a PUT answers with the resource itself
        status = _CREATED if before is None else 200
        return ArmReply(status=status, body=found.to_json(now), headers=headers)

    def _patch(self, call: ArmCall) -> ArmReply:
        found = self._found(call)
        check_etag(call, found.etag)
        tags = _tags(call)
        check_tags(tags)
        found.tags = tags
        found.version += 1
        return ArmReply(body=found.to_json(self._clock()), headers={"ETag": found.etag})

    def _delete(self, call: ArmCall) -> ArmReply:
        found = self._interfaces.get(call.path)
        if found is None:
            return ArmReply(status=_NO_CONTENT)
        check_etag(call, found.etag)
        now = self._clock()
        if attached := found.attached_to(now):
            raise in_use_fault(found, attached)
        if machine := found.reserved_by(now):
            raise reserved_fault(machine)
        if found.gone_at is None:
            seconds = self._interfaces.deletion_seconds
            self._interfaces.remove(found.id, at=now + timedelta(seconds=seconds))
        operation = self._operations.start(call, done_at=found.gone_at)
        return ArmReply(status=_ACCEPTED, headers=operation.headers)


def _tags(call: ArmCall) -> dict[str, str]:
    found: object = call.body.get("tags") or {}
    if not isinstance(found, dict):
        raise ArmFault("InvalidRequestContent", "The tags of the request are not an object.")
    return {key: str(value) for key, value in cast("Mapping[str, object]", found).items()}
