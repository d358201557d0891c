"""Handles calls to a simulated cloud: faults, throttling, answer and log.

Every call passes through the same steps: the cloud reads it, a fault may strike it, its operation
class may be throttled, the cloud carries it out, and the log records the outcome. A cloud supplies a
`CloudApi`, which knows its protocol and its handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.provider.kit.simulated.calls import CallLog, LoggedCall, NamedCall
from karpenter_core.provider.kit.simulated.faults import CloudError, CloudFaultKind, CloudFaults
from karpenter_core.provider.kit.simulated.rates import CallRates
from karpenter_core.provider.kit.simulated.server import HttpReply
from karpenter_core.provider.kit.simulated.tokens import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.faults import CloudFault
    from karpenter_core.provider.kit.simulated.server import HttpRequest

__all__ = ["CallCharge", "CloudApi", "CloudControls", "CloudEndpoint", "ServiceCall"]

_LONGEST_SILENCE_SECONDS: Final = 300
_AFTER_THE_CALL: Final = frozenset({CloudFaultKind.LOST_REPLY, CloudFaultKind.CUT_BODY})


class ServiceCall(NamedCall, Protocol):
    """A call as an endpoint handles it."""

    @property
    def service(self) -> str:
        """The service that the call is for; may be empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCharge:
    """Tokens that a call takes from one bucket."""

    bucket: str
    """Name of the call or of its operation class."""
    tokens: float = 1
    by_pattern: bool = True
    """Whether a rate for a pattern applies too; False if only a rate of this name does."""


Call = TypeVar("Call", bound=ServiceCall)


class CloudApi(Protocol[Call]):
    """The protocol and the handlers of a cloud."""

    def read(self, request: HttpRequest) -> Call | HttpReply | None:
        """Read a request; a reply is sent as it is, without faults, throttling and log.

        None cuts the connection.

        Raises:
            CloudError: there is no such call; `refuse` words it.
        """
        ...

    def charges(self, call: Call) -> Iterable[CallCharge]:
        """Return the tokens that the call takes; it is refused at the first empty bucket."""
        ...

    def throttled(self, call: Call, /) -> CloudError:
        """Return the refusal of a call whose bucket is empty.

        The endpoint sets its `retry_after_seconds`; `refuse` may write it.
        """
        ...

    def denied(self, call: Call) -> CloudError:
        """Return the refusal of a call that no policy permits."""
        ...

    def carry_out(self, call: Call) -> tuple[HttpReply, str]:
        """Carry the call out; return the reply and the outcome for the log, `ok` or an error code.

        Raises:
            CloudError: it is refused; `refuse` words it.
            NoAnswerError: it is carried out, and its caller gets no answer.
        """
        ...

    def refuse(self, call: Call | None, error: CloudError, /) -> HttpReply:
        """Write a refusal as the service of the call does; None if no call was read."""
        ...


class CloudControls:
    """Lock, faults, throttling and log of an endpoint."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.state: Final = RLock()
        """Held while a call or a test reads or changes the state of the cloud."""
        self.faults: Final = CloudFaults()
        self.throttling: Final = CallRates(clock)
        self.calls: Final = CallLog()


@final
class CloudEndpoint(CloudControls, Generic[Call]):
    """The HTTP application of a simulated cloud."""

    def __init__(self, api: CloudApi[Call], clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self._api: Final = api
        self._clock: Final = clock

    def __call__(self, request: HttpRequest) -> HttpReply | None:
        """Answer one request; None if the connection is to be cut."""
        try:
            call = self._api.read(request)
        except CloudError as error:
            return self._api.refuse(None, error)
        if call is None or isinstance(call, HttpReply):
            return call
        fault = self.faults.strike(call)
        if fault is not None and fault.kind not in _AFTER_THE_CALL:
            return self._struck(call, fault)
        try:
            self._throttle(call)
            reply, outcome = self._api.carry_out(call)
        except CloudError as error:
            reply, outcome = self._api.refuse(call, error), error.code
        except NoAnswerError:
            reply, outcome = None, CloudFaultKind.LOST_REPLY
        if fault is not None and fault.kind is CloudFaultKind.CUT_BODY and reply is not None:
            reply, outcome = replace(reply, is_cut=True), CloudFaultKind.CUT_BODY
        elif fault is not None:
            reply, outcome = None, CloudFaultKind.LOST_REPLY
        self._log(call, outcome)
        return reply

    def _throttle(self, call: Call) -> None:
        rates = self.throttling
        for charge in self._api.charges(call):
            name, tokens, by_pattern = charge.bucket, charge.tokens, charge.by_pattern
            if not rates.take(name, tokens, by_pattern=by_pattern):
                error = self._api.throttled(call)
                error.retry_after_seconds = rates.wait_seconds(name, tokens, by_pattern=by_pattern)
                raise error

    def _struck(self, call: Call, fault: CloudFault) -> HttpReply | None:
        if fault.kind is CloudFaultKind.REFUSED:
            error = fault.error or self._api.denied(call)
            self._log(call, error.code)
            return self._api.refuse(call, error)
        self._log(call, fault.kind)
        if fault.kind is CloudFaultKind.SILENT:
            self.faults.hang(fault, seconds=_LONGEST_SILENCE_SECONDS)
        return None

    def _log(self, call: Call, outcome: str) -> None:
        self.calls.add(
            LoggedCall(
                service=call.service,
                action=call.action,
                at=self._clock(),
                parameters=call.parameters,
                outcome=str(outcome),
            )
        )
