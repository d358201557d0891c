"""The calls of AWS: throttling and denials, then our handlers or moto."""

from __future__ import annotations

import re
from threading import RLock
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.endpoint import CallCharge, CloudEndpoint
from karpenter_core.provider.kit.simulated.server import HttpReply
from karpenter_simulated_aws.denials import denial
from karpenter_simulated_aws.model_checks import model_violation
from karpenter_simulated_aws.protocol import (
    ApiCall,
    AwsError,
    read_call,
    refuse,
    reply,
    wsgi_environ,
)
from karpenter_simulated_aws.throttling import charges, throttled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_core.provider.kit.simulated.server import HttpRequest
    from karpenter_simulated_aws.account import Account

    Handler = Callable[..., Mapping[str, object]]
    Handlers = Mapping[str, Handler]

__all__ = ["OWNER_ACCESS_KEY", "Application", "Handlers", "dry_run_success"]

OWNER_ACCESS_KEY: Final = "AKIASIMULATEDOWNER00"
"""Calls with this access key build the world: no fault, limit or log is for them."""

_KEPT_ANSWERS: Final = 256
_PRECONDITION_FAILED: Final = 412
_REFUSED: Final = 400
_SERVER_ERROR: Final = 500
_READS: Final = ("Describe", "Get", "List")
_TAGGING: Final = frozenset({"CreateTags", "DeleteTags"})
_CODE: Final = re.compile(rb'<Code>([^<]*)</Code>|"__type":\s*"([^"]*)"')


@final
class Application:
    """The calls of one simulated AWS."""

    def __init__(self, account: Account) -> None:
        from moto.moto_server.werkzeug_app import (  # pyright: ignore[reportMissingTypeStubs] - moto types its backends only
            DomainDispatcherApplication,
            create_backend_app,
        )

        self._account: Final = account
        self._moto: Final = DomainDispatcherApplication(create_backend_app)
        self._answers: Final[dict[tuple[str, bytes], HttpReply]] = {}
        self.handlers: Handlers = {}
        """By service and action; what is not here goes to moto."""
        self.unchanging: frozenset[str] = frozenset()
        """Actions that answer the same call alike until `forget` is told of them."""
        self.checks_dry_runs: frozenset[str] = frozenset()
        """Actions whose handlers say themselves what a dry run comes to."""
        self.changed: Final[set[str]] = set()
        """Services whose state in moto has been changed since somebody emptied this."""
        self.endpoint: Final[CloudEndpoint[ApiCall]] = CloudEndpoint(self, account.clock)

    @property
    def state(self) -> RLock:
        """Held while a handler reads or changes what the cloud holds."""
        return self.endpoint.state

    def forget(self, *actions: str) -> None:
        """Write the answers to these unchanging actions anew, because they have changed."""
        for key in [each for each in list(self._answers) if each[0] in actions]:
            self._answers.pop(key, None)

    def read(self, request: HttpRequest) -> ApiCall | HttpReply:
        """Read a request; what is no call goes to moto, and the owner's calls are answered at once."""
        call = read_call(request)
        if call is None:
            return self._by_moto(request) or HttpReply(status=_SERVER_ERROR)
        if call.access_key != OWNER_ACCESS_KEY:
            return call
        try:
            return self._carried_out(call)
        except AwsError as error:
            return refuse(call, error)

    def charges(self, call: ApiCall) -> Iterable[CallCharge]:
        """Return the tokens that a call takes."""
        return charges(call)

    def throttled(self, call: ApiCall, /) -> AwsError:
        """Return the refusal of a call whose bucket is empty."""
        return throttled(call)

    def denied(self, call: ApiCall) -> AwsError:
        """Return the refusal of a call that no policy permits."""
        return denial(call)

    def refuse(self, call: ApiCall | None, error: CloudError) -> HttpReply:
        """Write a refusal as the service of the call does."""
        return refuse(cast("ApiCall", call), error)

    def carry_out(self, call: ApiCall) -> tuple[HttpReply, str]:
        """Answer a call."""
        answer = self._carried_out(call)
        return answer, _outcome(answer)

    def _carried_out(self, call: ApiCall) -> HttpReply:
        handler = self.handlers.get(call.name)
        if call.service == "ec2" and handler and (violation := model_violation(call)):
            raise violation
        dry_run = call.service == "ec2" and bool(call.parameters.get("DryRun"))
        if dry_run and call.name not in self.checks_dry_runs:
            raise dry_run_success()
        if handler is None or call.action in _TAGGING:
            self._note_change(call)
        if handler is None:
            answer = self._by_moto(call.request)
            if answer is None:
                raise AwsError("InvalidAction", f"The action {call.name} is not simulated")
            return answer
        key = (call.name, call.request.body)
        if (kept := self._answers.get(key)) is not None:
            return kept
        with self.state:
            answer = handler(call.parameters)
        written = reply(call, answer)
        if call.name in self.unchanging and len(self._answers) < _KEPT_ANSWERS:
            self._answers[key] = written
        return written

    def _note_change(self, call: ApiCall) -> None:
        """Note that moto's state may change; a received message counts, as it is hidden then."""
        if call.service == "sqs" or not call.action.startswith(_READS):
            self.changed.add(call.service)

    def _by_moto(self, request: HttpRequest) -> HttpReply | None:
        """Return the answer of moto; None if it does not know the call."""
        responses: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            responses.append((status, headers))

        environ = {**wsgi_environ(request), "HTTP_X_MOTO_ACCOUNT_ID": self._account.id}
        try:
            body = b"".join(self._moto(environ, start))
        except NotImplementedError:
            return None
        status, headers = responses[0]
        number = int(status.split(" ", 1)[0])
        if number >= _SERVER_ERROR:  # how moto says that it does not know a service
            return None
        kept = tuple((name, value) for name, value in headers if name.lower() != "content-length")
        return HttpReply(status=number, headers=kept, body=body)


def dry_run_success() -> AwsError:
    """Return what a dry run is answered with that would have succeeded."""
    return AwsError(
        "DryRunOperation",
        "Request would have succeeded, but DryRun flag is set.",
        status=_PRECONDITION_FAILED,
    )


def _outcome(answer: HttpReply) -> str:
    if answer.status < _REFUSED:
        return "ok"
    found = _CODE.search(answer.body)
    return (found[1] or found[2]).decode() if found else str(answer.status)
