"""The page in a real browser: hostile texts, the keyboard, colours, narrow windows, live changes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from karpenter_core.cli.demo.processes import controller, free_port
from karpenter_core.operator.metrics_access import AccessReviewer
from karpenter_core.sim.virtual_time import LoopClock
from tests.dashboard.moments import ScriptedContent, World, decision, node_row
from tests.dashboard.test_server import served
from tests.operator.test_metrics_access import SCRAPER, Reviews
from tests.support.browser import Browser
from tests.support.dashboard_runs import running_dashboard

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'&amp;</td>"


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


class Page:
    """The page of a scripted world, driven from a thread while the server runs on the loop."""

    def __init__(self, browser, url, world):
        self.browser = browser
        self.url = url
        self.world = world

    async def do(self, function, *arguments):
        return await asyncio.to_thread(function, *arguments)

    def open(self):
        self.browser.problems()
        self.browser.driver.get(self.url)
        self.browser.wait(lambda: self.browser.text("#connection") == "live")

    def find(self, selector):
        return self.browser.driver.find_element(By.CSS_SELECTOR, selector)

    def rows(self, table):
        return self.browser.run(
            f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.firstChild.innerText)"
        )


@asynccontextmanager
async def opened(browser, *nodes, pending=()):
    """Open the page of a world with these nodes."""
    world = World(ScriptedContent(*nodes), interval_seconds=0.1)
    world.content.pending = list(pending)
    async with served(world) as url:
        page = Page(browser, url, world)
        await page.do(browser.resize, 1280, 900)
        await page.do(browser.prefer, "light")
        await page.do(page.open)
        try:
            yield page
        finally:
            await page.do(browser.driver.get, "about:blank")


def pending_pod(name, message="no room"):
    return {"pod": name, "state": "unschedulable", "message": message, "createdAt": None}


async def test_names_and_messages_are_text_and_never_markup(browser):
    row = node_row(
        HOSTILE, nodeClaim=HOSTILE, nodePool=HOSTILE, instanceType=HOSTILE, zone=HOSTILE,
        capacityType=HOSTILE, reason=HOSTILE,
    )  # fmt: skip
    async with opened(browser, row, pending=[pending_pod(HOSTILE, HOSTILE)]) as page:
        page.world.content.text = HOSTILE
        page.world.content.pools = [HOSTILE]
        page.world.content.notes = [HOSTILE]
        page.world.change()
        page.world.sink(decision(1, summary=HOSTILE, removed=[HOSTILE], launched=[HOSTILE]))
        await page.do(browser.wait, lambda: HOSTILE in browser.text("#note-list"))
        await page.do(browser.wait, lambda: HOSTILE in browser.text("#decision-list"))
        await page.do(page.find("#nodes-table tbody button").click)
        await page.do(browser.wait, lambda: browser.text("#detail-body").count(HOSTILE) == 9)
        await page.do(page.find("#close").click)
        await page.do(page.find("#pending-table tbody button").click)
        await page.do(browser.wait, lambda: browser.text("#detail-body").count(HOSTILE) == 4)
        await page.do(page.find("#close").click)
        await page.do(page.find("#rebalance-ask").click)
        await page.do(browser.wait, lambda: browser.text("#detail-body").count(HOSTILE) == 5)
        counts = await page.do(
            browser.run, "['img', 'script'].map(tag => document.querySelectorAll(tag).length)"
        )
        problems = await page.do(browser.problems)

    assert counts == [0, 1]  # the script of the page
    assert page.world.content.explained == [HOSTILE, HOSTILE]
    assert problems == []


async def test_the_savings_of_a_rebalance_are_shown_by_option(browser):
    async with opened(browser, node_row("one")) as page:
        page.world.content.text = "blocker"
        await page.do(page.find("#rebalance-ask").click)
        await page.do(browser.wait, lambda: "blocker" in browser.text("#detail-body"))
        text = await page.do(browser.text, "#detail-body")

    assert "Saves per hour0.2500 USD" in text
    assert "Nodes2 → 1" in text
    assert "Budgets allow no further disruption of NodePools blocker." in text


async def test_changes_are_shown_while_the_page_is_open(browser):
    async with opened(browser, node_row("one"), node_row("two")) as page:
        content = page.world.content
        content.nodes[:] = [node_row("two", state="Draining"), node_row("three")]
        content.pending = [pending_pod("default/web", "too large")]
        page.world.change()
        await page.do(browser.wait, lambda: page.rows("nodes-table") == ["three", "two"])
        state = await page.do(browser.text, "#nodes-table tbody tr:last-child td")
        page.world.sink(decision(1, summary="launched one"))
        await page.do(browser.wait, lambda: "launched one" in browser.text("#decision-list"))
        pods, announced = (
            await page.do(page.rows, "pending-table"),
            await page.do(browser.text, "#announcement"),
        )
        problems = await page.do(browser.problems)

    assert state == "Draining"
    assert pods == ["default/web"]
    assert announced == "2 nodes, 1 pod without a node"
    assert problems == []


async def test_the_page_continues_after_a_lost_connection(browser):
    async with opened(browser, node_row("one")) as page:
        page.world.feed.subscribers.drop_all()
        await page.do(browser.wait, lambda: "not connected" in browser.text("#connection"))
        world = page.world
        world.problems = ("freshness: not fresh: pods",)
        page.world.content.nodes.append(node_row("two"))
        page.world.change()
        await page.do(browser.wait, lambda: browser.text("#connection") == "live")
        await page.do(browser.wait, lambda: page.rows("nodes-table") == ["one", "two"])
        await page.do(browser.wait, lambda: "Not ready: freshness" in browser.text("#notice"))
        browser.problems()  # the connection that was cut


async def test_everything_is_reached_by_the_keyboard(browser):
    async with opened(browser, node_row("one"), node_row("two"),
                      pending=[pending_pod("default/web")]) as page:  # fmt: skip

        def press(*keys):
            browser.driver.switch_to.active_element.send_keys(*keys)
            return browser.run("document.activeElement.id || document.activeElement.textContent")

        def walk():
            browser.run("document.body.focus()")
            return [press(Keys.TAB) for _ in range(40)]

        order = await page.do(walk)
        expected = ["Skip to the contents", "NodePools", "Nodes", "filter", "pool", "Node ↑",
                    "one", "two", "default/web"]  # fmt: skip
        positions = [order.index(each) for each in expected]
        assert positions == sorted(positions)

        def sort_and_open():
            browser.run("document.querySelector('#nodes-table thead button').focus()")
            press(Keys.ENTER)
            descending = (
                page.rows("nodes-table"),
                browser.run("document.querySelector('#nodes-table [aria-sort]').ariaSort"),
                browser.run("document.activeElement.textContent"),
            )
            browser.run("document.querySelector('#nodes-table tbody button').focus()")
            press(Keys.ENTER)
            browser.wait(lambda: browser.run("document.getElementById('detail').open"))
            inside = browser.run(
                "document.getElementById('detail').contains(document.activeElement)"
            )
            press(Keys.ESCAPE)
            browser.wait(lambda: not browser.run("document.getElementById('detail').open"))
            return descending, inside, browser.run("document.activeElement.textContent")

        sorted_, inside, after = await page.do(sort_and_open)
        assert sorted_ == (["two", "one"], "descending", "Node ↓")
        assert inside is True
        assert after == "two"  # the focus returns to where it was
        # An update draws the tables anew; the focus stays.
        page.world.content.nodes.append(node_row("three"))
        page.world.change()
        await page.do(browser.wait, lambda: len(page.rows("nodes-table")) == 3)
        assert await page.do(browser.run, "document.activeElement.textContent") == "two"


async def test_the_filter_and_the_pool_choose_nodes(browser):
    nodes = [node_row(f"node-{number}", zone=f"zone-{number % 3}") for number in range(120)]
    async with opened(browser, *nodes, node_row("other", nodePool="batch")) as page:
        assert await page.do(browser.text, "#page") == "page 1 of 3"
        await page.do(page.find("#next").click)
        assert (await page.do(page.rows, "nodes-table"))[0] == "node-50"  # natural order
        await page.do(page.find("#filter").send_keys, "zone-1 node-11")
        rows = await page.do(page.rows, "nodes-table")
        assert rows == ["node-112", "node-115", "node-118"]
        assert await page.do(browser.text, "#nodes-count") == "3 of 121"
        await page.do(page.find("#filter").clear)
        await page.do(page.find("#pools-table tbody button").click)
        assert await page.do(browser.run, "document.getElementById('pool').value") == "general"
        assert (await page.do(browser.text, "#nodes-count")) == "120 of 121"


async def test_a_screen_reader_finds_landmarks_names_and_headers(browser):
    async with opened(browser, node_row("one"), pending=[pending_pod("default/web")]) as page:
        tree = await page.do(browser.driver.execute_cdp_cmd, "Accessibility.getFullAXTree", {})
        nodes = [
            (node["role"].get("value"), node.get("name", {}).get("value", ""))
            for node in tree["nodes"]
            if not node.get("ignored") and "role" in node
        ]
    roles = {role for role, _ in nodes}
    assert {"banner", "navigation", "main", "contentinfo", "heading", "table"} <= roles
    regions = {name for role, name in nodes if role == "region"}
    assert {"NodePools", "Nodes and NodeClaims", "Pods without a node", "Decisions"} <= regions
    assert ("columnheader", "Instance type") in nodes
    assert ("rowheader", "one") in nodes
    unnamed = [role for role, name in nodes
               if role in {"button", "link", "textbox", "searchbox", "combobox"} and not name]  # fmt: skip
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_has_contrast_in_both_colour_schemes(browser, scheme):
    contrast = """
      (() => {
        const channel = (value) => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
        const luminance = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
        const colour = (text) => text.match(/[\\d.]+/g).map(Number);
        const background = (element) => {
          for (; element; element = element.parentElement) {
            const found = colour(getComputedStyle(element).backgroundColor);
            if (found.length < 4 || found[3] === 1) return found;
          }
          return [255, 255, 255];
        };
        const poor = [];
        for (const element of document.querySelectorAll('main *, header *, footer, nav a')) {
          const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
          if (!own || !element.getClientRects().length || element.disabled) continue;
          const pair = [luminance(colour(getComputedStyle(element).color)), luminance(background(element))].sort();
          const ratio = (pair[1] + 0.05) / (pair[0] + 0.05);
          if (ratio < 4.5) poor.push([element.tagName, element.textContent.slice(0, 30), ratio]);
        }
        return poor;
      })()
    """
    states = ["Ready", "NotReady", "Draining"]
    nodes = [node_row(state.lower(), state=state) for state in states]
    async with opened(browser, *nodes, pending=[pending_pod("default/web")]) as page:
        await page.do(browser.prefer, scheme)
        page.world.sink(decision(1))
        await page.do(browser.wait, lambda: browser.text("#decision-list"))
        background = await page.do(browser.run, "getComputedStyle(document.body).backgroundColor")
        poor = await page.do(browser.run, contrast.strip())

    assert poor == []
    levels = [int(part) for part in background.removeprefix("rgb(").rstrip(")").split(",")]
    assert (max(levels) < 60) == (scheme == "dark")


async def test_a_window_of_360_pixels_shows_everything_without_scrolling_sideways(browser):
    long = "karpenter-production-general-purpose-" + "x" * 80
    nodes = [node_row(long), node_row("two", reason="y" * 200)]
    async with opened(browser, *nodes, pending=[pending_pod(f"default/{long}", "z" * 300)]) as page:
        await page.do(browser.resize, 360, 800)
        page.world.sink(decision(1, summary="w" * 200, removed=[long] * 5))
        await page.do(browser.wait, lambda: "www" in browser.text("#decision-list"))
        width = await page.do(browser.run, "document.documentElement.scrollWidth")
        wide = await page.do(
            browser.run,
            "[...document.querySelectorAll('main *')].filter(each => !each.closest('thead')"
            " && each.getBoundingClientRect().right > 361).map(each => each.tagName + each.textContent.slice(0, 20))",
        )
        label = await page.do(
            browser.run,
            "getComputedStyle(document.querySelector('#nodes-table tbody td'), '::before').content",
        )

    assert (width, wide, label) == (360, [], '"State"')


async def test_a_token_is_requested_where_one_is_needed(browser):
    paths = ("state", "events", "pods", "explain")
    permitted = [(SCRAPER["username"], "get", f"/dashboard/v1/{path}") for path in paths]
    reviewer = AccessReviewer.of(Reviews({"good": SCRAPER}, permitted), clock=LoopClock())
    world = World(ScriptedContent(node_row("one")), interval_seconds=0.1)
    async with served(world, reviewer) as url:
        page = Page(browser, url, world)
        await page.do(browser.driver.get, url)
        await page.do(browser.wait, lambda: browser.run("!document.getElementById('login').hidden"))
        for token, said in (("bad", "refused: a bearer token is needed"), ("good", "live")):
            await page.do(page.find("#token").send_keys, token, Keys.ENTER)
            await page.do(browser.wait, lambda said=said: browser.text("#connection") == said)
        rows = await page.do(page.rows, "nodes-table")
        stored = await page.do(browser.run, "localStorage.length + sessionStorage.length")
        await page.do(browser.driver.get, "about:blank")

    assert (rows, stored) == (["one"], 0)


async def test_a_controller_shows_a_pod_that_was_just_added(browser, tmp_path):
    """The whole way: API server, controller, stream, page."""
    async with running_dashboard(tmp_path) as run:
        page = Page(browser, run.url, None)
        await page.do(browser.resize, 1280, 900)
        await page.do(page.open)
        await run.cluster.scale(10)
        await page.do(browser.wait, lambda: "Ready" in browser.text("#nodes-table"), 40)
        await run.add_pod("too-large", cpu="5000")
        await page.do(
            browser.wait, lambda: "has enough resources" in browser.text("#pending-table"), 40
        )
        await page.do(browser.wait, lambda: "nodeclaim(s)" in browser.text("#decision-list"))
        await page.do(page.find("#nodes-table tbody button").click)
        await page.do(browser.wait, lambda: "it is not empty" in browser.text("#detail-body"), 40)
        await page.do(browser.wait, lambda: "nginx" in browser.text("#detail-body"))
        await page.do(page.find("#close").click)
        await page.do(page.find("#pending-table tbody button").click)
        await page.do(browser.wait, lambda: "resource" in browser.text("#detail-body"), 40)
        problems = await page.do(browser.problems)
        await page.do(browser.driver.get, "about:blank")

    assert problems == []


async def test_a_standby_shows_the_cluster_and_names_the_leader(browser, tmp_path):
    port = free_port()
    (tmp_path / "standby").mkdir()
    async with (
        running_dashboard(tmp_path) as run,
        controller(
            run.kubeconfig,
            tmp_path / "standby",
            provider="kwok",
            environment=None,
            dashboard_port=port,
        ),
    ):
        await run.cluster.scale(10)
        page = Page(browser, f"http://127.0.0.1:{port}/", None)
        await page.do(browser.resize, 1280, 900)
        await page.do(page.open)
        await page.do(browser.wait, lambda: "Ready" in browser.text("#nodes-table"), 40)
        notice = await page.do(browser.text, "#notice")
        is_disabled = await page.do(
            browser.run, "document.getElementById('rebalance-ask').disabled"
        )
        await page.do(browser.wait, lambda: "unknown price" in browser.text("#totals"))
        totals = await page.do(browser.text, "#totals")
        cost = await page.do(browser.text, "#chart-text")
        await page.do(page.find("#nodes-table tbody button").click)
        await page.do(browser.wait, lambda: "nginx" in browser.text("#detail-body"), 40)
        await page.do(browser.wait, lambda: "ask the leader" in browser.text("#detail-body"), 40)
        await page.do(browser.driver.get, "about:blank")
        browser.problems()  # the explanation that a standby does not give

    assert "This replica is a standby: “" in notice
    assert is_disabled is True
    assert cost == "Only the leader knows prices."
    assert "0.00" not in totals  # a price that is not known is no price of 0
