"""Serves Alibaba Cloud's calls: signature, throttling, denials, handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.endpoint import CallCharge, CloudEndpoint
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.protocol import ApiCall, read_call, refuse, reply
from karpenter_simulated_alibabacloud.signatures import SignatureChecker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.provider.kit.simulated.server import HttpReply, HttpRequest
    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

    Handler = Callable[[RequestParameters], object]
    Handlers = Mapping[str, Handler]

__all__ = ["Application", "denial"]

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404


@final
class Application:
    """The calls of one simulated cloud."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self.handlers: Handlers = {}
        """By service and action: `ecs:RunInstances`."""
        self.signatures: Final = SignatureChecker(account.clock)
        self.retry_after_ms: int = 0
        """Time that throttled calls should wait; 0 when they are told nothing."""
        self.endpoint: Final[CloudEndpoint[ApiCall]] = CloudEndpoint(self, account.clock)

    def read(self, request: HttpRequest) -> ApiCall:
        """Read a request."""
        return read_call(request)

    def charges(self, call: ApiCall) -> Iterable[CallCharge]:
        """Return the tokens that a call takes."""
        return (CallCharge(bucket=call.name),)

    def throttled(self, _call: ApiCall, /) -> CloudError:
        """Return the refusal of a call whose bucket is empty; `retry_after_ms` says how long."""
        return CloudError("Throttling.User", "Request was denied due to user flow control.")

    def denied(self, call: ApiCall) -> CloudError:
        """Return the refusal of a call that no policy permits."""
        return denial(call)

    def carry_out(self, call: ApiCall) -> tuple[HttpReply, str]:
        """Answer a call."""
        self.signatures.check(call.request)
        handler = self.handlers.get(call.name)
        if handler is None:
            raise CloudError(
                "InvalidAction.NotFound",
                f"Specified api is not found, please check your url and method: {call.name}.",
                status=_NOT_FOUND,
            )
        with self.endpoint.state:
            answer = handler(call.parameters)
        request_id = self._request_id()
        return reply(answer, request_id=request_id, service=call.service), "ok"

    def refuse(self, call: ApiCall | None, error: CloudError) -> HttpReply:
        """Write a refusal as the service of the call does."""
        return refuse(
            error,
            request_id=self._request_id(),
            service=call.service if call else "ecs",
            region=self._account.region,
            retry_after_ms=self.retry_after_ms if error.code.startswith("Throttling") else 0,
        )

    def _request_id(self) -> str:
        return self._account.ids.uuid().upper()


def denial(call: ApiCall) -> CloudError:
    """Return the refusal of a call that no policy permits."""
    if call.service == "cs":
        return CloudError("StatusForbidden", f"Forbidden for action {call.name}", status=_FORBIDDEN)
    return CloudError(
        "Forbidden.RAM",
        f"User not authorized to operate on the specified resource, or this API doesn't support"
        f" RAM: {call.name}.",
        status=_FORBIDDEN,
    )
