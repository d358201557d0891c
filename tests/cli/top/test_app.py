"""The live view: keys, screens, errors, and a run against the cluster of files."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from textual.widgets import Input, Static

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.top.app import TopApp
from karpenter_core.cli.top.feed import ViewFeed
from karpenter_core.cli.top.line_list import LineList
from karpenter_core.cli.top.order import Sorting
from karpenter_core.cli.top.view import FeedStatus, ViewOptions
from karpenter_core.errors import ApiError
from tests.cli.top.clusters import read_view, write_cluster


class ManualFeed:
    """Publishes what a test says."""

    def __init__(self):
        self.reads = 0
        self.stopped = False

    def start(self):
        self.reads += 1

    def refresh(self):
        self.reads += 1

    def stop(self):
        self.stopped = True


@pytest.fixture
async def view(tmp_path):
    return await read_view(tmp_path)


def text_of(app):
    """Return the text of the screen, line by line."""
    width, height = app.size
    rows = app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip)[:width].rstrip() for strip in rows]
    assert len(lines) <= height
    return lines


def status(app):
    return str(app.query_one("#status", Static).render())


def app_with(feed):
    return TopApp(lambda _: feed, sorting=Sorting())


async def settle(pilot):
    await pilot.pause()
    await pilot.pause()


async def test_a_view_is_shown_in_80_columns(view):
    feed = ManualFeed()
    app = app_with(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "reads the cluster" in text_of(app)[0]
        app.publish(view)
        await settle(pilot)
        lines = text_of(app)
        assert lines[0].startswith("10 nodes (1 Launching")
        assert any(line.startswith("NODE") and "PRICE" in line for line in lines)
        assert any(line.startswith("busy") and "90%" in line for line in lines)
        assert lines[-1].startswith("? keys  nodes  by name=asc")
    assert feed.stopped


NODES_SCREEN = """\
10 nodes (1 Launching, 1 Registering, 1 Initializing, 2 Ready, 1 NotReady, 1
  Cordoned, 1 Disrupted, 1 Draining, 1 Terminating)
