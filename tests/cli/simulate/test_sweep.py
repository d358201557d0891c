"""A sweep of many runs: one that fails costs no other, and a sweep that was ended goes on."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from karpenter_core.cli.simulate import batch
from tests.cli.simulate.test_simulate import BURST, WEB
from tests.support.run_selection import others_as_cluster_runs

PROGRAM = Path(sys.executable).with_name("karpenter")
SHORT = ("--duration", "5m")
BAD_WEIGHT = ("--sweep", "spec.weight=1,1000")


def ended_by_the_system(scenario, left_out, line=None):
    """End the process of the run with seed 2, as the system does for lack of memory."""
    if scenario.seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome_of(scenario, left_out, line)


outcome_of = batch._outcome


@pytest.mark.parametrize("jobs", others_as_cluster_runs([1, 2]))
def test_a_run_that_cannot_be_used_is_listed_and_the_others_are_kept(simulate, jobs):
    """With exit code 1, its values and its error."""
    document = simulate(BURST, *SHORT, *BAD_WEIGHT, "--jobs", jobs, code=1)

    (run,), (failed,) = document["runs"], document["failed"]
    assert run["values"] == {"spec.weight": "1"}
    assert failed["values"] == {"spec.weight": "1000"}
    assert "spec.weight" in failed["error"]


@pytest.mark.cluster_runs
def test_table_and_page_name_a_run_that_failed(simulate):
    table, page = (
        simulate(BURST, *SHORT, *BAD_WEIGHT, output=output, code=1) for output in ("table", "html")
    )

    assert "1 run of 5m00s, and 1 that failed" in table
    assert max(map(len, table.splitlines())) <= 80
    for text in (table, page):
        assert "spec.weight=1000" in text


@pytest.mark.cluster_runs
def test_a_process_that_is_killed_costs_its_own_run_only(simulate, monkeypatch):
    """The run is named, and another process takes the next ones."""
    monkeypatch.setattr(batch, "_outcome", ended_by_the_system)
    document = simulate(BURST, *SHORT, "--sweep", "seed=1,2,3,4", "--jobs", "2", code=1)

    assert sorted(run["seed"] for run in document["runs"]) == [1, 3, 4]
    (failed,) = document["failed"]
    assert failed["values"] == {"seed": "2"}
    assert "its process has ended" in failed["error"]


def test_a_defect_in_one_run_costs_no_other(simulate, monkeypatch):
    simulated = batch.simulate

    def broken(scenario, line):
        if scenario.seed == 1:
            raise ZeroDivisionError("by zero")
        return simulated(scenario, line)

    monkeypatch.setattr(batch, "simulate", broken)
    document = simulate(BURST, *SHORT, "--sweep", "seed=1,2", code=1)

    assert [run["seed"] for run in document["runs"]] == [2]
    assert document["failed"][0]["error"] == "ZeroDivisionError: by zero"


@pytest.mark.cluster_runs
def test_progress_of_processes_counts_runs_and_failures(simulate, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", shown)
    simulate(BURST, *SHORT, *BAD_WEIGHT, "--jobs", "2", code=1)

    lines = shown.getvalue().split("\r\x1b[K")
    assert any(
        line.startswith("2 of 2 simulations have ended, 1 failed; about 0 min") for line in lines
    )
    assert lines[-1] == ""


class TestResults:
    """`--results` keeps finished runs."""

    @pytest.mark.cluster_runs
    def test_runs_that_the_file_has_are_not_repeated(self, simulate, tmp_path, monkeypatch):
        """The output is that of one sweep."""
        file = tmp_path / "results.jsonl"
        options = (*SHORT, "--results", file, "--sweep")
        whole = simulate(BURST, *options[:2], "--sweep", "seed=1,2,3")
        simulate(BURST, *options, "seed=1,2")
        simulated: list[int] = []
        monkeypatch.setattr(
            batch,
            "_outcome",
            lambda scenario, *rest: simulated.append(scenario.seed) or outcome_of(scenario, *rest),
        )

        assert simulate(BURST, *options, "seed=1,2,3") == whole
        assert simulated == [3]
        assert simulate(BURST, *options, "seed=1,2,3") == whole
        assert simulated == [3]

    def test_a_line_that_was_cut_off_is_simulated_again(self, simulate, tmp_path):
        file = tmp_path / "results.jsonl"
        options = (*SHORT, "--results", file, "--sweep", "seed=1,2")
        whole = simulate(BURST, *options)
        content = file.read_bytes()
        file.write_bytes(content[:-20])

        assert simulate(BURST, *options) == whole
        assert sorted(file.read_bytes().splitlines()) == sorted(content.splitlines())

    def test_another_input_is_simulated_anew(self, simulate, tmp_path):
        """Whatever of it changes: workload, catalogue, node start-up."""
        file = tmp_path / "results.jsonl"
        options = (*SHORT, "--results", file, "--sweep", "seed=1")
        simulate(BURST, *options)
        simulate({"deployments": [{**WEB, "replicas": 3}]}, *options)
        simulate(BURST, *options, "--node-startup", "70s")

        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert len({line["input"] for line in lines}) == 3
        assert lines[0]["run"]["pendingSeconds"] != lines[2]["run"]["pendingSeconds"]

    @pytest.mark.parametrize("content", ["hello", "[1]\n", '{"input": 1}\n'])
    def test_a_file_of_another_kind_is_kept_as_it_is(self, simulate, tmp_path, content):
        file = tmp_path / "results.jsonl"
        file.write_text(content)
        refusal = simulate(BURST, *SHORT, "--results", file, "--sweep", "seed=1", code=2)

        assert str(file) in refusal
        assert file.read_text() == content

    def test_lines_on_stdout_are_those_of_the_file(self, simulate, tmp_path):
        """And nothing else is there; a run that failed has none."""
        file = tmp_path / "results.jsonl"
        options = (*SHORT, "--sweep", "seed=1,2", "--results")
        simulate(BURST, *options, file)

        assert simulate(BURST, *options, "-", output="table") == file.read_text()
        failing = (*SHORT, *BAD_WEIGHT, "--results", "-")
        assert len(simulate(BURST, *failing, output="html", code=1).splitlines()) == 1

    def test_results_are_those_of_a_sweep(self, simulate, tmp_path):
        refusal = simulate(BURST, "--results", tmp_path / "results.jsonl", code=2)
        assert "--results keeps the runs of a sweep" in refusal


@pytest.mark.cluster_runs
def test_each_seed_of_a_sweep_draws_the_workload_as_the_option_does(simulate):
    """The noise of a curve follows the seed of the run."""
    noisy = {"low": 1, "high": 20, "period": "1h", "noise": 0.5}
    workload = {"deployments": [{**WEB, "sine": noisy}]}
    options = ("--duration", "30m")
    runs = simulate(workload, *options, "--sweep", "seed=0,5")["runs"]
    (alone,) = simulate(workload, *options, "--seed", "5")["simulations"]

    (swept,) = [run for run in runs if run["seed"] == 5]
    assert swept["cost"] == alone["cost"]
    assert swept["pods"] == alone["pods"]
    assert len({json.dumps(run["pods"]) for run in runs}) == 2


def test_no_process_is_left_when_all_runs_have_ended(simulate):
    """A program that ends while they do would print the error of a closed pipe."""
    simulate(BURST, *SHORT, "--sweep", "seed=1,2,3", "--jobs", "2")

    left = [each for each in threading.enumerate() if "Executor" in type(each).__name__]
    assert left == []
    assert multiprocessing.active_children() == []


def test_an_interrupted_sweep_ends_with_its_processes(tmp_path, node_pools):
    """Though only the program itself gets the signal, and runs would take minutes."""
    workload = tmp_path / "workload.yaml"
    workload.write_text(json.dumps(BURST))
    arguments = ("--nodepools", node_pools, "--workload", workload, "--duration", "8000h")
    program = subprocess.Popen(
        [PROGRAM, "simulate", *arguments, "--sweep", "seed=1,2,3", "--jobs", "2"],
        start_new_session=True,
    )
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    try:
        while len(started := workers(children)) < 2:
            assert program.poll() is None
            time.sleep(0.1)
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=60) == 130
        deadline = (
            time.monotonic() + 60
        )  # one that has only begun to load sees the end a moment later
        while any(Path(f"/proc/{each}").exists() for each in started):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def workers(children):
    """Return the process ids of the runs that have begun."""
    return [
        each
        for each in children.read_text().split()
        if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
