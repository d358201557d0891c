"""Log lines of a test: kept, and shown if the test fails."""

from __future__ import annotations

import pytest
import structlog

from tests.support.log_lines import KEPT_LINES, LogLines


@pytest.fixture
def lines():
    before = structlog.get_config()
    kept = LogLines()
    structlog.configure(processors=[*before["processors"][:-1], kept])
    yield kept
    structlog.configure(**before)


def report(outcome):
    return pytest.TestReport("test_it", ("test.py", 1, "test_it"), {}, outcome, None, "call")


def test_a_failure_shows_the_lines_with_level_and_values(lines, capsys):
    """Nothing is printed before."""
    structlog.get_logger().bind(pool="general").debug("launched", count=3)
    assert capsys.readouterr() == ("", "")

    failed = report("failed")
    lines.add_to(failed)

    ((_, text),) = failed.sections
    assert "[debug    ] launched" in text
    assert text.endswith("count=3 pool=general")


def test_a_success_shows_nothing(lines):
    structlog.get_logger().info("launched")
    passed = report("passed")
    lines.add_to(passed)
    assert passed.sections == []


def test_a_traceback_is_kept_as_text(lines):
    """Kept frames would keep alive what the test has let go of."""
    try:
        int("no such zone")
    except ValueError:
        structlog.get_logger().exception("launch failed")
    assert "Traceback (most recent call last)" in lines.text()
    assert lines.text().endswith("'no such zone'")


def test_the_last_lines_are_kept_until_the_next_test(lines):
    log = structlog.get_logger()
    for number in range(KEPT_LINES + 1):
        log.info("line", number=number)
    shown = lines.text().splitlines()
    assert len(shown) == KEPT_LINES
    assert shown[0].endswith("number=1")
    lines.clear()
    assert not lines.text()
