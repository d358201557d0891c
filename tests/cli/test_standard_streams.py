"""The program without a standard input, output or error: nothing takes their place."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.inputs import POOL, write

PROGRAM = f'"{sys.executable}" -m karpenter_core.cli.entry'
CLOSED = "karpenter: the standard output is closed\n"


@pytest.fixture
def sh(tmp_path):
    """Run a line of the shell in a folder with one manifest; return its code, output and errors."""
    write(tmp_path / "pool.yaml", POOL)

    def run(line):
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=tmp_path,
            env={
                **{name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
                "PROVIDERS": "kwok",
                "KUBECONFIG": str(tmp_path / "none"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize(
    "line",
    [
        "snapshot --offline pool.yaml -o -",
        "convert pool.yaml",
        "plan --offline pool.yaml -o json",
        "--version",
    ],
)
def test_a_result_that_nobody_can_read_is_an_error_of_one_line(sh, line):
    """Not a traceback, and not a success either."""
    code, _, errors = sh(f"{PROGRAM} {line} >&-")
    assert (code, errors[-len(CLOSED) :]) == (2, CLOSED)
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_a_full_disk_behind_the_output_is_an_error_of_one_line(sh):
    """Although so little is written that it would only be sent at the end of the process."""
    line = "plan --offline pool.yaml -o json"
    assert sh(f"{PROGRAM} {line} >/dev/full") == (2, "", "karpenter: No space left on device\n")


def test_a_reader_that_goes_early_causes_no_message(sh, tmp_path):
    """As `head` does."""
    line = "plan --offline pool.yaml -o json"
    assert sh(f"{{ {PROGRAM} {line}; echo $? > code; }} | true") == (0, "", "")
    assert (tmp_path / "code").read_text() == "1\n"


def test_a_closed_standard_input_is_named(sh):
    assert sh(f"{PROGRAM} convert - <&-") == (
        2,
        "",
        "karpenter: standard input: cannot be read: Bad file descriptor\n",
    )


def test_messages_never_go_to_the_output_instead_of_closed_errors(sh):
    """`print` writes to the output where the stream that it is given is None: JSON would be invalid."""
    assert sh(f"{PROGRAM} plan --offline missing.yaml -o json 2>&-") == (2, "", "")


def test_no_file_or_connection_takes_the_number_of_a_closed_stream(sh, tmp_path):
    """Log lines are written to the numbers 1 and 2: they would go to the API server."""
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "from karpenter_core.cli import entry\n"
        "sys.argv[1:] = ['run', '--nope']\n"
        "try:\n"
        "    entry.main()\n"
        "except SystemExit as end:\n"
        "    opened = os.open('next', os.O_CREAT | os.O_WRONLY)\n"
        "    os.write(1, b'a line of the log')\n"
        "    with open('shown', 'w') as shown:\n"
        "        print(end.code, opened > 2, file=shown)\n"
    )
    sh(f'"{sys.executable}" program.py <&- >&- 2>&-')
    assert (tmp_path / "shown").read_text() == "2 True\n"
    assert (tmp_path / "next").read_text() == ""
