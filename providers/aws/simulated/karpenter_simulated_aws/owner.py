"""Clients that build the cloud's own world, without faults or limits."""

from __future__ import annotations

from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.server import OWNER_ACCESS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from boto3.session import Session
    from types_boto3_ec2.client import EC2Client
    from types_boto3_iam.client import IAMClient
    from types_boto3_sqs.client import SQSClient

__all__ = ["OwnerClients"]


@cache
def _session() -> Session:
    """Return the session of all simulated clouds: it keeps the descriptions of services, once read."""
    import boto3.session

    return boto3.session.Session()


@final
class OwnerClients:
    """One client for each service that the world is built in."""

    def __init__(self, region: str) -> None:
        self._region: Final = region
        self._lock: Final = Lock()
        self._clients: Final[dict[str, object]] = {}
        self.endpoint_url = ""

    @property
    def ec2(self) -> EC2Client:
        """EC2."""
        return cast("EC2Client", self._client("ec2"))

    @property
    def iam(self) -> IAMClient:
        """IAM."""
        return cast("IAMClient", self._client("iam"))

    @property
    def sqs(self) -> SQSClient:
        """SQS."""
        return cast("SQSClient", self._client("sqs"))

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            cast("EC2Client", client).close()
        self._clients.clear()

    def _client(self, service: str) -> object:
        with self._lock:
            if service not in self._clients:
                session = _session()
                make = cast(
                    "Callable[..., object]",
                    partial(session.client, service),  # pyright: ignore[reportUnknownMemberType, reportArgumentType, reportCallIssue] - one of hundreds of overloads
                )
                self._clients[service] = make(
                    region_name=self._region,
                    endpoint_url=self.endpoint_url,
                    aws_access_key_id=OWNER_ACCESS_KEY,
                    aws_secret_access_key="owner",  # noqa: S106 - nothing is checked here
                )
            return self._clients[service]
