"""`pytest --workers N` reports what pytest reports without workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


def run_pytest(
    folder: Path, files: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest on files, with nothing of this repository but the plug-in."""
    for name, text in files.items():
        (folder / name).write_text(dedent(text), "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.support.forked_workers",
            "-p",
            "no:asyncio",
            "-p",
            "no:xdist",
            "-p",
            "no:hypothesispytest",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder / 'temporary'}",
            f"--junitxml={folder / 'report.xml'}",
            *options,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


SHARED = """
    import os
    import pytest

    @pytest.fixture(scope="module")
    def made():
        return []

    @pytest.mark.parametrize("number", range(4))
    def test_shares(made, number):
        made.append(os.getpid())
        assert len(made) == number + 1
"""
MIXED = """
    import warnings
    import pytest

    def test_passes(tmp_path): (tmp_path / "file").write_text("")

    def test_fails():
        print("printed by the failing test")
        assert "left" == "right"

    def test_is_skipped(): pytest.skip("for no reason")

    @pytest.mark.xfail(reason="known")
    def test_is_expected_to_fail(): assert False

    @pytest.fixture
    def broken():
        yield
        raise ValueError("broken teardown")

    def test_has_a_broken_teardown(broken): pass

    def test_warns():
        warnings.warn("an odd warning")

    def test_records(record_property): record_property("colour", "green")
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """Return runs of the same tests without and with workers, each with its folder."""
    files = {"test_a.py": SHARED, "test_b.py": MIXED, "test_c.py": SHARED}
    folders = tmp_path_factory.mktemp("without"), tmp_path_factory.mktemp("with")
    options = (), ("--workers", "2")
    return [
        (run_pytest(folder, files, *some), folder)
        for folder, some in zip(folders, options, strict=True)
    ]


def test_results_are_counted_as_without_workers(runs):
    without, with_workers = (
        re.sub(r" in [0-9.]+s", "", run.stdout.splitlines()[-1]) for run, _ in runs
    )
    assert with_workers == without
    assert "1 failed, 12 passed, 1 skipped, 1 xfailed" in with_workers
    assert [run.returncode for run, _ in runs] == [1, 1]


def test_failures_are_shown_with_their_output(runs):
    for run, _ in runs:
        assert "printed by the failing test" in run.stdout
        assert "'left' == 'right'" in run.stdout
        assert "ValueError: broken teardown" in run.stdout
        assert "UserWarning: an odd warning" in run.stdout


def test_xml_reports_hold_the_same_results(runs):
    def results(folder: Path) -> dict[str, list[tuple[str, str | None]]]:
        (suite,) = ET.parse(folder / "report.xml").getroot()
        return {
            f"{case.get('classname')}.{case.get('name')}": [
                (part.tag, part.get("message")) for part in case.iter() if part is not case
            ]
            for case in suite.iter("testcase")
        }

    without, with_workers = (results(folder) for _, folder in runs)
    assert with_workers == without
    assert len(with_workers) == 15


def test_each_worker_has_its_folder_of_temporary_files(runs):
    _, folder = runs[1]
    (written,) = folder.glob("temporary/worker-*/test_passes0/file")
    assert written.exists()


def test_the_death_of_a_worker_fails_the_run(tmp_path):
    files = {
        "test_a.py": """
            import os

            def test_dies(): os._exit(0)

            def test_comes_after(): pass
        """,
        "test_b.py": "def test_passes(): pass\n",
    }
    run = run_pytest(tmp_path, files, "--workers", "2")
    assert run.returncode == 1
    assert "test_a.py::test_dies: the process of this worker ended during the test" in run.stdout
    assert "2 tests did not run: a worker ended" in run.stdout
    assert "1 failed, 1 passed" in run.stdout


def test_the_first_failure_ends_the_run_on_request(tmp_path):
    files = {
        "test_a.py": "def test_fails(): assert False\n",
        "test_b.py": """
            import time

            def test_waits(): time.sleep(100)
        """,
    }
    run = run_pytest(tmp_path, files, "--workers", "2", "-x")
    assert run.returncode == 1
    assert "stopping after 1 failures" in run.stdout
    assert "1 failed in" in run.stdout


def test_groups_are_handed_out_test_by_test_on_request(tmp_path):
    meeting = """
        import pytest
        from multiprocessing.connection import Client, Listener

        ADDRESS = {address!r}

        def test_waits_for_another_worker():
            with Listener(ADDRESS) as listener, listener.accept() as other:
                assert other.recv() == "here"

        def test_meets_the_other_worker():
            for _ in range(100_000):
                try:
                    with Client(ADDRESS) as other:
                        other.send("here")
                    return
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
            pytest.fail("nobody there")
    """.format(address=str(tmp_path / "socket"))
    run = run_pytest(tmp_path, {"test_a.py": meeting}, "--workers", "2", "--hand-out", "tests")
    assert "2 passed" in run.stdout


def test_tests_of_a_group_are_handed_out_together(tmp_path):
    """So what they share is made once."""
    grouped = """
        import os
        import time
        import pytest

        pytestmark = pytest.mark.xdist_group("sharing")

        @pytest.fixture(scope="module")
        def made():
            time.sleep(0.5)
            return os.getpid()

        def test_is_first(made, record_property): record_property("process", made)
        def test_is_second(made, record_property): record_property("process", made)
    """
    report = tmp_path / "report.xml"
    run = run_pytest(
        tmp_path,
        {"test_a.py": grouped, "test_b.py": "def test_passes(): pass\n"},
        *("--workers", "2", "--hand-out", "tests", f"--junitxml={report}"),
    )
    assert "3 passed" in run.stdout
    processes = [each.get("value") for each in ET.parse(report).iter("property")]
    assert len(processes) == 2
    assert len(set(processes)) == 1
