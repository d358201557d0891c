"""Refreshes prices from ECS and from the user's price file.

On-demand prices need a call for each type, spot prices in all zones too, and averages of spot a
call for ten types. So exact prices are read for the types that some NodePool may launch, averages
are enough for the others, and all calls stay within a rate. A run makes a limited number of calls;
the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

import structlog

from karpenter_core.errors import AuthError, CloudProviderError, SettingsError
from karpenter_core.provider.kit.token_bucket import TokenBucket
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.price_file import read_price_file
from karpenter_provider_alibabacloud.price_queries import (
    ADVICE_SIZE,
    SpotHistory,
    fetch_price,
    fetch_spot_advice,
    fetch_spot_history,
)
from karpenter_provider_alibabacloud.prices import OnDemandQuote, SpotQuote, quote_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.disk_cache import DiskCache
    from karpenter_provider_alibabacloud.catalogue.region_types import TypesByName
    from karpenter_provider_alibabacloud.prices import RegionPrices
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "ADVICE_PERIOD",
    "MOST_CALLS",
    "ON_DEMAND_PERIOD",
    "RUN_PERIOD",
    "SPOT_PERIOD",
    "PriceReader",
]

RUN_PERIOD: Final = timedelta(minutes=1)
"""Period between two checks for expired prices."""
ON_DEMAND_PERIOD: Final = timedelta(hours=12)
SPOT_PERIOD: Final = timedelta(minutes=10)
"""For types that some NodePool may launch."""
ADVICE_PERIOD: Final = timedelta(hours=1)
"""For the averages of all types."""
CONSIDERED_LIFE: Final = timedelta(days=1)
"""Time for which a type that no NodePool may launch any more is still read exactly."""
SILENCE: Final = timedelta(hours=1)
"""Pause before ECS is asked again for a price that it did not return."""

MOST_CALLS: Final = 240
"""In one run, so that it ends within its period."""

_THREADS: Final = 4
_CHUNK: Final = 40
"""So many questions between two looks at the catalogue: it is built anew for each chunk."""

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class _SpotQuery(NamedTuple):
    """A question about spot prices."""

    instance_type: str
    hours: int


class _PendingQueries(NamedTuple):
    """The queries of one run."""

    types: TypesByName
    considered: tuple[str, ...]


@final
class PriceReader:
    """Reads into `RegionPrices`; `consider` from any thread, `refresh` from one at a time."""

    def __init__(
        self,
        clients: CloudClients,
        prices: RegionPrices,
        clock: Clock,
        *,
        types: Callable[[], tuple[TypesByName, int]],
        disk: DiskCache,
        price_file: str = "",
        sleep: Callable[[float], None] = time.sleep,
        observe_estimated: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """`types` is `RegionTypeReader.current`.

        `observe_estimated` gets, after each run, the number of types that some NodePool may launch
        and whose on-demand price is not known.

        Raises:
            SettingsError: the price file cannot be used.
        """
        self._clients: Final = clients
        self._prices: Final = prices
        self._clock: Final = clock
        self._types: Final = types
        self._disk: Final = disk
        self._sleep: Final = sleep
        self._observe_estimated: Final = observe_estimated
        rate = clients.limits.price_calls_per_second
        self._bucket: Final = TokenBucket(
            rate_per_second=rate, burst=rate, monotonic=clock.monotonic
        )
        self._lock: Final = Lock()
        self._considered: Final[dict[str, datetime]] = {}
        """Types that some NodePool may launch, and when one last might."""
        self._silent_until: Final[dict[Hashable, datetime]] = {}
        """Times at which prices that ECS did not answer are requested again."""
        self._advised_at: Final[dict[str, datetime]] = {}
        self._file: Final = Path(price_file) if price_file else None
        self._file_state: object = None
        self._read_file()

    def consider(self, names: Iterable[str]) -> bool:
        """Note that some NodePool may launch these types; True if one of them is new."""
        now = self._clock.now()
        with self._lock:
            count_before = len(self._considered)
            self._considered.update(dict.fromkeys(names, now))
            return len(self._considered) > count_before

    def refresh(self) -> bool:
        """Read what has grown old, as far as one run may; True if a price is another one.

        Raises:
            CloudProviderError: ECS refused for a reason that is none of a single type, or did not
                answer; what was read all the same is kept.
        """
        before, now = self._prices.revision, self._clock.now()
        try:
            self._read_file()
        except SettingsError as error:
            # It was good when the process started; what it said then stands.
            _log.warning("the price file cannot be used", error=str(error))
        types, _ = self._types()
        work = _PendingQueries(types, self._considered_now(types))
        calls_left, errors = MOST_CALLS, list[CloudProviderError]()
        for part in (self._read_on_demand, self._read_spot, self._read_advice):
            if self._silent_until.get(part.__name__, now) > now:
                continue
            try:
                calls_left -= part(work, calls_left)
            except CloudProviderError as error:
                errors.append(error)
                if isinstance(error, AuthError):
                    self._silent_until[part.__name__] = now + SILENCE
        self._prices.save(self._disk, now=now)
        self._observe_estimated(sum(self._prices.is_estimated(it) for it in work.considered))
        if errors:
            raise errors[0]
        return self._prices.revision != before

    def _read_file(self) -> None:
        if self._file is None:
            return
        try:
            stat = self._file.stat()
        except OSError as error:
            raise SettingsError(f'--price-file "{self._file}": {error}') from error
        state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if state != self._file_state:
            self._prices.set_user_prices(read_price_file(self._file, self._clients.region))
            self._file_state = state

    def _considered_now(self, types: TypesByName) -> tuple[str, ...]:
        oldest = self._clock.now() - CONSIDERED_LIFE
        with self._lock:
            for name in [name for name, at in self._considered.items() if at < oldest]:
                del self._considered[name]
            return tuple(sorted(name for name in self._considered if name in types))

    # -- what there is to ask ------------------------------------------------------------------

    def _read_on_demand(self, work: _PendingQueries, most: int) -> int:
        due = [
            name
            for name in work.considered
            if self._is_due(name, self._prices.on_demand_read_at(name), ON_DEMAND_PERIOD)
        ][:most]
        for answers in self._answers(lambda name: fetch_price(self._call, name), due):
            now = self._clock.now()
            by_currency: dict[str, dict[str, OnDemandQuote]] = {}
            for name, (amount, currency) in answers.items():
                quotes = by_currency.setdefault(currency, {})
                quotes[name] = quote_of(work.types[name], amount, now=now)
            for currency, quotes in sorted(by_currency.items()):
                self._prices.update_on_demand(quotes, currency=currency)
        return len(due)

    def _read_spot(self, work: _PendingQueries, most: int) -> int:
        questions = (
            _SpotQuery(name, hours) for name in work.considered for hours in self._prices.spot_hours
        )
        due = [
            it for it in questions if self._is_due(it, self._prices.spot_read_at(*it), SPOT_PERIOD)
        ][:most]
        for answers in self._answers(lambda it: fetch_spot_history(self._call, *it), due):
            self._take_spot(work.types, answers)
        return len(due)

    def _take_spot(self, types: TypesByName, answers: Mapping[_SpotQuery, SpotHistory]) -> None:
        now = self._clock.now()
        listed: dict[str, dict[str, OnDemandQuote]] = {}
        quotes: dict[tuple[str, int], dict[str, SpotQuote]] = {}
        for (name, hours), history in answers.items():
            of = quotes.setdefault((history.currency, hours), {})
            of[name] = SpotQuote(history.by_zone, now)
            if history.on_demand is not None and self._prices.on_demand_read_at(name) is None:
                # The list price will do until it is known what the account pays: it is due at once.
                quote = quote_of(types[name], history.on_demand, now=now - ON_DEMAND_PERIOD)
                listed.setdefault(history.currency, {})[name] = quote
        for (currency, hours), of in sorted(quotes.items()):
            self._prices.update_spot(of, currency=currency, hours=hours)
        for currency, of in sorted(listed.items()):
            self._prices.update_on_demand(of, currency=currency)

    def _read_advice(self, work: _PendingQueries, most: int) -> int:
        now = self._clock.now()
        due = [n for n in work.types if self._is_due(n, self._advised_at.get(n), ADVICE_PERIOD)]
        groups = [tuple(group) for group in _chunks(due, ADVICE_SIZE)][:most]
        for answers in self._answers(lambda group: fetch_spot_advice(self._call, group), groups):
            for group, advice in answers.items():
                self._advised_at.update(dict.fromkeys(group, now))
                self._prices.update_advice(advice)
        return len(groups)

    # -- asking --------------------------------------------------------------------------------

    def _is_due(self, question: Hashable, read_at: datetime | None, period: timedelta) -> bool:
        now = self._clock.now()
        if self._silent_until.get(question, now) > now:
            return False
        return read_at is None or abs(now - read_at) >= period  # a date in the future too

    def _answers(
        self, ask: Callable[[Q], A | None], questions: Sequence[Q]
    ) -> Iterator[dict[Q, A]]:
        """Yield answers by question, some at a time; who tells nothing is not asked for a while.

        Raises:
            CloudProviderError: as `ask`, once what was answered beside it is yielded.
        """
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="alibabacloud-prices") as pool:
            for chunk in _chunks(questions, _CHUNK):
                futures = {question: pool.submit(ask, question) for question in chunk}
                errors = {q: error for q, it in futures.items() if (error := it.exception())}
                answers = {q: it.result() for q, it in futures.items() if q not in errors}
                until = self._clock.now() + SILENCE
                self._silent_until.update({q: until for q, a in answers.items() if a is None})
                yield {q: a for q, a in answers.items() if a is not None}
                if errors:
                    raise next(iter(errors.values()))

    def _call(self, action: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        wait = self._bucket.reserve()
        if wait > 0:
            self._sleep(wait)
        with core_errors_of():
            return self._clients.ecs.call(action, {"RegionId": self._clients.region, **parameters})


def _chunks(items: Sequence[Q], size: int) -> Iterator[Sequence[Q]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
