"""Profiles are text, are taken one at a time, and are off unless asked for."""

from __future__ import annotations

import re
import threading
from itertools import count

import pytest

from karpenter_core.errors import BadInputError
from karpenter_core.operator.profiling import (
    profiling_routes,
    shown_arguments,
    slow_profiling_routes,
)
from karpenter_core.operator.servers import HttpServers
from karpenter_core.operator.stack_sampler import StackSampler
from tests.operator.test_servers import fetch, registry  # noqa: F401 - a fixture


def sampler(**changes):
    """A sampler whose second has ten samples and no duration."""
    ticks = count()
    return StackSampler(monotonic=lambda: next(ticks) / 10, sleep=lambda _: None, **changes)


@pytest.fixture
def waiting_thread():
    """A thread that waits in a function of a known name."""
    over, begun = threading.Event(), threading.Event()

    def wait_for_the_end():
        begun.set()
        over.wait()

    thread = threading.Thread(target=wait_for_the_end, name="worker of mine")
    thread.start()
    begun.wait()
    yield thread
    over.set()
    thread.join()


@pytest.mark.usefixtures("waiting_thread")
def test_stacks_are_collapsed_with_the_outermost_frame_first():
    """As flame graph programs read them; the sampling thread is left out."""
    lines = sampler().profile({"seconds": "1"}).splitlines()
    (line,) = [line for line in lines if line.startswith("worker_of_mine;")]

    stack, _, samples = line.rpartition(" ")
    assert int(samples) == 9
    assert stack.startswith("worker_of_mine;threading.Thread._bootstrap;")
    assert "test_profiling.waiting_thread.<locals>.wait_for_the_end;threading.Event.wait" in stack
    assert not [line for line in lines if "StackSampler._sample" in line]
    assert all(re.fullmatch(r"\S+ \d+", line) for line in lines)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"seconds": "0"}, 'seconds: "0" is not a number from 1 to 300'),
        ({"seconds": "9" * 5000}, f'seconds: "{"9" * 5000}" is not a number from 1 to 300'),
        ({"seconds": "301"}, 'seconds: "301" is not'),
        ({"seconds": "long"}, 'seconds: "long" is not'),
        ({"second": "1"}, 'unknown parameter "second"; known: seconds'),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query, said):
    with pytest.raises(BadInputError, match=re.escape(said)):
        sampler().profile(query)


def test_a_second_profile_is_refused_while_one_is_taken():
    """And possible again afterwards, also after an error."""
    refusals = []

    def sleep(_seconds):
        with pytest.raises(BadInputError, match="another profile") as refusal:
            profiles.profile({"seconds": "1"})
        refusals.append(refusal)

    ticks = count()
    profiles = StackSampler(monotonic=lambda: next(ticks) / 10, sleep=sleep)
    profiles.profile({"seconds": "1"})
    assert refusals
    profiles.profile({"seconds": "1"})


async def test_profiling_pages_are_served_only_by_option(registry):  # noqa: F811 - the fixture
    """The index names the others."""
    plain = HttpServers(
        registry=registry, checks=(), address="127.0.0.1", metrics_port=0, probe_port=0
    )
    profiled = HttpServers(
        registry=registry,
        checks=(),
        address="127.0.0.1",
        metrics_port=0,
        probe_port=0,
        extra_routes=profiling_routes(),
        slow_routes=slow_profiling_routes() | {"/debug/pprof/profile": sampler().profile},
    )
    await plain.start()
    await profiled.start()
    try:
        status, _ = await fetch(plain.metrics_port, "/debug/pprof/profile?seconds=1")
        assert status == 404
        status, text = await fetch(profiled.metrics_port, "/debug/pprof/profile?seconds=1")
        assert status == 200
        assert "MainThread;" in text
        status, text = await fetch(profiled.metrics_port, "/debug/pprof/profile?seconds=x")
        assert (status, text[:7]) == (400, "seconds")
        status, text = await fetch(profiled.metrics_port, "/debug/pprof/")
        assert text.splitlines() == sorted(
            f"/debug/pprof/{name}"
            for name in ("", "cmdline", "goroutine", "heap", "profile", "threadcreate")
        )
    finally:
        await plain.stop()
        await profiled.stop()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["karpenter", "run", "--log-level=debug"], ["karpenter", "run", "--log-level=debug"]),
        (["run", "--log-level", "debug"], ["run", "--log-level", "debug"]),
        (["run", "--kubelet-bootstrap-token=abc"], ["run", "--kubelet-bootstrap-token=..."]),
        (
            ["run", "-kubelet-bootstrap-token", "abc", "--log-level", "info"],
            ["run", "-kubelet-bootstrap-token", "...", "--log-level", "info"],
        ),
    ],
)
def test_the_command_line_is_shown_without_the_values_of_plugins(given, shown):
    """Anyone who reads the metrics port would learn a bootstrap token otherwise."""
    assert shown_arguments(given) == shown
