"""Formats log lines: JSON for programs, aligned text for a terminal.

Keys are Karpenter's (`level` in upper case, `time`, `logger`, `message`, `commit`), so existing
log pipelines go on working. Identical lines are sampled: the first hundred in a second, then every
hundredth, so that a broken object cannot fill a disk.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, final

import structlog

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from structlog.typing import EventDict, Processor, WrappedLogger

    from karpenter_core.operator.settings import Settings

__all__ = ["commit", "configure_logs"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}
SAMPLED_FIRST: Final = 100  # upstream default: lines of one kind a second before sampling
SAMPLED_EVERY: Final = 100  # upstream default


def commit() -> str:
    """Return the revision this process was built from, as the image's build sets it."""
    return os.environ.get("KARPENTER_COMMIT", "unknown")


def configure_logs(settings: Settings) -> Callable[[], None]:
    """Send log lines to the configured outputs; the returned function closes the files.

    Raises:
        SettingsError: a file cannot be opened.
    """
    stream = _TeeStream(
        [_open(path, "log-output-paths") for path in settings.log_output_paths] or [sys.stdout],
        errors=[_open(path, "log-error-output-paths") for path in settings.log_error_output_paths],
    )
    level = _LEVELS[settings.log_level]
    as_text = settings.log_format == "console" or (
        settings.log_format == "auto" and stream.is_terminal
    )
    renderer = _console_renderer() if as_text else _json_renderer()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _RepeatSampler(), *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_NamedLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    return stream.close


def _open(path: str, option: str) -> TextIO:
    if path == "stdout":
        return sys.stdout
    if path == "stderr":
        return sys.stderr
    try:
        return Path(path).open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        message = f'{option}: cannot open "{path}": {error.strerror}'
        raise SettingsError(message) from error


@final
class _TeeStream:
    """Writes every line to several streams; a line that one cannot take goes to the error streams.

    A full disk must not end the work that is logged.
    """

    def __init__(self, streams: list[TextIO], *, errors: list[TextIO]) -> None:
        self._streams = streams
        self._errors = errors

    @property
    def is_terminal(self) -> bool:
        return all(stream.isatty() for stream in self._streams)

    def write(self, text: str) -> int:
        for stream in self._streams:
            try:
                stream.write(text)
                stream.flush()
            except OSError as error:
                self._report(stream, error, text)
        return len(text)

    def close(self) -> None:
        """Close the files among the streams; later log lines are lost."""
        for stream in (*self._streams, *self._errors):
            if stream not in {sys.stdout, sys.stderr}:
                with suppress(OSError):  # of a full disk: what was buffered is lost
                    stream.close()
        self._streams = [stream for stream in self._streams if not stream.closed]
        self._errors = [stream for stream in self._errors if not stream.closed]

    def _report(self, failed: TextIO, error: OSError, text: str) -> None:
        for stream in self._errors:
            with suppress(OSError):
                stream.write(f"cannot write to log {failed.name}: {error.strerror}: {text}")
                stream.flush()


@final
class _NamedLogger:
    """Writes rendered lines; `get_logger("provisioner")` names it."""

    def __init__(self, stream: _TeeStream, name: str) -> None:
        self._stream = stream
        self.name = name

    def msg(self, line: str) -> None:
        self._stream.write(f"{line}\n")

    debug = info = warning = warn = error = critical = fatal = exception = log = failure = err = msg


@final
class _NamedLoggerFactory:
    def __init__(self, stream: _TeeStream) -> None:
        self._stream = stream

    def __call__(self, *names: str) -> _NamedLogger:
        return _NamedLogger(self._stream, ".".join(names))


@final
class _RepeatSampler:
    """Drops most of a flood of identical lines."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: dict[tuple[str, str], int] = {}

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._counts.clear()
        key = (method, str(event.get("event")))
        count = self._counts.get(key, 0) + 1
        self._counts[key] = count
        if count > SAMPLED_FIRST and (count - SAMPLED_FIRST) % SAMPLED_EVERY:
            raise structlog.DropEvent
        return event


def _json_renderer() -> list[Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _with_reference_keys,
        structlog.processors.JSONRenderer(default=str),
    ]


def _with_reference_keys(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    fields: MutableMapping[str, object] = dict(event)
    level = str(fields.pop("level", "info")).upper()
    message = fields.pop("event", "")
    line: dict[str, object] = {
        "level": "WARN" if level == "WARNING" else level,
        "time": fields.pop("time", ""),
        "logger": f"controller.{name}" if (name := _name(logger)) else "controller",
        "message": message,
        "commit": commit(),
    }
    return {**line, **fields}


def _name(logger: WrappedLogger) -> str:
    return logger.name if isinstance(logger, _NamedLogger) else ""


def _console_renderer() -> list[Processor]:
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
        _without_ids,
        structlog.dev.ConsoleRenderer(
            colors=True,
            pad_event_to=40,
            # Those of rich, which is used where it is installed, show the values of local variables.
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]


def _without_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.pop("reconcileID", None)
    return event
