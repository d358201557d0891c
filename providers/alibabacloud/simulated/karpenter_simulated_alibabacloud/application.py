"""The endpoint: signature, faults, throttling and log, then the handler."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.calls import CallLog, LoggedCall
from karpenter_core.provider.kit.simulated.faults import CloudError, CloudFaultKind, CloudFaults
from karpenter_core.provider.kit.simulated.rates import CallRates
from karpenter_simulated_alibabacloud.protocol import HttpReply, read_call, refuse, reply
from karpenter_simulated_alibabacloud.signatures import SignatureChecker
from karpenter_simulated_alibabacloud.tokens import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.kit.simulated.faults import CloudFault
    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.protocol import ApiCall, HttpRequest

    Handler = Callable[[RequestParameters], object]
    Handlers = Mapping[str, Handler]

__all__ = ["Application", "denial"]

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_LONGEST_SILENCE_SECONDS: Final = 300


@final
class Application:
    """The HTTP application; one for each simulated cloud."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self.handlers: Handlers = {}
        """By service and action: `ecs:RunInstances`."""
        self.state: Final = RLock()
        """Held while a handler reads or changes what the cloud holds."""
        self.faults: Final = CloudFaults()
        self.rates: Final = CallRates(account.clock)
        self.calls: Final = CallLog()
        self.signatures: Final = SignatureChecker(account.clock)
        self.retry_after_ms: int = 0
        """Seconds that throttled calls should wait; 0 when they are told nothing."""

    def __call__(self, request: HttpRequest) -> HttpReply | None:
        """Answer one request; None when the connection is to be cut."""
        request_id = self._account.ids.request_id()
        try:
            call = read_call(request)
        except CloudError as error:
            return self._refused(error, request_id, "ecs")
        fault = self.faults.strike(call)
        if fault is not None and fault.kind is not CloudFaultKind.LOST_REPLY:
            return self._struck(call, fault, request_id)
        try:
            self.signatures.check(request)
            self._throttle(call)
            with self.state:
                answer = self._handler(call)(call.parameters)
        except CloudError as error:
            self._log(call, CloudFaultKind.LOST_REPLY if fault else error.code)
            return None if fault else self._refused(error, request_id, call.service)
        except NoAnswerError:
            self._log(call, CloudFaultKind.LOST_REPLY)
            return None
        self._log(call, CloudFaultKind.LOST_REPLY if fault else "ok")
        return None if fault else reply(answer, request_id=request_id, service=call.service)

    def _throttle(self, call: ApiCall) -> None:
        if not self.rates.take(call.name):
            raise CloudError("Throttling.User", "Request was denied due to user flow control.")

    def _handler(self, call: ApiCall) -> Handler:
        handler = self.handlers.get(call.name)
        if handler is None:
            raise CloudError(
                "InvalidAction.NotFound",
                f"Specified api is not found, please check your url and method: {call.name}.",
                status=_NOT_FOUND,
            )
        return handler

    def _struck(self, call: ApiCall, fault: CloudFault, request_id: str) -> HttpReply | None:
        if fault.kind is CloudFaultKind.REFUSED:
            error = fault.error or denial(call)
            self._log(call, error.code)
            return self._refused(error, request_id, call.service)
        self._log(call, fault.kind)
        if fault.kind is CloudFaultKind.SILENT:
            self.faults.hang(fault, seconds=_LONGEST_SILENCE_SECONDS)
        return None

    def _refused(self, error: CloudError, request_id: str, service: str) -> HttpReply:
        return refuse(
            error,
            request_id=request_id,
            service=service,
            region=self._account.region,
            retry_after_ms=self.retry_after_ms if error.code.startswith("Throttling") else 0,
        )

    def _log(self, call: ApiCall, outcome: str) -> None:
        self.calls.add(
            LoggedCall(
                service=call.service,
                action=call.action,
                at=self._account.clock(),
                parameters=call.parameters,
                outcome=str(outcome),
            )
        )


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
