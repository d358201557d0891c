"""Formats log lines: JSON for programs, aligned text for a terminal.

Keys are Karpenter's (`level` in upper case, `time`, `logger`, `message`, `commit`), so existing
log pipelines go on working. Identical lines are sampled: the first hundred in a second, then every
hundredth, so that a broken object cannot fill a disk.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.operator.log_outputs import LogOutputs

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
    """Send log lines to the configured outputs.

    The returned function writes the lines that wait and closes the files.

    Raises:
        SettingsError: a file cannot be opened.
    """
    outputs = LogOutputs(settings.log_output_paths or ("stdout",), settings.log_error_output_paths)
    level = _LEVELS[settings.log_level]
    as_text = settings.log_format == "console" or (
        settings.log_format == "auto" and outputs.is_terminal
    )
    renderer = _console_renderer() if as_text else _json_renderer()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, _RepeatSampler(), *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_NamedLoggerFactory(outputs),
        cache_logger_on_first_use=False,
    )
    return outputs.close


@final
class _NamedLogger:
    """Writes rendered lines; `get_logger("provisioner")` names it."""

    def __init__(self, outputs: LogOutputs, name: str) -> None:
        self._outputs = outputs
        self.name = name

    def msg(self, line: str) -> None:
        self._outputs.write(line)

    debug = info = warning = warn = error = critical = fatal = exception = log = failure = err = msg


@final
class _NamedLoggerFactory:
    def __init__(self, outputs: LogOutputs) -> None:
        self._outputs = outputs

    def __call__(self, *names: str) -> _NamedLogger:
        return _NamedLogger(self._outputs, ".".join(names))


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
