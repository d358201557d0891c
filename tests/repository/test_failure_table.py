"""Each failure in docs/operations.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`([\w/.-]+\.py)::(\w+)`")


def test_each_failure_names_tests_that_exist() -> None:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    section = page.partition("## Failures")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        tests = TEST.findall(row)
        assert tests or "the same test" in row, row
        for file, name in tests:
            assert re.search(
                rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
            ), name
