"""Each bound in docs/security.md names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`([\w/.-]+\.py)(?:::(\w+))?` \|$")


def test_each_bound_names_a_test_that_exists() -> None:
    page = (ROOT / "docs/security.md").read_text("utf-8")
    section = page.partition("## Bounds on inputs")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        found = TEST.search(row)
        assert found is not None, row
        text = (ROOT / found[1]).read_text("utf-8")
        name = found[2] or r"test_\w+"
        assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), row
