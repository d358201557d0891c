"""Creates the SDK clients of AWS: lazily, one for each service.

All threads share the clients. Creating one takes most of a second (the model of the service is
parsed) and importing botocore takes longer, so neither happens before the first call. Clients are
thread-safe; creating them is not, hence the lock. A client makes one attempt of a call; `ApiCalls`
repeats it. Endpoint, region and credentials come from botocore's ordinary chain (`AWS_ENDPOINT_URL`,
`AWS_REGION`, profile files, web identity, instance metadata).

A client of botocore keeps the credentials that it was made with: none at all if they came later than
the process, or the keys of a file that has changed since. So after a call that fails for its
credentials the clients are made anew.

boto3's clients are botocore's: what boto3 adds (transfers of S3, objects that wrap services) is not
loaded, which saves 2 MiB of memory.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, final

from karpenter_core.errors import SettingsError
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_aws.api_calls import ApiCalls
from karpenter_provider_aws.bounded_answers import bound_answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.client import BaseClient
    from botocore.config import Config
    from botocore.loaders import Loader
    from types_boto3_arc_zonal_shift.client import ARCZonalShiftClient
    from types_boto3_ec2.client import EC2Client
    from types_boto3_eks.client import EKSClient
    from types_boto3_iam.client import IAMClient
    from types_boto3_pricing.client import PricingClient
    from types_boto3_sqs.client import SQSClient
    from types_boto3_ssm.client import SSMClient
    from types_boto3_sts.client import STSClient

    from karpenter_provider_aws.api_calls import CallObserver
    from karpenter_provider_aws.bounded_answers import BoundedSession

__all__ = ["ClientLimits", "CloudClients", "SharedClients", "pricing_region"]


_PRICING_REGIONS: Final = {
    "ap-": "ap-south-1",
    "cn-": "cn-northwest-1",
    "eusc-": "eusc-de-east-1",
    "eu-isoe-": "eu-isoe-west-1",
    "eu-": "eu-central-1",
    "us-iso-": "us-iso-east-1",
    "us-isob-": "us-isob-east-1",
    "us-isof-": "us-isof-south-1",
}
"""By the beginning of a region's name, first match wins (botocore's endpoints of the price list); another
partition would not know the credentials. The rest is served by us-east-1."""
_RENEWAL_SECONDS: Final = 60
"""The shortest time between two renewals of all clients, each of which takes up to a second of CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of time and number of calls."""

    connect_seconds: float = 5
    read_seconds: float = 30
    """Above the 20 seconds of a long poll of the queue. With the last attempt, which begins within
    `longest_call_seconds`, a call ends before the two minutes of a hook."""
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    connections: int = 64
    """At least as many as threads that call: a call without a connection waits."""


SharedClients: TypeAlias = "dict[str, object]"
"""Clients by service."""


class _Session(Protocol):
    """The parts of botocore's session in use; botocore has no types of its own."""

    def register_component(self, name: str, component: Loader) -> None: ...

    def set_config_variable(self, logical_name: str, value: str) -> None: ...

    def get_config_variable(self, logical_name: str) -> str | None: ...

    def create_client(self, service_name: str, region_name: str, *, config: Config) -> object: ...


