"""The controller's process ends with its code, whatever its threads wait for."""

from __future__ import annotations

import asyncio
import os
import threading

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
