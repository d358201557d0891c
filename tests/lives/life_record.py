"""Writes down everything that leaves a controller in virtual time, as text that can be compared.

Writes to the API server in their order, with their bodies; calls to the cloud; log lines; the decision
journal; in the end the reads, and the metrics that are not zero. UIDs and generated names are numbered in
the order in which they appear, so that one more object does not rename all others.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, final
from unittest.mock import patch

import structlog
from prometheus_client import generate_latest

from karpenter_core.api.decisions import decision_document
from karpenter_core.provider.kit.simulated.calls import CallLog
from karpenter_core.testing.harness import ControllerHarness, SeverableTransport
from tests.support.canonical_text import canonical_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from karpenter_core.kube.transport import ApiRequest
    from karpenter_core.provider.kit.simulated.calls import LoggedCall
    from karpenter_core.testing.harness import RunningProcess

__all__ = ["LifeRecord", "flat_lines", "recorded"]

UID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
NAME: Final = re.compile(r"(?<=[a-z0-9]-)[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9])")
"""The end of a generated name, which has no vowels."""
COUNTED: Final = re.compile(r"(?<=controller-)\d+-\d{6}\b")
"""Ids of the harness; one for each reconciliation."""
HOST: Final = re.compile(r"127\.0\.0\.1:\d+")
ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
VERSION: Final = re.compile(r"(?<=resourceVersion = )\"\d+\"")
OPAQUE: Final = ("resourceVersion", "continue")
"""Parameters of reads that depend on how many writes there were."""
RENEWAL: Final = re.compile(r"'(renewTime|resourceVersion)': '[^']*'")
OF_SDKS: Final = frozenset(
    {"authorization", "connection", "content-length", "host", "user-agent", "accept-encoding"}
)
"""Headers that an SDK or the machine decides."""
OF_MACHINES: Final = (
    "process_", "python_", "karpenter_build_info",
    "karpenter_interruption_message_queue_duration_seconds",  # simulated SQS stamps real time
)  # fmt: skip
"""Metrics of the machine, the version or real time."""


def flat_lines(value: object, path: str = "") -> Iterator[str]:
    """Yield a line for each leaf of a JSON value: such texts compare well."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from flat_lines(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(each, dict | list) for each in value):
        for number, each in enumerate(value):
            yield from flat_lines(each, f"{path}[{number}]")
    else:
        yield f"{path} = {json.dumps(value, ensure_ascii=False, default=canonical_text)}"


@final
class LifeRecord:
    """The text of one life, in parts that each begin at a time."""

    def __init__(self, folder: str = "") -> None:
        """`folder` is a path that texts may contain, and that is another in each run."""
        self._folder: Final = folder
        self._now: Callable[[], float] = lambda: 0.0
        self._parts: list[list[str]] = []
        self._at = -1.0
        self._reads: dict[str, int] = {}
        self._numbers: dict[str, dict[str, str]] = {"uid": {}, "name": {}, "id": {}}
        self._lease = ""
        self._lock: Final = Lock()
        self._calls: list[tuple[str, str, object]] = []
        self._processes: list[RunningProcess] = []

    def follow(self, harness: ControllerHarness) -> None:
        """Take the time from the cluster of a harness."""
        self._now = harness.cluster.clock.monotonic

    def note(self, head: str, body: object = None) -> None:
        """Write an entry at the present time; `body` is JSON."""
        at = self._now()
        if at != self._at:
            self._write_calls()
            self._at = at
            self._parts.append([f"--- {at:.3f}"])
        self._write(head, body)

    def _write_calls(self) -> None:
        """Write the calls of the time that ends, sorted: some are sent in no order."""
        with self._lock:
            calls, self._calls = sorted(self._calls, key=itemgetter(0)), []
        for _, head, body in calls:
            self._write(head, body)

    def _write(self, head: str, body: object) -> None:
        self._parts[-1] += self._canonical(head).splitlines()
        if body is not None:
            self._parts[-1] += [f"  {self._canonical(each)}" for each in flat_lines(body)]

    def note_request(self, request: ApiRequest) -> None:
        """Write a request to the API server down; reads are counted."""
        query = "".join(
            f" {key}={'VERSION' if key in OPAQUE else value}"
            for key, value in sorted(request.query.items())
        )
        head = f"{request.method} {request.path}{query} {request.content_type}"
        if request.method == "GET":
            self._reads[head] = self._reads.get(head, 0) + 1
            return
        body = json.loads(request.body) if request.body else None
        if "/leases" in request.path:
            text = RENEWAL.sub("", str(body))
            if text == self._lease:
                return
            self._lease = text
        self.note(head, body)

    def note_call(self, call: LoggedCall) -> None:
        """Write a call to a simulated cloud down."""
        parameters = dict(call.parameters)
        headers = parameters.get("headers")
        if isinstance(headers, Mapping):
            parameters["headers"] = {key: headers[key] for key in headers if key not in OF_SDKS}
        text = json.dumps(parameters, sort_keys=True, default=canonical_text)
        head = f"cloud {call.service}:{call.action} {call.outcome}"
        with self._lock:
            self._calls.append((UID.sub("", f"{head} {text}"), head, json.loads(text)))

    def note_process(self, running: RunningProcess) -> None:
        """Write the decisions of a process down, and in the end its metrics."""
        self._processes.append(running)
        running.process.runtime.journal.add_sink(
            lambda decision: self.note("decision", decision_document(decision))
        )

    def end(self) -> None:
        """Write metrics and reads down."""
        self._write_calls()
        self._parts.append(["--- in the end"])
        for running in self._processes:
            for row in sorted(
                generate_latest(running.process.metrics.registry).decode().splitlines()
            ):
                series, _, value = row.rpartition(" ")
                if not row.startswith(("#", *OF_MACHINES)) and float(value):
                    self._parts[-1].append(self._canonical(f"metric {series} {value}"))
        for head in sorted(self._reads):
            self._parts[-1].append(self._canonical(f"{head}: {self._reads[head]}"))

    @property
    def parts(self) -> list[str]:
        """The texts of the parts, in their order."""
        return ["\n".join(lines) for lines in self._parts]

    def log(self, logger: Any, method: str, event: dict[str, Any]) -> Any:
        """Write a log line down, as the last processor of structlog."""
        if event.get("exc_info") is True:
            event["exc_info"] = sys.exc_info()[1]
        fields = {key: _plain(value) for key, value in event.items() if key != "event"}
        self.note(f"{method} {'.'.join(logger)}: {event['event']}", fields or None)
        raise structlog.DropEvent

    def _canonical(self, text: str) -> str:
        if self._folder:
            text = text.replace(self._folder, "FOLDER")
        text = VERSION.sub('"VERSION"', ADDRESS.sub("", HOST.sub("HOST", text)))
        for kind, pattern in (("uid", UID), ("name", NAME), ("id", COUNTED)):
            numbers = self._numbers[kind]
            text = pattern.sub(
                lambda found, numbers=numbers, kind=kind: numbers.setdefault(
                    found.group(), f"{kind}{len(numbers) + 1}"
                ),
                text,
            )
        return text


