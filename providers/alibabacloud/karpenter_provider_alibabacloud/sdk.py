"""Creates the SDK clients of Alibaba Cloud: lazily, one for each service.

All threads share the clients. Calls go through the generated SDKs, synchronously: their
asynchronous methods open a connection, and a TLS context, for each call. Parameters and answers
cross this module as plain mappings under the names of the API. A request is read into the SDK's own
model of it, and a name that the model does not have is refused, so that a misspelt name is not lost
in silence. Answers are not read into models: they are returned as they came.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import AttemptFailure, AttemptFailureKind
from karpenter_core.provider.kit.calls.pages import numbered_pages, token_pages
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_alibabacloud import metadata
from karpenter_provider_alibabacloud.api_answers import objects_at
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass
from karpenter_provider_alibabacloud.sdk_caller import SdkCaller, ServiceEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from karpenter_core.provider.kit.calls.caller import AttemptObserver
    from karpenter_core.provider.kit.calls.failures import FailedCall
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.credentials import Credential
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = [
    "ClientLimits",
    "CloudClients",
    "ServiceClient",
    "attempt_failure",
    "is_repeatable",
    "listed_pages",
]

LAST_PAGE: Final = 359
"""A listing by page numbers ends here: a minute's allowance of calls for vSwitches is 360."""

