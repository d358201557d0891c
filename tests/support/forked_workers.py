"""Runs tests in processes that are forked once all tests are collected: `pytest --workers 3`.

Workers of pytest-xdist import and collect all tests each, which takes 13 s of CPU for the tests of
`make test`. Here one process imports and collects them, then forks the workers. They take group after
group of tests from a pipe, in the order in which they were collected, and send their reports back.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import struct
import sys
import traceback
import warnings
from itertools import groupby
from multiprocessing import connection
from typing import TYPE_CHECKING, Final, final

import pytest
from _pytest.runner import call_and_report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GROUP: Final = struct.Struct("i")
"""The number of a group, as it stands in the pipe."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("workers", "processes that are forked after the collection")
    group.addoption("--workers", type=int, default=0, metavar="N", help="run tests in N processes")
    group.addoption(
        "--hand-out",
        choices=("files", "tests"),
        default="files",
        help="what a worker takes at a time: all tests of a file (default), or one test, "
        "with those that are next to it and have the same xdist_group",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run tests in workers where the options ask for them."""
    if config.getoption("--workers") and not config.option.collectonly:
        config.pluginmanager.register(ForkedWorkers(config), "forked-workers")


def in_groups(items: Sequence[pytest.Item], hand_out: str) -> list[Sequence[pytest.Item]]:
    """Part tests by what a worker takes at a time."""
    if hand_out == "files":
        return [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    return [list(group) for _, group in groupby(items, key=_group_of)]


def _group_of(item: pytest.Item) -> object:
    """Return what tests have in common that make something expensive once, or the test itself."""
    marker = item.get_closest_marker("xdist_group")
    return item if marker is None else (marker.args, marker.kwargs)


@final
class _Worker:
    """A forked process that runs tests, as its parent sees it."""

    def __init__(self, process: int, reports: connection.Connection) -> None:
        self.process: Final = process
        self.reports: Final = reports
        self.running: pytest.Item | None = None
        """The test that it has begun, and not reported."""


@final
class ForkedWorkers:
    """Runs the tests of a session in workers, and reports as if they had run here."""

    def __init__(self, config: pytest.Config) -> None:
        self._config: Final = config
        self._to_parent: connection.Connection | None = None
        """The pipe for the reports of a worker."""
        self._taken: Iterator[pytest.Item] = iter(())
        """The tests of this worker."""
        self._following: pytest.Item | None = None
        """The next one of them."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Leave out the names of files, between which the output would jump."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests."""
        if session.testsfailed and not self._config.option.continue_on_collection_errors:
            return None  # pytest's own loop ends the session
        groups = in_groups(session.items, self._config.getoption("--hand-out"))
        count = min(self._config.getoption("--workers"), len(groups))
        if count == 0:
            return True
        self._config._tmp_path_factory.getbasetemp()  # made before the workers put theirs into it
        waiting, numbers = os.pipe()
        fcntl.fcntl(numbers, fcntl.F_SETPIPE_SZ, max(65536, GROUP.size * len(groups)))
        os.write(numbers, b"".join(GROUP.pack(number) for number in range(len(groups))))
        os.close(numbers)  # a worker reads the end of the file when nothing is left
        workers: list[_Worker] = []
        try:
            for _ in range(count):
                workers.append(self._fork(session, groups, waiting, workers))
            self._report(session, workers)
        finally:
            os.close(waiting)
            for worker in workers:
                os.kill(worker.process, signal.SIGINT)  # ends a test that still runs
            for worker in workers:
                worker.reports.close()
                os.waitpid(worker.process, 0)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(
        self,
        session: pytest.Session,
        groups: Sequence[Sequence[pytest.Item]],
        waiting: int,
        others: Sequence[_Worker],
    ) -> _Worker:
        temporary = self._config._tmp_path_factory.getbasetemp() / f"worker-{len(others)}"
        reading, writing = connection.Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process:
            writing.close()
            return _Worker(process, reading)
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
            for end in (reading, *(other.reports for other in others)):
                end.close()
            self._to_parent = writing
            temporary.mkdir()
            self._config._tmp_path_factory._basetemp = temporary
            self._capture_apart()
            self._run(session, groups, waiting)
            code = 0
        except KeyboardInterrupt:
            session._setupstate.teardown_exact(None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _capture_apart(self) -> None:
        """Replace the files of captured output, which are the same for all forked processes."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if capture is not None and capture.is_globally_capturing():
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()

    def _run(
        self, session: pytest.Session, groups: Sequence[Sequence[pytest.Item]], waiting: int
    ) -> None:
        """Run groups, as long as any waits, in a worker."""
        numbers = {item: number for number, item in enumerate(session.items)}

        def tests() -> Iterator[pytest.Item]:
            while packed := os.read(waiting, GROUP.size):
                yield from groups[GROUP.unpack(packed)[0]]

        self._taken = tests()
        self._following = next(self._taken, None)
        while (item := self._following) is not None:
            self._send("begins", numbers[item])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> bool | None:
        """Send the reports of a test to the parent, in a worker, instead of showing them."""
        if self._to_parent is None:
            return None
        reports = [call_and_report(item, "setup", log=False)]
        if reports[0].passed:
            reports.append(call_and_report(item, "call", log=False))
        # Taken as late as can be, since others may wait for work; what it needs too is not torn down.
        self._following = next(self._taken, None)
        reports.append(call_and_report(item, "teardown", log=False, nextitem=self._following))
        item._request, item.funcargs = False, None  # as pytest itself lets go of fixtures
        to_dict = self._config.hook.pytest_report_to_serializable
        self._send("reports", [to_dict(config=self._config, report=report) for report in reports])
        return True

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        """Send a warning to the parent."""
        if self._to_parent is not None:
            text = f"{warning_message.category.__name__}: {warning_message.message}"
            place = (warning_message.filename, warning_message.lineno)
            self._send("warning", (text, *place, when, nodeid))

    def _send(self, kind: str, content: object) -> None:
        assert self._to_parent is not None
        self._to_parent.send_bytes(pickle.dumps((kind, content)))

    def _report(self, session: pytest.Session, workers: Sequence[_Worker]) -> None:
        """Report what workers send, until all have ended or the session is to stop."""
        by_pipe = {worker.reports: worker for worker in workers}
        reported = 0
        while by_pipe and not (session.shouldfail or session.shouldstop):
            for pipe in connection.wait(list(by_pipe)):
                worker = by_pipe[pipe]
                try:
                    kind, content = pickle.loads(worker.reports.recv_bytes())
                except EOFError:
                    del by_pipe[pipe]
                    if worker.running is not None:
                        self._report_death(worker)
                    continue
                if kind == "begins":
                    worker.running = session.items[content]
                elif kind == "warning":
                    self._record_warning(*content)
                else:
                    self._report_test(worker, content)
                    reported += 1
        if not (session.shouldfail or session.shouldstop) and reported < len(session.items):
            session.shouldfail = (
                f"{len(session.items) - reported} tests did not run: a worker ended"
            )

    def _report_test(self, worker: _Worker, contents: Sequence[dict[str, object]]) -> None:
        hook, item = self._config.hook, worker.running
        assert item is not None
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for content in contents:
            report = hook.pytest_report_from_serializable(config=self._config, data=content)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        worker.running = None

    def _report_death(self, worker: _Worker) -> None:
        item = worker.running
        assert item is not None
        self._config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"{item.nodeid}: the process of this worker ended during the test",
                when="call",
            )
        )

    def _record_warning(self, text: str, filename: str, line: int, when: str, nodeid: str) -> None:
        message = warnings.WarningMessage(UserWarning(text), UserWarning, filename, line)
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={
                "warning_message": message,
                "when": when,
                "nodeid": nodeid,
                "location": None,
            }
        )