def _submit_inline(
    _: ThreadPoolExecutor, work: Callable[..., Any], /, *arguments: Any, **options: Any
) -> Future[Any]:
    """Run what a pool is given at once: threads would send calls in another order each time."""
    future: Future[Any] = Future()
    try:
        future.set_result(work(*arguments, **options))
    except Exception as error:
        future.set_exception(error)
    return future


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return value if isinstance(value, str | int | float | bool | None) else canonical_text(value)


@contextmanager
def recorded(record: LifeRecord, *clouds: type) -> Iterator[LifeRecord]:
    """Write everything down that leaves controllers which are started in the context.

    `clouds` are classes whose public methods are what a provider asks of its cloud.
    """
    request, stream = SeverableTransport.request, SeverableTransport.stream
    start = ControllerHarness.start

    async def note_request(transport: SeverableTransport, sent: ApiRequest) -> Any:
        record.note_request(sent)
        return await request(transport, sent)

    def note_stream(transport: SeverableTransport, sent: ApiRequest) -> Any:
        record.note_request(sent)
        return stream(transport, sent)

    def note_start(harness: ControllerHarness, *arguments: str, **options: Any) -> RunningProcess:
        record.follow(harness)
        running = start(harness, *arguments, **options)
        record.note_process(running)
        return running

    before, state = structlog.get_config(), random.getstate()
    random.seed(0)
    with ExitStack() as stack:
        stack.callback(random.setstate, state)
        stack.enter_context(patch.object(ThreadPoolExecutor, "submit", _submit_inline))
        stack.enter_context(patch.object(CallLog, "add", lambda _, call: record.note_call(call)))
        stack.enter_context(patch.object(SeverableTransport, "request", note_request))
        stack.enter_context(patch.object(SeverableTransport, "stream", note_stream))
        stack.enter_context(patch.object(ControllerHarness, "start", note_start))
        for cloud in clouds:
            for name in [each for each in vars(cloud) if not each.startswith("_")]:
                stack.enter_context(patch.object(cloud, name, _noting(record, cloud, name)))
        structlog.configure(
            processors=[structlog.contextvars.merge_contextvars, record.log],
            wrapper_class=structlog.BoundLogger,
            logger_factory=lambda *names: names,
            cache_logger_on_first_use=False,
        )
        try:
            yield record
            record.end()
        finally:
            structlog.configure(**before)


def _noting(record: LifeRecord, cloud: type, name: str) -> Callable[..., Any]:
    method = vars(cloud)[name]

    def noted(self: object, *arguments: object, **options: object) -> Any:
        record.note(f"cloud {name}", {"arguments": _json([*arguments, options])})
        return method(self, *arguments, **options)

    return noted


def _json(value: object) -> object:
    return canonical_text(value)
