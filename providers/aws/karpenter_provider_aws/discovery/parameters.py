"""Reads and caches the SSM parameters that name images.

A new image is published under the same parameter for everybody at once. Public parameters are
cached for a day, so that nodes are not all replaced in the same hour; the user's own for minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind

if TYPE_CHECKING:
    from karpenter_core.clock import Clock
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["SsmParameterReader"]

PUBLIC_TTL: Final = timedelta(hours=24)
OWN_TTL: Final = timedelta(minutes=5)
MISSING_TTL: Final = timedelta(minutes=5)
"""Not every image has every variant: what is missing is not asked for again with every look."""

# A name that cannot be one, as opposed to one that is not there.
_MALFORMED: Final = frozenset({"ValidationException", "ParameterVersionNotFound"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParameterValue:
    text: str | None
    mutable: bool


@final
class SsmParameterReader:
    """Reads parameters; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        self._cache: Final[TtlCache[str, _ParameterValue]] = TtlCache(clock, PUBLIC_TTL)

    def public(self, path: str, *, mutable: bool) -> str | None:
        """Return the value of a parameter of AWS, None when there is none.

        `mutable` says that it may get another one (`mutable_values`).

        Raises:
            CloudProviderError: SSM refused or did not answer (`discovery.call_errors`).
        """
        return self._value(path, ttl=PUBLIC_TTL, mutable=mutable)

    def own(self, name: str) -> str | None:
        """Return the value of a parameter of the user, by name or ARN; None when there is none.

        Raises:
            CloudProviderError: SSM refused or did not answer (`discovery.call_errors`).
        """
        return self._value(name, ttl=OWN_TTL, mutable=False)

    def mutable_values(self) -> dict[str, str]:
        """Return what is believed of the parameters that may get another value, by path."""
        return {
            path: value.text
            for path, value in self._cache.items().items()
            if value.mutable and value.text is not None
        }

    def forget(self, path: str) -> None:
        """Ask anew the next time."""
        self._cache.drop(path)

    def _value(self, name: str, *, ttl: timedelta, mutable: bool) -> str | None:
        value = self._cache.get(name)
        if value is None:
            value = _ParameterValue(text=self._read(name), mutable=mutable)
            self._cache.put(name, value, ttl=MISSING_TTL if value.text is None else ttl)
        return value.text

    def _read(self, name: str) -> str | None:
        try:
            with core_errors_of("ssm:GetParameter"):
                answer = self._clients.ssm.get_parameter(Name=name)
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is not None and (is_not_found(failure.code) or failure.code in _MALFORMED):
                return None
            raise
        return answer["Parameter"].get("Value")
