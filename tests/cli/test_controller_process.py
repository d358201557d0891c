"""The controller's process ends with its code, whatever its threads wait for."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from karpenter_core.cli import controller_process


class Left(BaseException):
    """Stands for the end of the process."""


def play(monkeypatch, controller):
    async def run(*_, **__):
        return await controller()

    monkeypatch.setattr(controller_process, "run_from_command_line", run)
    return controller_process.run_controller([])


def test_a_lookup_that_hangs_does_not_hold_up_the_end(monkeypatch, capsys):
    answered, codes = threading.Event(), []

    async def controller():
        asyncio.get_running_loop().run_in_executor(None, answered.wait)
        return 1

    def leave(code):
        codes.append(code)
        answered.set()
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Left):
        play(monkeypatch, controller)

    assert codes == [1]
    assert "threads still wait and are left behind: asyncio_0" in capsys.readouterr().err


def test_a_thread_that_ends_in_time_is_waited_for(monkeypatch):
    answered = threading.Event()

    async def controller():
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, answered.wait)
        loop.call_later(0.1, answered.set)
        return 7

    monkeypatch.setattr(os, "_exit", pytest.fail)
    assert play(monkeypatch, controller) == 7


def in_hook(work):
    """Do work in a thread like those of hooks, which are daemons: so are the threads that it starts."""
    hook = threading.Thread(target=work, daemon=True)
    hook.start()
    hook.join()


def test_a_thread_pool_of_a_hook_does_not_hold_up_the_end(monkeypatch, capsys):
    """Python waits for the calls of a pool even if its threads are daemons."""
    answered, codes, pools = threading.Event(), [], []

    def work():
        pools.append(ThreadPoolExecutor(thread_name_prefix="sdk"))
        pools[0].submit(answered.wait)

    async def controller():
        in_hook(work)
        return 1

    def leave(code):
        codes.append(code)
        answered.set()
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(Left):
        play(monkeypatch, controller)

    assert codes == [1]
    assert "threads still wait and are left behind: sdk_0" in capsys.readouterr().err


def test_an_idle_thread_pool_of_a_hook_is_no_reason_to_leave_anything_behind(monkeypatch):
    pools = []

    def work():
        pools.append(ThreadPoolExecutor(thread_name_prefix="sdk"))
        pools[0].submit(int).result()

    async def controller():
        in_hook(work)
        return 7

    monkeypatch.setattr(os, "_exit", pytest.fail)
    assert play(monkeypatch, controller) == 7
    pools[0].shutdown()