@final
class CloudClients:
    """One client for each service."""

    def __init__(
        self,
        *,
        region: str = "",
        version: str = "",
        limits: ClientLimits | None = None,
        observe: CallObserver | None = None,
        shared: SharedClients | None = None,
        every_operation: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`region` overrides what botocore's chain finds; `version` goes into the user agent.

        `shared` has the clients that were made for others of the same endpoint, credentials and time
        limits; they stay open, and their calls are made by the policy of the caller that took them last.
        Clients have the operations that the provider calls, or every one for those who also act for
        others, as tests do.
        """
        self._limits: Final = limits or ClientLimits()
        self._calls: Final = ApiCalls(
            self._limits.retries, observe=observe, renew_credentials=self._renew_credentials
        )
        self._monotonic: Final = monotonic
        self._renewed_at: float | None = None
        self._user_agent: Final = f"karpenter.sh-{version}" if version else "karpenter.sh"
        self._lock: Final = Lock()
        self._session: _Session | None = None
        self._http: BoundedSession | None = None
        self._clients: Final[dict[str, object]] = {}
        self._shared: Final = shared
        self._every_operation: Final = every_operation
        self._region = region

    @property
    def limits(self) -> ClientLimits:
        """Limits of time and number of calls."""
        return self._limits

    @property
    def region(self) -> str:
        """The region of all calls but those for prices; the instance's own when none is configured.

        Raises:
            SettingsError: nothing says which region it is.
        """
        if not self._region:
            self._region = self._found_region()
        return self._region

    @property
    def ec2(self) -> EC2Client:
        """EC2."""
        return cast("EC2Client", self._client("ec2"))

    @property
    def iam(self) -> IAMClient:
        """IAM."""
        return cast("IAMClient", self._client("iam"))

    @property
    def eks(self) -> EKSClient:
        """EKS."""
        return cast("EKSClient", self._client("eks"))

    @property
    def sqs(self) -> SQSClient:
        """SQS."""
        return cast("SQSClient", self._client("sqs"))

    @property
    def ssm(self) -> SSMClient:
        """Systems Manager, for the public parameters that name images."""
        return cast("SSMClient", self._client("ssm"))

    @property
    def sts(self) -> STSClient:
        """STS."""
        return cast("STSClient", self._client("sts"))

    @property
    def pricing(self) -> PricingClient:
        """The price list, which only a few regions serve."""
        return cast("PricingClient", self._client("pricing", region=pricing_region(self.region)))

    @property
    def zonal_shift(self) -> ARCZonalShiftClient:
        """Zonal shifts."""
        return cast("ARCZonalShiftClient", self._client("arc-zonal-shift"))

    def close(self) -> None:
        """Close the connections, unless they are shared; a client used afterwards is made anew."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
            self._http = None
        if self._shared is not None:
            return
        for client in clients:
            cast("EC2Client", client).close()

    def _renew_credentials(self) -> None:
        """Have the clients of the next calls made anew, with the credentials that are found then.

        Clients whose calls are under way are not closed.
        """
        now = self._monotonic()
        with self._lock:
            if self._renewed_at is not None and now - self._renewed_at < _RENEWAL_SECONDS:
                return
            self._renewed_at = now
            shared = {} if self._shared is None else self._shared
            for service in self._clients:
                shared.pop(service, None)
            self._clients.clear()
            self._session = self._http = None

    def _client(self, service: str, *, region: str = "") -> object:
        client = self._clients.get(service)
        if client is None:
            region = region or self.region
            with self._lock:
                client = self._clients.get(service)
                if client is None:
                    shared = {} if self._shared is None else self._shared
                    client = shared.get(service)
                    if client is None:
                        session = self._made_session()
                        client = session.create_client(service, region, config=self._config())
                        self._http = bound_answers(
                            cast("BaseClient", client),
                            seconds=self._limits.read_seconds,
                            shared=self._http,
                        )
                        shared[service] = client
                    self._calls.apply_to(cast("BaseClient", client), service)
                    self._clients[service] = client
        return client

    def _made_session(self) -> _Session:
        """Call under the lock."""
        if self._session is None:
            session = _new_session(every_operation=self._every_operation)
            # botocore itself knows AWS_DEFAULT_REGION only; EKS sets both, other SDKs read this one.
            if region := self._region or os.environ.get("AWS_REGION"):
                session.set_config_variable("region", region)
            self._session = session
        return self._session

    def _config(self) -> Config:
        from botocore.config import Config

        return Config(
            connect_timeout=self._limits.connect_seconds,
            read_timeout=self._limits.read_seconds,
            max_pool_connections=self._limits.connections,
            tcp_keepalive=True,
            user_agent_extra=self._user_agent,
            # `total_max_attempts`, because `max_attempts` counts retries only, in one of the modes.
            retries={"mode": "standard", "total_max_attempts": 1},
        )

    def _found_region(self) -> str:
        import botocore.session
        from botocore.utils import IMDSRegionProvider

        with self._lock:
            region = self._made_session().get_config_variable("region")
        if not region:
            # A read of the metadata may wait for its time limit: not under the lock.
            session = botocore.session.get_session()
            region = cast("str | None", IMDSRegionProvider(session).provide())
        if not region:
            raise SettingsError(
                "the AWS region is not known: set AWS_REGION (the instance's metadata has none)"
            )
        return region


def _new_session(*, every_operation: bool) -> _Session:
    """Return a session of its own credentials, that shares the descriptions of services read before."""
    import botocore.session

    from karpenter_provider_aws.session_events import UsedEvents

    events = None if every_operation else UsedEvents()
    session = cast("_Session", botocore.session.Session(event_hooks=events))
    session.register_component("data_loader", _loader(every_operation=every_operation))
    return session


@cache
def _loader(*, every_operation: bool) -> Loader:
    """Return what reads descriptions of services (EC2's has megabytes), and keeps the used parts."""
    import botocore.session

    from karpenter_provider_aws.service_models import ModelFiles

    loader = cast("Loader", botocore.session.Session().get_component("data_loader"))  # pyright: ignore[reportUnknownMemberType] - botocore has no types of its own
    if not every_operation:
        loader.file_loader = ModelFiles()
    return loader


def pricing_region(region: str) -> str:
    """Return the region whose endpoint serves the prices of `region`."""
    served = (endpoint for begin, endpoint in _PRICING_REGIONS.items() if region.startswith(begin))
    return next(served, "us-east-1")
