"""The documented Job of a sweep: its pods, each a process, and the documented collection of their lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.sweep_job import (
    INPUTS,
    container_arguments,
    documented_collection,
    documented_job,
)

pytestmark = [pytest.mark.cluster_runs, pytest.mark.xdist_group("sweep job")]

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


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A folder with the mounted files, a `kubectl` that prints the logs of the pods, and all their logs."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "input").mkdir()
    for file in INPUTS:
        shutil.copy(file, folder / "input")
    kubectl = folder / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text('#!/bin/sh\ncase "$1" in logs) cat pod-*.log;; esac\n')
    kubectl.chmod(0o755)
    (folder / "bin" / "karpenter").symlink_to(PROGRAM)
    job = documented_job()
    killed = Pod(job, 3, folder)
    while not killed.log.read_bytes().count(b"\n") >= 2:
        assert killed.process.poll() is None
        time.sleep(0.05)
    killed.process.kill()
    killed.process.wait()
    pods = [Pod(job, index, folder) for index in range(job["spec"]["completions"])]
    assert [pod.process.wait() for pod in pods] == [0] * len(pods)
    pods[0].log.write_text(f"karpenter: note: a note\n{pods[0].log.read_text()}")
    return folder


@pytest.fixture(scope="module")
def local(played):
    """The output of the documented sweep where nothing has been simulated before."""
    command, options, rest = sweep_command().partition(" --results results.jsonl")
    assert options
    return shell(f"{command}{rest} {SHORTER}", played)


def sweep_command():
    *_, sweep = documented_collection()
    return sweep.replace("examples/", f"{REPOSITORY}/examples/").partition(" > ")[0]


def shell(command, folder):
    """Return what a command prints that finds the folder's programs."""
    variables = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=variables, check=True, capture_output=True, text=True
    ).stdout  # fmt: skip


def collected(folder):
    """Run the documented commands; return what the sweep prints, and the file of results before and after it."""
    *before, _ = documented_collection()
    shell("\n".join(before), folder)
    file = folder / "results.jsonl"
    lines = file.read_text().splitlines()
    merged = shell(f"{sweep_command()} {SHORTER}", folder)
    return merged, lines, file.read_text().splitlines()


def test_the_collected_lines_are_the_local_sweep(played, local):
    """Byte for byte, though the pod of one index was killed and ran again, and pods print notes."""
    merged, before, after = collected(played)

    assert merged == local
    assert len(set(before)) == 40
    assert len(before) > 40, "of the killed pod too"
    assert after == before, "nothing was simulated again"


def test_runs_of_a_part_that_failed_are_simulated_by_the_collection(played, local, tmp_path):
    count = documented_job()["spec"]["completions"]
    folder = shutil.copytree(played, tmp_path / "job", symlinks=True)
    for log in folder.glob(f"pod-{count - 1}-*.log"):
        log.unlink()

    merged, before, after = collected(folder)

    assert merged == local
    assert len(set(before)) == 40 - 40 // count
    assert len(after) - len(before) == 40 // count
