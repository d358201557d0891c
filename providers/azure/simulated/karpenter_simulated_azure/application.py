"""Serves Azure's calls: token, version, permission, throttling, handler."""

from __future__ import annotations

import json
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.endpoint import CallCharge, CloudEndpoint
from karpenter_core.provider.kit.simulated.server import HttpReply
from karpenter_simulated_azure.arm_api import ArmFault, ArmReply, ArmRoutes, error_object
from karpenter_simulated_azure.discovery import Discovery
from karpenter_simulated_azure.permissions import Permissions
from karpenter_simulated_azure.tokens import TokenService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_core.provider.kit.simulated.server import HttpRequest
    from karpenter_simulated_azure.arm_api import ArmCall
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["Application"]

_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_REMAINING: Final = {"reads": 11_999, "writes": 1_199, "deletes": 14_999}
"""Told while nothing is throttled."""
_GROUPS: Final = {
    "compute-put-vm": "PutVM3Min",
    "compute-update-vm": "UpdateVM3Min",
    "compute-delete-vm": "DeleteVM3Min",
    "compute-get-vm": "LowCostGet3Min",
}
"""Names of operation groups in refusals, by operation class."""


@final
class Application:
    """The calls of one simulated Azure: of one subscription in one region.

    Buckets are named after the operation class (`compute-put-vm`), the virtual machine
    (`compute-put-vm/NAME`), the subscription (`subscription-reads`, `-writes`, `-deletes`) and the
    action (`virtualMachines:put`).
    """

    def __init__(self, world: AzureWorld, clock: Callable[[], datetime], ids: IdGenerator) -> None:
        self._world: Final = world
        self._ids: Final = ids
        self.routes: Final = ArmRoutes()
        self.tokens: Final = TokenService(world, ids)
        self.permissions: Final = Permissions(world)
        self.endpoint: Final[CloudEndpoint[ArmCall]] = CloudEndpoint(self, clock)
        for part in (self.tokens, self.permissions, Discovery(world)):
            part.add_routes(self.routes)

    def clear(self) -> None:
        """Restore permissions and tokens."""
        self.permissions.clear()
        self.tokens.reset()

    def read(self, request: HttpRequest) -> ArmCall:
        """Read a request."""
        return self.routes.read(request)

    # -- throttling ------------------------------------------------------------------------------

    def charges(self, call: ArmCall) -> Iterable[CallCharge]:
        """Return the tokens that a call takes."""
        if call.route.public:
            return
        yield CallCharge(bucket=f"subscription-{_kind(call)}")
        if call.operation_class:
            yield CallCharge(bucket=call.operation_class)
        if call.operation_class.endswith("-vm"):
            yield CallCharge(bucket=f"{call.operation_class}/{call.names[0].lower()}")
        yield CallCharge(bucket=call.action, by_pattern=False)

    def throttled(self, call: ArmCall, /) -> CloudError:
        """Return the refusal of a call whose bucket is empty, as its resource provider words it."""
        wait = self.endpoint.throttling.wait_seconds
        operation = f"{call.method}/{call.resource_type}".upper()
        seconds = wait(f"subscription-{_kind(call)}")
        if seconds > 0:
            shown = ceil(seconds) if isfinite(seconds) else 0
            return ArmFault(
                "SubscriptionRequestsThrottled",
                f"Number of requests for subscription '{self._world.subscription_id}' and operation"
                f" '{operation}' exceeded the backend storage limit. Please try again after"
                f" '{shown}' seconds.",
                status=_TOO_MANY,
            )
        if call.operation_class == "graph":
            return ArmFault("RateLimiting", "The query is throttled.", status=_TOO_MANY)
        if not call.operation_class.startswith("compute"):
            return ArmFault("TooManyRequests", "The request is being throttled.", status=_TOO_MANY)
        group = _GROUPS.get(call.operation_class, "HighCostGet3Min")
        measured = json.dumps({"operationGroup": group, "location": self._world.location})
        return ArmFault(
            "OperationNotAllowed",
            "The server rejected the request because too many requests have been received for this"
            " subscription.",
            status=_TOO_MANY,
            details=[{"code": "TooManyRequests", "message": measured, "target": group}],
            innererror={"internalErrorCode": "TooManyRequestsReceived"},
        )

    # -- answers ---------------------------------------------------------------------------------

    def denied(self, call: ArmCall) -> CloudError:
        """Return the refusal of a call that no role permits."""
        return self.permissions.denial(call)

    def carry_out(self, call: ArmCall) -> tuple[HttpReply, str]:
        """Answer a call."""
        if not call.route.public:
            self._check(call)
        with self.endpoint.state:
            reply = call.route.handler(call)
        outcome = "ok" if reply.status < 400 else str(reply.status)  # noqa: PLR2004 - HTTP errors
        return self._write(call, reply), outcome

    def refuse(self, call: ArmCall | None, error: CloudError) -> HttpReply:
        """Write a refusal."""
        seconds = error.retry_after_seconds
        headers = dict(error.headers) if isinstance(error, ArmFault) else {}
        if seconds is not None and isfinite(seconds):
            headers["Retry-After"] = str(ceil(seconds))
        body: Mapping[str, object] = {"error": error_object(error)}
        if isinstance(error, ArmFault) and error.is_flat:
            body = {**error_object(error), "subcode": ""}
        if call is not None and call.action == "tokens:post":
            body = {"error": error.code, "error_description": error.message}
        return self._write(call, ArmReply(status=error.status, body=body, headers=headers))

    def _check(self, call: ArmCall) -> None:
        """Check what Azure Resource Manager checks before it asks a resource provider."""
        self.tokens.check(call)
        versions = call.route.api_versions
        if versions is not None and not call.api_version:
            raise ArmFault(
                "MissingApiVersionParameter",
                "The api-version query parameter (?api-version=) is required for all requests.",
            )
        if call.subscription and call.subscription.lower() != self._world.subscription_id:
            raise ArmFault(
                "SubscriptionNotFound",
                f"The subscription '{call.subscription}' could not be found.",
                status=_NOT_FOUND,
            )
        self.permissions.check(call)
        if versions is not None and not versions.accept(call.api_version):
            kind = call.resource_type.partition("/")[2]
            raise ArmFault(
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location '{self._world.location}' and"
                f" API version '{call.api_version}' for type '{kind}'. The supported api-versions"
                f" are '{versions.earliest}, {versions.latest}'. The supported locations are"
                f" '{self._world.location}'.",
            )
        group = call.resource_group.lower()
        if group and group not in {each.lower() for each in self._world.groups}:
            raise ArmFault(
                "ResourceGroupNotFound",
                f"Resource group '{call.resource_group}' could not be found.",
                status=_NOT_FOUND,
            )

    def _write(self, call: ArmCall | None, reply: ArmReply) -> HttpReply:
        request_id = self._ids.uuid()
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Cache-Control": "no-cache",
            "x-ms-request-id": request_id,
            "x-ms-correlation-request-id": request_id,
            "x-ms-routing-request-id": f"{self._world.location.upper()}:{request_id}",
        }
        if call is not None and not call.route.public:
            headers |= self._remaining(call)
        if call is not None and (client_id := call.headers.get("x-ms-client-request-id")):
            headers["x-ms-client-request-id"] = client_id
        headers |= reply.headers
        body = b"" if reply.body is None else json.dumps(reply.body).encode()
        return HttpReply(status=reply.status, headers=tuple(headers.items()), body=body)

    def _remaining(self, call: ArmCall) -> Mapping[str, str]:
        """Return the headers that say how many more calls are permitted."""
        kind, left = _kind(call), self.endpoint.throttling.left
        of_subscription, of_class = left(f"subscription-{kind}"), left(call.operation_class)
        shown = _REMAINING[kind] if of_subscription is None else int(of_subscription)
        headers = {f"x-ms-ratelimit-remaining-subscription-{kind}": str(shown)}
        if of_class is None:
            return headers
        if call.operation_class == "graph":
            headers["x-ms-user-quota-remaining"] = str(int(of_class))
        elif call.operation_class.startswith("compute-"):
            group = call.operation_class.title().replace("-", "")
            headers["x-ms-ratelimit-remaining-resource"] = (
                f"Microsoft.Compute/{group};{int(of_class)}"
            )
        return headers


def _kind(call: ArmCall) -> str:
    if call.method in {"GET", "LIST"}:
        return "reads"
    return "deletes" if call.method == "DELETE" else "writes"
