"""The documented Job of a sweep: its pods, each a process, and the documented collection of their lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sweep_job import (
    INPUTS,
    container_arguments,
    documented_collection,
    documented_job,
)

pytestmark = pytest.mark.cluster_runs

PROGRAM = Path(sys.executable).with_name("karpenter")
REPOSITORY = Path(__file__).parents[3]
SHORTER = "--duration=2m"
"""Added to every command: whole days of forty runs take many minutes."""


class Pod:
    """The container of one index: a process with its variable, its files, and an empty home folder."""

    def __init__(self, job, index, folder):
        home = folder / f"home-{index}"
        home.mkdir(exist_ok=True)
        self.log = folder / f"pod-{index}-{len(list(folder.glob(f'pod-{index}-*')))}.log"
        arguments = container_arguments(job, index, folder / "input")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, *arguments, SHORTER],
                env={
                    "JOB_COMPLETION_INDEX": str(index),
                    "HOME": str(home),
                    "PATH": "/usr/bin:/bin",
                },
                cwd=home,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@pytest.fixture
def folder(tmp_path):
    """A folder with the mounted files, and a `kubectl` that prints the logs of the pods."""
    (tmp_path / "input").mkdir()
    for file in INPUTS:
        shutil.copy(file, tmp_path / "input")
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\ncase "$1" in logs) cat {tmp_path}/pod-*.log;; esac\n')
    kubectl.chmod(0o755)
    (tmp_path / "bin" / "karpenter").symlink_to(PROGRAM)
    return tmp_path


def collected(folder):
    """Run the documented commands, and return what the sweep prints and the file of results before it."""
    *before, sweep = documented_collection()
    sweep = sweep.replace("examples/", f"{REPOSITORY}/examples/").partition(" > ")[0]
    variables = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}

    def shell(command):
        return subprocess.run(
            ["sh", "-ec", command], cwd=folder, env=variables, check=True, capture_output=True, text=True
        ).stdout  # fmt: skip

    shell("\n".join(before))
    file = folder / "results.jsonl"
    lines = file.read_text().splitlines()
    merged = shell(f"{sweep} {SHORTER}")
    is_complete = file.read_text().splitlines() == lines
    command, options, rest = sweep.partition(" --results results.jsonl")
    assert options
    return merged, lines, is_complete, shell(f"{command}{rest} {SHORTER}")


def test_the_collected_lines_are_the_local_sweep(folder):
    """Byte for byte, though the pod of one index was killed and ran again, and pods print notes."""
    job = documented_job()
    killed = Pod(job, 3, folder)
    while not killed.log.read_bytes().count(b"\n") >= 2:
        assert killed.process.poll() is None
    killed.process.kill()
    killed.process.wait()
    pods = [Pod(job, index, folder) for index in range(job["spec"]["completions"])]
    assert [pod.process.wait() for pod in pods] == [0] * len(pods)
    pods[0].log.write_text(f"karpenter: note: a note\n{pods[0].log.read_text()}")

    merged, lines, is_complete, local = collected(folder)

    assert merged == local
    assert len(lines) == 40 + killed.log.read_bytes().count(b"\n")
    assert is_complete, "nothing was simulated again"


def test_runs_of_a_part_that_failed_are_simulated_by_the_collection(folder):
    job = documented_job()
    count = job["spec"]["completions"]
    for pod in [Pod(job, index, folder) for index in range(count - 1)]:
        assert pod.process.wait() == 0

    merged, lines, is_complete, local = collected(folder)

    assert merged == local
    assert len(lines) == 40 - 40 // count
    assert not is_complete
