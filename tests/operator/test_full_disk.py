"""A disk without space costs what would be written to it, and nothing else.

The kernel refuses the writes: they go to a file system in memory of 128 KiB, mounted for this test
alone.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from structlog.testing import capture_logs

from karpenter_core.api.decisions import Decision
from karpenter_core.cli.snapshot.command import _write
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.errors import BadInputError
from karpenter_core.operator.journal_file import JournalFile
from karpenter_core.provider.kit.disk_cache import DiskCache

folder, now, hour = Path(sys.argv[1]), datetime(2030, 1, 1, tzinfo=UTC), timedelta(hours=1)
found = {}

def names():
    return sorted(path.name for path in folder.iterdir())

def journal(*numbers):
    metrics = Metrics()
    file = JournalFile(folder / "journal", max_bytes=10**6, lost=metrics.decision_journal_lost)
    file.start()
    for number in numbers:
        file.write(Decision(id=f"d-{number}", cause="t", kind="disrupt", at=now, summary="x" * 1000))
    file.close()
    value = metrics.registry.get_sample_value
    return value("karpenter_decision_journal_lost_total", {"reason": "write_failed"}) or 0

with capture_logs() as logs:
    cache = DiskCache(folder, "types", version="1")
    cache.write("old", now=now)
    for _ in range(3):
        cache.write("x" * 500_000, now=now)
    found["cache"] = [cache.read(now=now, max_age=hour), names()]
    cache.write("new", now=now)
    cache.write("x" * 500_000, now=now)
found["cache logs"] = [(line["log_level"], line["event"], line.get("error", "")) for line in logs]

_write(folder / "cluster.json", b"old")
try:
    _write(folder / "cluster.json", b"x" * 500_000)
except BadInputError as error:
    found["snapshot"] = [str(error), (folder / "cluster.json").read_text(), names()]

with capture_logs():
    found["lost"] = journal(*range(200))
    (folder / "types.json").unlink()
    found["lost later"] = journal("last")
lines = (folder / "journal").read_text().splitlines()
whole = []
for line in lines:
    try:
        whole.append(json.loads(line)["id"])
    except ValueError:
        pass
found["journal"] = [len(lines) - len(whole), whole[-1]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of the program on the small file system."""
    folder = tmp_path_factory.mktemp("small")
    program = folder.parent / "program.py"
    program.write_text(PROGRAM)
    mounted = 'mount -t tmpfs -o size=128k none "$1" && exec "$2" "$3" "$1"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted, "sh"]
    try:
        subprocess.run(["unshare", "--mount", "--map-root-user", "true"], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a file system here")
    done = subprocess.run(
        [*command, folder, sys.executable, program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_cache_keeps_its_last_value_and_says_so_once(found):
    """No part of a file is left, and the next failure after a success is said again."""
    assert found["cache"] == ["old", ["types.json"]]
    failed = ["warning", "a cache cannot be written", "No space left on device"]
    assert found["cache logs"] == [failed, ["info", "a cache is written again", ""], failed]


def test_a_snapshot_keeps_the_file_that_it_would_replace(found):
    message, content, names = found["snapshot"]
    assert message.endswith("cluster.json: cannot be written: No space left on device")
    assert (content, names) == ("old", ["cluster.json", "types.json"])


def test_a_journal_counts_what_is_lost_and_continues_with_whole_lines(found):
    assert found["lost"] > 0
    assert found["lost later"] == 0
    broken, last = found["journal"]
    assert broken <= 1
    assert last == "d-last"
