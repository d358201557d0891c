"""The page about the way of a pod names the functions that it passes, in their order."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "way-of-a-pod.md"
ROW = re.compile(r"^\| `(?P<module>[\w.]+)` \| `(?P<function>[\w.]+)` \|", re.MULTILINE)
LAUNCH = "KwokProvider.karpenter_launch_instances"


def steps_of_the_page():
    return [(row["module"], row["function"]) for row in ROW.finditer(PAGE.read_text("utf-8"))]


@contextmanager
def calls_of(steps):
    """Record the calls of these functions, and of the plug-in's launch, in their order."""
    results = []
    module_by_code = {
        (str(ROOT / "karpenter_core" / Path(*module.split("."))) + ".py", function): module
        for module, function in steps
    }

    def note(frame, event, _):
        if event == "call":
            code = frame.f_code
            if code.co_qualname == LAUNCH:
                results.append(("", LAUNCH))
            elif module := module_by_code.get((code.co_filename, code.co_qualname)):
                results.append((module, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield results
    finally:
        sys.setprofile(before)


def test_a_pod_passes_the_functions_of_the_page_in_their_order(tmp_path):
    steps = steps_of_the_page()

    async def story(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start()
        await asyncio.sleep(30)
        with calls_of(steps) as calls:
            scene.cluster.apply([deployment("web", 1)])
            await scene.settle(lambda: bool(scene.nodes()))
        left = iter(calls[: calls.index(("", LAUNCH))])
        missed = [step for step in steps if step not in left]
        assert missed[:1] == []

    run_controller(tmp_path, story)


def test_the_way_never_leads_back_to_a_file():
    """A reader opens each file once."""
    modules = [module for module, _ in steps_of_the_page()]
    assert len(modules) == len(set(modules)) > 0