_READS: Final = ("Describe", "List", "Get")
_CLIENT_TOKEN: Final = "ClientToken"  # noqa: S105 - the name of a parameter
_NOT_SENT: Final = "Throttling"
"""The code of a call that was not sent because the cloud would throttle it."""
_RENEWAL_SECONDS: Final = 60
"""The shortest time between two searches for credentials."""
_KINDS: Final = {
    ErrorClass.THROTTLED: AttemptFailureKind.THROTTLED,
    ErrorClass.TRANSIENT: AttemptFailureKind.UNANSWERED,
    ErrorClass.IN_PROGRESS: AttemptFailureKind.IN_PROGRESS,
    ErrorClass.AUTH: AttemptFailureKind.DENIED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of calls: time of one try, open connections, repetitions and rates."""

    connect_seconds: float = 5
    read_seconds: float = 10
    launch_read_seconds: float = 30
    """For calls that launch: ECS answers them when all instances are made. Three such tries fit into
    the two minutes that the core waits for a launch."""
    connections: int = 64
    """Kept open to each service; at least as many as threads that call."""
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    price_calls_per_second: float = 5
    """Prices are a call for each type, and must not use up what other calls of the account need."""


def is_repeatable(action: str, parameters: Mapping[str, object]) -> bool:
    """Whether a call that may have been carried out can be made again without doing things twice."""
    return action.startswith(_READS) or bool(parameters.get(_CLIENT_TOKEN))


def attempt_failure(error: Exception) -> AttemptFailure | None:
    """Return what a failed attempt means for its call; None if it is not one."""
    if not isinstance(error, ApiError):
        return None
    return AttemptFailure(
        kind=_KINDS.get(error.error_class, AttemptFailureKind.REFUSED),
        code=error.code,
        message=error.message,
        retry_after=error.retry_after,
    )


def _api_error(call: FailedCall) -> ApiError:
    """Return the error of the last attempt, or of the pause because of which there was none."""
    failure, error = call.failure, call.cause
    if not isinstance(error, ApiError):
        error = ApiError(
            _NOT_SENT, failure.message, retry_after=failure.retry_after, action=call.action
        )
    error.may_be_done = call.may_be_done
    return error


@final
class ServiceClient:
    """One service: `call` for one answer, `pages` for what comes in pieces."""

    def __init__(
        self,
        name: str,
        made: Callable[[], SdkCaller],
        *,
        caller: CloudCaller,
        renew_credentials: Callable[[], None],
    ) -> None:
        """`renew_credentials` is called for each call that has no credentials, or refused ones."""
        self.name: Final = name
        """As RAM policies begin its actions: `ecs`, `vpc`, `cs`."""
        self._make_caller: Final = made
        self._renew_credentials: Final = renew_credentials
        self._caller: Final = caller

    def call(self, action: str, parameters: Mapping[str, object]) -> ApiAnswer:
        """Return what the service answers; an answer that is no mapping is under the name `body`.

        Parameters that are None are not sent. Parts of a path (`ClusterId`) are given like the rest.

        Raises:
            ApiError: the call was refused or had no answer; it was repeated as often as it may be.
            TypeError: the API has no such action or parameter.
        """
        sdk, name = self._make_caller(), f"{self.name}:{action}"

        def send() -> ApiAnswer:
            try:
                return sdk.call(action, parameters)
            except ApiError as error:
                if error.needs_other_credentials:
                    self._renew_credentials()
                raise

        return self._caller.call(
            send,
            action=name,
            operation_class=name,
            repeatable=is_repeatable(action, parameters),
        )

    def pages(
        self, action: str, parameters: Mapping[str, object], *, items: str
    ) -> Iterator[ApiAnswer]:
        """Yield the items of all pages; `items` is where a page has them (`VSwitches.VSwitch`).

        `parameters` hold the size of a page under the name that the action has for it: `MaxResults`,
        `PageSize`, or an `Offset` to begin at.

        Raises:
            ApiError, TypeError: as for `call`, at any page.
            CloudProviderError, RuntimeError: as for `listed_pages`.
        """
        pages = listed_pages(
            lambda page: self.call(action, page),
            parameters,
            items=items,
            action=f"{self.name}:{action}",
        )
        return chain.from_iterable(pages)


class _Page(NamedTuple):
    """An answer to a listing, and the items in it."""

    answer: ApiAnswer
    items: list[ApiAnswer]


def listed_pages(
    call: Callable[[Mapping[str, object]], ApiAnswer],
    parameters: Mapping[str, object],
    *,
    items: str,
    action: str,
) -> Iterator[list[ApiAnswer]]:
    """Yield the items of each page of a listing, in the way of paging that `parameters` begin.

    Raises:
        CloudProviderError: a page has no list of items, not even an empty one.
        RuntimeError: a listing by tokens goes in a circle.
    """

    def read(page: Mapping[str, object]) -> _Page:
        answer = call(page)
        return _Page(answer, objects_at(answer, items, action=action))

    return (page.items for page in _pages(read, parameters, items=items))


def _pages(
    read: Callable[[Mapping[str, object]], _Page], parameters: Mapping[str, object], *, items: str
) -> Iterator[_Page]:
    if "PageSize" in parameters:
        size = parameters["PageSize"]
        assert isinstance(size, int)  # noqa: S101 - for the type checker
        return numbered_pages(
            lambda number: read({**parameters, "PageNumber": number}),
            lambda page: page.items,
            size=size,
            total=lambda page: page.answer.get("TotalCount"),
            last=LAST_PAGE,
        )
    name, next_name = ("Offset", "NextOffset") if "Offset" in parameters else _TOKEN
    return token_pages(
        lambda token: read(parameters if token is None else {**parameters, name: token}),
        lambda page: page.answer.get(next_name),
        listing=f"a listing of {items}",
        token_name=next_name,
    )


_TOKEN: Final = ("NextToken", "NextToken")


@final
class CloudClients:
    """ECS, VPC and ACK."""

    def __init__(
        self,
        *,
        region: str = "",
        network: str = "",
        endpoint_ecs: str = "",
        endpoint_vpc: str = "",
        endpoint_cs: str = "",
        protocol: str = "",
        metadata_endpoint: str = metadata.ENDPOINT,
        limits: ClientLimits | None = None,
        observe: AttemptObserver | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is imported or asked before a call is due.

        An empty `region` is asked of the instance's metadata. `network` is `public` (also when empty) or
        `vpc`. An endpoint (`host:port`) takes the place of the region's, and is spoken to directly
        whatever proxies the environment names.
        """
        self._region = region
        self._network: Final = network
        self._endpoints: Final = {"ecs": endpoint_ecs, "vpc": endpoint_vpc, "cs": endpoint_cs}
        self._protocol: Final = protocol
        self._metadata_endpoint: Final = metadata_endpoint
        self._limits: Final = limits or ClientLimits()
        self._lock: Final = Lock()
        self._callers: Final[dict[str, SdkCaller]] = {}
        self._credential: Credential | None = None
        self._monotonic: Final = monotonic
        self._renewed_at: float | None = None
        caller = CloudCaller(
            attempt_failure,
            policy=self._limits.retries,
            make_error=_api_error,
            observe=observe,
            sleep=sleep,
        )

        def service(name: str) -> ServiceClient:
            return ServiceClient(
                name,
                lambda: self._caller(name),
                caller=caller,
                renew_credentials=self._renew_credentials,
            )

        self.ecs: Final = service("ecs")
        """ECS: instances, types, images, security groups."""
        self.vpc: Final = service("vpc")
        """VPC: vSwitches."""
        self.ack: Final = service("cs")
        """ACK, the managed Kubernetes, which the API calls `cs`."""

    @classmethod
    def from_settings(
        cls,
        settings: AlibabaCloudSettings,
        *,
        limits: ClientLimits | None,
        observe: AttemptObserver | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> CloudClients:
        """Return the clients that the options of the provider ask for.

        They say how many connections are kept, too; the rest of `limits` has its defaults otherwise.
        """
        return cls(
            region=settings.region_id,
            network=settings.network,
            endpoint_ecs=settings.endpoint_ecs,
            endpoint_vpc=settings.endpoint_vpc,
            endpoint_cs=settings.endpoint_cs,
            protocol=settings.endpoint_protocol,
            metadata_endpoint=settings.metadata_endpoint or metadata.ENDPOINT,
            limits=replace(limits or ClientLimits(), connections=settings.http_pool),
            observe=observe,
            monotonic=monotonic,
        )

    def __enter__(self) -> CloudClients:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def limits(self) -> ClientLimits:
        """Limits of time and number of calls."""
        return self._limits

    @property
    def region(self) -> str:
        """The region of all calls; the instance's own when none is configured.

        Raises:
            SettingsError: nothing says which region it is.
        """
        if not self._region:
            # Asked without the lock: it may wait for its time limit.
            self._region = metadata.region_id(self._metadata_endpoint)
        return self._region

    @property
    def credential(self) -> Credential:
        """Return the identity of the calls: the source of the keys, and the end of the key's id.

        Nothing is asked for it: keys that must be fetched first are fetched by the first call.
        """
        from karpenter_provider_alibabacloud.credentials import find_credential

        with self._lock:
            if self._credential is None:
                self._credential = find_credential()
            return self._credential

    def close(self) -> None:
        """Close the connections; a client that is used afterwards is made anew."""
        with self._lock:
            callers = list(self._callers.values())
            self._callers.clear()
            self._credential = None
        for caller in callers:
            caller.close()

    def _renew_credentials(self) -> None:
        """Have credentials looked for again, and the clients of the next calls made with them.

        The credentials library keeps keys of a RAM role until they expire, and those of a file for ever.
        Clients whose calls are under way are not closed.
        """
        now = self._monotonic()
        with self._lock:
            if self._renewed_at is not None and now - self._renewed_at < _RENEWAL_SECONDS:
                return
            self._renewed_at = now
            self._callers.clear()
            self._credential = None

    def _caller(self, name: str) -> SdkCaller:
        caller = self._callers.get(name)
        if caller is None:
            region, credential = self.region, self.credential
            with self._lock:
                caller = self._callers.get(name)
                if caller is None:
                    caller = self._callers[name] = SdkCaller(
                        name,
                        ServiceEndpoint(
                            region=region,
                            network=self._network,
                            address=self._endpoints[name],
                            protocol=self._protocol,
                        ),
                        credential=credential,
                        connect_seconds=self._limits.connect_seconds,
                        read_seconds=self._limits.read_seconds,
                        launch_read_seconds=self._limits.launch_read_seconds,
                        connections=self._limits.connections,
                    )
        return caller
