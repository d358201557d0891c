"""Log lines keep the format that pipelines read."""

from __future__ import annotations

import json
import os

import pytest
import structlog

from karpenter_core.errors import SettingsError
from karpenter_core.operator.logs import configure_logs
from karpenter_core.operator.settings import Settings


@pytest.fixture
def configured():
    """Configure logs from settings; the returned function writes what waits and closes the files."""
    closers = []

    def configure(**settings):
        closers.append(configure_logs(Settings(**settings)))
        return closers[-1]

    yield configure
    for close in closers:
        close()
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_the_references_keys(configured, tmp_path):
    """`level`, `time`, `logger`, `message`, `commit`, then fields and what is bound."""
    file = tmp_path / "log"
    close = configured(log_output_paths=(str(file),), log_format="json")
    structlog.contextvars.bind_contextvars(reconcileID="one")

    structlog.get_logger("provisioner").info("created", NodeClaim={"name": "web-1"})
    close()

    (line,) = lines(file)
    assert list(line)[:5] == ["level", "time", "logger", "message", "commit"]
    assert (
        line["level"],
        line["logger"],
        line["message"],
    ) == ("INFO", "controller.provisioner", "created")
    assert line["NodeClaim"] == {"name": "web-1"}
    assert line["reconcileID"] == "one"


def test_the_level_filters(configured, tmp_path):
    """An error passes where information does not."""
    file = tmp_path / "log"
    close = configured(log_output_paths=(str(file),), log_format="json", log_level="error")
    log = structlog.get_logger()

    log.info("quiet")
    log.error("loud")
    close()

    assert [line["message"] for line in lines(file)] == ["loud"]


def test_a_flood_of_identical_lines_is_thinned(configured, tmp_path, monkeypatch):
    """The first hundred in a second, then every hundredth; other lines are not touched."""
    monkeypatch.setattr("karpenter_core.operator.logs.time.monotonic", lambda: 7.0)
    file = tmp_path / "log"
    close = configured(log_output_paths=(str(file),), log_format="json")
    log = structlog.get_logger()

    for _ in range(300):
        log.info("again")
    log.info("once")
    close()

    messages = [line["message"] for line in lines(file)]
    assert messages.count("again") == 102
    assert messages.count("once") == 1


def test_a_path_that_cannot_be_opened_names_the_option(tmp_path):
    """At start, not at the first line."""
    with pytest.raises(SettingsError, match="log-output-paths"):
        configure_logs(Settings(log_output_paths=(str(tmp_path / "no" / "log"),)))


def test_a_line_that_cannot_be_written_is_reported_as_an_error(configured, tmp_path):
    """A full disk ends neither the work that is logged nor the other outputs."""
    file, errors = tmp_path / "log", tmp_path / "errors"
    close = configured(
        log_output_paths=("/dev/full", str(file)),
        log_error_output_paths=(str(errors),),
        log_format="json",
    )

    structlog.get_logger().info("created")
    close()

    assert [line["message"] for line in lines(file)] == ["created"]
    said = errors.read_text()
    assert said.startswith("cannot write to log /dev/full: No space left on device: ")
    assert '"message": "created"' in said


def test_an_output_that_takes_no_line_holds_up_nobody(configured, tmp_path, monkeypatch):
    """The reader of a pipe stands still: what does not fit is lost, counted and reported later."""
    monkeypatch.setattr("karpenter_core.operator.log_outputs.QUEUE_LINES", 50)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        close = configured(log_output_paths=(str(pipe),), log_format="json")
        monkeypatch.setattr("karpenter_core.operator.logs.SAMPLED_FIRST", 200)
        log = structlog.get_logger()

        for number in range(200):  # the pipe itself holds some fifteen
            log.info("created", number=number, padding="." * 4096)

        os.set_blocking(reader.fileno(), True)
        written, lost = [], 0
        for line in map(json.loads, reader):
            if line["message"] == "created":
                written.append(line["number"])
            else:
                assert line["message"] == "log lines were lost because an output took none"
                lost += line["lines"]
            if len(written) + lost >= 200:
                break
        close()

    assert lost > 100
    assert len(written) + lost == 200
    assert written == sorted(written)


def test_a_line_that_is_not_unicode_is_written(configured, tmp_path):
    """A lone surrogate, from a broken name or answer, neither ends the work nor loses the line."""
    file = tmp_path / "log"
    close = configured(log_output_paths=(str(file),), log_format="console")

    structlog.get_logger().info("created \ud800")
    close()

    assert "created \\ud800" in file.read_text()


def test_an_error_path_that_cannot_be_opened_names_its_option(tmp_path):
    with pytest.raises(SettingsError, match="log-error-output-paths"):
        configure_logs(Settings(log_error_output_paths=(str(tmp_path / "no" / "log"),)))


def test_tracebacks_on_a_terminal_show_no_local_variables(configured, tmp_path):
    """A value may be a password or the answer of a cloud."""
    file = tmp_path / "log"
    close = configured(log_output_paths=(str(file),), log_format="console")

    def fail(token):
        raise ValueError("refused", len(token))

    secret = "planted-token"
    try:
        fail(secret)
    except ValueError:
        structlog.get_logger().exception("failed")
    close()

    text = file.read_text()
    assert "ValueError" in text
    assert "in fail" in text
    assert "planted-token" not in text