10 pods: 6 running, 6 bound, 4 pending
cpu    ███░░░░░░░░░░░░░░░░░░░░░  12%  3.6 of 29
memory █▏░░░░░░░░░░░░░░░░░░░░░░   5%  768Mi of 16Gi
7.0000 USD per hour, 5,110.00 USD per month, without 3 nodes of unknown price
NODE          POOL    TYPE  CAP AGE STATE        CPU      MEM      PODS  PRICE
batch-asked   batch   -     -    0s Launching    ░░░░  0% ░░░░  0%  0/0      -
batch-booting batch   -     -    0s Registering  ░░░░  0% ░░░░  0%  0/0      -
busy          general large od   0s Ready        ███▋ 90% █▌░░ 38% 6/10 1.0000
chosen        general large od   0s Disrupted    ░░░░  0% ░░░░  0% 0/10 1.0000
cordoned      batch   large od   0s Cordoned     ░░░░  0% ░░░░  0% 0/10 1.0000
drained       general large od   0s Draining     ░░░░  0% ░░░░  0% 0/10 1.0000
ending        general large od   0s Terminating  ░░░░  0% ░░░░  0% 0/10 1.0000
own           -       -     -     - Ready        ░░░░  0% ░░░░  0% 0/10      -
silent        general large od   0s NotReady     ░░░░  0% ░░░░  0% 0/10 1.0000
young         general large od   0s Initializing ░░░░  0% ░░░░  0% 0/10 1.0000
? keys  nodes  by name=asc  live"""

POD_SCREEN = """\
shop/huge
state  unschedulable
age    -
resource: no instance type has enough resources (cpu: 100 asked, large has
15900m) (in all NodePools)
NodePool general
constraint: resource
detail: no instance type has enough resources (cpu: 100 asked, large has
15900m)
closest: large
NodePool batch
constraint: resource
detail: no instance type has enough resources (cpu: 100 asked, large has
15900m)
closest: large
escape back"""


async def test_whole_screens_fit_80_columns(view):
    """The nodes, and the page of a pod, whose reason is longer than a line."""
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(view)
        app.report(FeedStatus(is_live=True))
        await settle(pilot)
        assert "\n".join(filter(None, text_of(app))) == NODES_SCREEN
        await pilot.press("p", "down", "enter")
        await settle(pilot)
        assert "\n".join(filter(None, text_of(app))) == POD_SCREEN


async def test_the_last_line_says_how_current_the_view_is(view):
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.report(FeedStatus(progress="reads the cluster …\n12,000 pods"))
        await settle(pilot)
        assert text_of(app)[:2] == ["reads the cluster …", "12,000 pods"]
        app.publish(replace(view, notes=("a note " * 30,)))
        app.report(FeedStatus(is_live=True))
        await settle(pilot)
        assert status(app).endswith("1 note (n)  live")
        app.report(FeedStatus(is_live=True, lost="pods: no answer", lost_at=time.monotonic() - 40))
        await settle(pilot)
        assert status(app).rstrip() == "stale since 40s: pods: no answer"
        assert len(app._rows) == len(view.nodes)
        await pilot.press("n")
        await settle(pilot)
        lines = text_of(app)
        assert sum("a note" in line for line in lines) > 1
        await pilot.press("e")
        await settle(pilot)
        assert "no last decisions" in text_of(app)


async def test_keys_sort_and_read(view):
    feed = ManualFeed()
    app = app_with(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(view)
        await settle(pilot)
        await pilot.press("s", "S", "r")
        await settle(pilot)
        assert "by pool=dsc" in status(app)
        assert feed.reads == 2
        assert next(line for line in text_of(app)[7:] if line).split()[1] == "general"


async def test_a_filter_is_written_and_ended(view):
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(view)
        await settle(pilot)
        await pilot.press("slash", *"cordon")
        await settle(pilot)
        assert list(app._rows) == ["cordoned"]
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.focused, LineList)
        assert "filter “cordon”" in status(app)
        await pilot.press("escape")
        await settle(pilot)
        assert len(app._rows) == len(view.nodes)
        assert not app.query_one(Input).display


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("p", "shop/huge"),
        ("o", "cpu 100, memory 200Gi"),
        ("d", "drained: Draining"),
        ("question_mark", "pods without a node, with reasons"),
    ],
)
async def test_a_key_shows_another_table_and_again_the_nodes(view, key, text):
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(view)
        await settle(pilot)
        await pilot.press(key)
        await settle(pilot)
        assert any(text in line for line in text_of(app))
        await pilot.press(key)
        await settle(pilot)
        assert any(line.startswith("busy") for line in text_of(app))


async def test_enter_shows_a_node_with_its_pods(view):
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 30)) as pilot:
        app.publish(view)
        await settle(pilot)
        await pilot.press("end", "home", "down", "down", "enter")
        await settle(pilot)
        lines = text_of(app)
        assert lines[0] == "busy"
        assert any(line.startswith("shop/web-0") for line in lines)
        assert not any("shop/done" in line for line in lines)
        await pilot.press("escape")
        await settle(pilot)
        assert any(line.startswith("busy") and "90%" in line for line in text_of(app))


async def test_the_cursor_stays_on_its_node(view):
    """Rows come and go above it."""
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(view)
        await settle(pilot)
        await pilot.press("down", "down", "down")
        lines = app.query_one(LineList)
        name = lines._keys[lines._cursor]
        app.publish(replace(view, nodes=view.nodes[1:]))
        await settle(pilot)
        assert lines._keys[lines._cursor] == name


async def test_the_cursor_scrolls_a_long_list(view):
    rows = tuple(replace(view.nodes[0], name=f"n-{number}") for number in range(500))
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(replace(view, nodes=rows))
        await settle(pilot)
        await pilot.press("end")
        await settle(pilot)
        assert any(line.startswith("n-499 ") for line in text_of(app))
        await pilot.press("home", "pagedown")
        await settle(pilot)
        assert not any(line.startswith("n-499 ") for line in text_of(app))


async def test_an_error_keeps_the_last_view(view):
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.publish(view)
        app.fail(ApiError("the server hangs", status=500))
        await settle(pilot)
        assert "not read: the server hangs" in status(app)
        assert any(line.startswith("busy") for line in text_of(app))
        app.publish(view)
        await settle(pilot)
        assert "not read" not in status(app)


async def test_an_error_before_the_first_view_ends_the_program():
    app = app_with(ManualFeed())
    async with app.run_test(size=(80, 24)) as pilot:
        app.fail(ApiError("refused", status=403))
        await settle(pilot)
    assert str(app.failure) == "refused"


@pytest.mark.parametrize("width", [20, 40, 200])
async def test_a_terminal_may_have_any_width(view, width):
    app = app_with(ManualFeed())
    async with app.run_test(size=(width, 12)) as pilot:
        app.publish(view)
        await settle(pilot)
        assert text_of(app)[0].startswith("10 nodes")


async def test_without_colours_the_text_is_the_same(view, monkeypatch):
    """NO_COLOR leaves bars and states readable."""
    shown = []
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value) if value else monkeypatch.delenv(
            "NO_COLOR", raising=False
        )
        app = app_with(ManualFeed())
        async with app.run_test(size=(80, 24)) as pilot:
            app.publish(view)
            await settle(pilot)
            shown.append(text_of(app)[:-1])
    assert shown[0] == shown[1]


async def test_the_feed_reads_again_and_ends(tmp_path):
    """A change of a file is shown after a refresh, and an error does not end the feed."""
    write_cluster(tmp_path)
    file = tmp_path / "cluster.yaml"
    source = ClusterSource(files=(file,), offline=True, instance_types_file=tmp_path / "types.json")
    seen = asyncio.Queue()
    loop = asyncio.get_running_loop()
    feed = ViewFeed(
        source,
        ViewOptions(resources=("cpu",), node_selector={}),
        refresh_seconds=3600,
        publish=lambda view: loop.call_soon_threadsafe(seen.put_nowait, len(view.nodes)),
        report=lambda _: None,
        fail=lambda error: loop.call_soon_threadsafe(seen.put_nowait, str(error)),
    )
    feed.start()
    try:
        assert await asyncio.wait_for(seen.get(), 30) == 10
        whole = file.read_text()
        file.write_text("kind: [")
        feed.refresh()
        assert "cluster.yaml" in await asyncio.wait_for(seen.get(), 30)
        file.write_text(whole)
        feed.refresh()
        assert await asyncio.wait_for(seen.get(), 30) == 10
    finally:
        await asyncio.to_thread(feed.stop)
    assert not feed._thread.is_alive()
