"""The endpoint: every call passes the signature, faults, throttling and the log, then its handler."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.calls import CallLog, LoggedCall
from karpenter_core.provider.kit.simulated.faults import CloudError, FaultKind, Faults
from karpenter_core.provider.kit.simulated.rates import Rates
from karpenter_simulated_alibabacloud.signatures import Signatures
from karpenter_simulated_alibabacloud.tokens import NoAnswerError
from karpenter_simulated_alibabacloud.wire import Reply, read_call, refuse, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.kit.simulated.faults import Fault
    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import Parameters
    from karpenter_simulated_alibabacloud.wire import Call, Request

    Handler = Callable[[Parameters], object]
    Handlers = Mapping[str, Handler]

__all__ = ["Application", "denial"]

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_LONGEST_SILENCE_SECONDS: Final = 300


@final
class Application:
    """What answers requests; one for each simulated cloud."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self.handlers: Handlers = {}
        """By service and action: `ecs:RunInstances`."""
        self.state: Final = RLock()
        """Held while a handler reads or changes what the cloud holds."""
        self.faults: Final = Faults()
        self.rates: Final = Rates(account.clock)
        self.calls: Final = CallLog()
        self.signatures: Final = Signatures(account.clock)
        self.retry_after_ms: int = 0
        """What throttled calls are told to wait; 0 when they are told nothing."""

    def __call__(self, request: Request) -> Reply | None:
        """Answer one request; None when the connection is to be cut."""
        request_id = self._account.ids.request_id()
        try:
            call = read_call(request)
        except CloudError as error:
            return self._refused(error, request_id, "ecs")
        fault = self.faults.strike(call)
        if fault is not None and fault.kind is not FaultKind.LOST_REPLY:
            return self._struck(call, fault, request_id)
        try:
            self.signatures.check(request)
            self._throttle(call)
            with self.state:
                answer = self._handler(call)(call.parameters)
        except CloudError as error:
            self._log(call, FaultKind.LOST_REPLY if fault else error.code)
            return None if fault else self._refused(error, request_id, call.service)
        except NoAnswerError:
            self._log(call, FaultKind.LOST_REPLY)
            return None
        self._log(call, FaultKind.LOST_REPLY if fault else "ok")
        return None if fault else reply(answer, request_id=request_id, service=call.service)

    def _throttle(self, call: Call) -> None:
        if not self.rates.take(call.name):
            raise CloudError("Throttling.User", "Request was denied due to user flow control.")

    def _handler(self, call: Call) -> Handler:
        handler = self.handlers.get(call.name)
        if handler is None:
            raise CloudError(
                "InvalidAction.NotFound",
                f"Specified api is not found, please check your url and method: {call.name}.",
                status=_NOT_FOUND,
            )
        return handler

    def _struck(self, call: Call, fault: Fault, request_id: str) -> Reply | None:
        if fault.kind is FaultKind.REFUSED:
            error = fault.error or denial(call)
            self._log(call, error.code)
            return self._refused(error, request_id, call.service)
        self._log(call, fault.kind)
        if fault.kind is FaultKind.SILENT:
            self.faults.hang(fault, seconds=_LONGEST_SILENCE_SECONDS)
        return None

    def _refused(self, error: CloudError, request_id: str, service: str) -> Reply:
        return refuse(
            error,
            request_id=request_id,
            service=service,
            region=self._account.region,
            retry_after_ms=self.retry_after_ms if error.code.startswith("Throttling") else 0,
        )

    def _log(self, call: Call, outcome: str) -> None:
        self.calls.add(
            LoggedCall(
                service=call.service,
                action=call.action,
                at=self._account.clock(),
                parameters=call.parameters,
                outcome=str(outcome),
            )
        )


def denial(call: Call) -> CloudError:
    """Return the refusal of a call that no policy permits."""
    if call.service == "cs":
        return CloudError("StatusForbidden", f"Forbidden for action {call.name}", status=_FORBIDDEN)
    return CloudError(
        "Forbidden.RAM",
        f"User not authorized to operate on the specified resource, or this API doesn't support"
        f" RAM: {call.name}.",
        status=_FORBIDDEN,
    )
