// Shows the cluster: loads the state once, then applies the changes that the server sends.

import { fetchJson, hasToken, readEvents, request, setToken, wait } from "./client.js";
import { explainPod, showNode, showRebalance } from "./details.js";
import { byId, element, fillTable, linkButton, setText, stepChart, useBar } from "./elements.js";
import { age, counted, natural, percent, price, stateTone } from "./format.js";

const PAGE_ROWS = 50;
const MOST_POINTS = 720;
const MOST_DECISIONS = 100;
const RETRY = 3000;

let state = null;
let sorting = { title: "Node", descending: false };
let page = 0;

// -- the stream ------------------------------------------------------------------------------------

async function follow() {
  const abort = new AbortController();
  const response = await request("events", { signal: abort.signal });
  for await (const [name, data] of readEvents(response, abort)) {
    if (name === "hello") {
      if (data.version !== state?.version) await load();
      setText(byId("connection"), "live");
      byId("connection").className = "";
    } else if (name === "update") {
      if (data.base !== state.version) await load();
      else applyUpdate(data);
    } else if (name === "decision") {
      addDecision(data);
    } else if (name === "cost") {
      state.costs.push(data);
      if (state.costs.length > MOST_POINTS) state.costs.splice(1, 1);
      showCosts();
    }
  }
}

async function load() {
  const loaded = await fetchJson("state");
  loaded.nodesByName = new Map(loaded.nodes.map((node) => [node.name, node]));
  state = loaded;
  byId("login").hidden = true;
  byId("contents").hidden = false;
  showAll();
}

function applyUpdate(update) {
  state.version = update.version;
  Object.assign(state, update.parts);
  for (const name of update.removedNodes) state.nodesByName.delete(name);
  for (const node of update.nodes) state.nodesByName.set(node.name, node);
  showState();
}

async function live() {
  for (;;) {
    try {
      await follow();
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        askForToken(error);
        return;
      }
      const why = error instanceof TypeError ? "the controller does not answer" : error.message;
      setText(byId("connection"), state ? `not connected: ${why}; this is the last state` : `not connected: ${why}`);
      byId("connection").className = "bad";
      await wait(RETRY);
    }
  }
}

function askForToken(error) {
  byId("login").hidden = false;
  byId("contents").hidden = true;
  setText(byId("connection"), hasToken() ? `refused: ${error.message}` : "needs a token");
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  live();
});

// -- the whole -------------------------------------------------------------------------------------

function showAll() {
  showState();
  showCosts();
  const list = byId("decision-list");
  list.replaceChildren(...state.decisions.toReversed().map(decisionItem));
  showSavings();
}

function showState() {
  setText(byId("cluster"), state.cluster);
  document.title = state.cluster ? `${state.cluster} – Karpenter` : "Karpenter";
  setText(byId("role"), state.role);
  byId("rebalance-ask").disabled = state.role === "standby";
  showNotice();
  showTotals();
  showPools();
  showNodes();
  showPending();
  byId("notes").hidden = !state.notes.length;
  byId("note-list").replaceChildren(...state.notes.map((note) => element("li", note)));
}

function showNotice() {
  const texts = [];
  if (state.role === "standby") {
    const leader = state.leader ? `“${state.leader}” leads` : "another replica leads, or none";
    texts.push(`This replica is a standby: ${leader}. It sees the cluster, and knows neither prices nor decisions.`);
  }
  texts.push(...state.problems.map((problem) => `Not ready: ${problem}.`));
  if (!state.synced) texts.push("The cluster is still being read.");
  if (state.paused) texts.push("All disruption is paused (--pause-disruption).");
  byId("notice").hidden = !texts.length;
  setText(byId("notice"), texts.join(" "));
}

function showTotals() {
  const totals = state.totals, resources = totals.resources;
  const use = (name) => resources[name] ? [percent(resources[name].share), `${resources[name].requested} of ${resources[name].allocatable}`] : ["–"];
  const others = Object.entries(totals.states).filter(([name]) => name !== "Ready").map(([name, number]) => `${number} ${name}`);
  const cost = (amount, digits) => price(totals.nodes && totals.unpricedNodes === totals.nodes ? null : amount, digits);
  const unpriced = totals.unpricedNodes ? `without ${counted(totals.unpricedNodes, "node")} of unknown price` : "";
  const tiles = [
    ["Nodes", totals.nodes.toLocaleString("en"), others.join(", ") || (totals.nodes ? "all ready" : "")],
    ["Pods", totals.pods.toLocaleString("en"), `${totals.runningPods.toLocaleString("en")} running`],
    ["Without a node", totals.pendingPods.toLocaleString("en"), Object.entries(state.pendingStates).map(([name, number]) => `${number} ${name}`).join(", ")],
    [`${state.currency} per hour`, cost(totals.pricePerHour), unpriced],
    [`${state.currency} per month`, cost(totals.pricePerMonth, 2), "730 hours"],
    ["CPU requested", ...use("cpu")],
    ["Memory requested", ...use("memory")],
  ];
  byId("totals").replaceChildren(...tiles.map(([name, ...values]) => {
    const tile = element("div");
    tile.append(element("dt", name), ...values.filter(Boolean).map((value) => element("dd", value)));
    return tile;
  }));
  setText(byId("announcement"), `${counted(totals.nodes, "node")}, ${counted(totals.pendingPods, "pod")} without a node`);
}

function showCosts() {
  const points = state.costs;
  const isStandby = state.role === "standby";
  byId("chart-box").hidden = isStandby || points.length < 2;
  if (isStandby) {
    setText(byId("chart-text"), "Only the leader knows prices.");
    return;
  }
  if (points.length < 2) {
    setText(byId("chart-text"), "The first points follow within seconds.");
    return;
  }
  const prices = points.map((point) => point[1]);
  const since = new Date(points[0][0] * 1000).toLocaleString();
  byId("chart").replaceChildren(stepChart(points));
  setText(byId("chart-top"), price(Math.max(...prices)));
  setText(byId("chart-from"), new Date(points[0][0] * 1000).toLocaleTimeString());
  setText(byId("chart-text"), `Since ${since}: between ${price(Math.min(...prices))} and ${price(Math.max(...prices))}, now ${price(prices.at(-1))} ${state.currency} for ${counted(points.at(-1)[2], "node")}.`);
}

function showPools() {
  fillTable(byId("pools-table"), [
    { title: "NodePool", cell: (pool) => linkButton(pool.name, () => choosePool(pool.name), `Show the nodes of NodePool ${pool.name}`) },
    { title: "Nodes", kind: "number", cell: (pool) => pool.nodes.toLocaleString("en") },
    { title: `${state.currency} per hour`, kind: "number", cell: (pool) => price(pool.pricePerHour) },
    { title: "CPU", cell: (pool) => useBar(pool.resources.cpu) },
    { title: "Memory", cell: (pool) => useBar(pool.resources.memory) },
    { title: "Limits", cell: (pool) => Object.entries(pool.limits).map(([name, amount]) => `${name} ${amount}`).join(", ") || "none" },
    { title: "Problem", kind: "text", cell: (pool) => pool.problem || "–" },
  ], state.nodePools, { empty: "There are no NodePools." });
  const names = ["", ...state.nodePools.map((pool) => pool.name)];
  const select = byId("pool");
  if ([...select.options].map((option) => option.value).join() !== names.join()) {
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => new Option(name || "all", name)));
    select.value = names.includes(chosen) ? chosen : "";
  }
}

function choosePool(name) {
  byId("pool").value = name;
  page = 0;
  showNodes();
  byId("nodes").scrollIntoView();
  byId("nodes").focus({ preventScroll: true });
}

// -- nodes -----------------------------------------------------------------------------------------

const COLUMNS = [
  { title: "Node", sort: (node) => node.name, cell: (node) => linkButton(node.name, () => showNode(state.nodesByName.get(node.name) ?? node, state.currency)) },
  { title: "State", sort: (node) => node.state, cell: (node) => element("span", node.state, stateTone(node.state)) },
  { title: "NodePool", sort: (node) => node.nodePool, cell: (node) => node.nodePool || "–" },
  { title: "Instance type", sort: (node) => node.instanceType, cell: (node) => node.instanceType || "–" },
  { title: "Capacity", sort: (node) => node.capacityType, cell: (node) => node.capacityType || "–" },
  { title: "Zone", sort: (node) => node.zone, cell: (node) => node.zone || "–" },
  { title: "CPU", sort: (node) => node.resources.cpu?.share ?? 0, cell: (node) => useBar(node.resources.cpu) },
  { title: "Memory", sort: (node) => node.resources.memory?.share ?? 0, cell: (node) => useBar(node.resources.memory) },
  { title: "Pods", kind: "number", sort: (node) => node.pods, cell: (node) => String(node.pods) },
  { title: "Price", kind: "number", sort: (node) => node.pricePerHour ?? -1, cell: (node) => price(node.pricePerHour) },
  { title: "Age", kind: "number", sort: (node) => -Date.parse(node.createdAt ?? 0), cell: (node) => age(node.createdAt) },
];

function chosenNodes() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const pool = byId("pool").value;
  const rows = [...state.nodesByName.values()].filter((node) => {
    if (pool && node.nodePool !== pool) return false;
    const text = [node.name, node.nodeClaim, node.nodePool, node.instanceType, node.capacityType, node.zone, node.state].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const value = COLUMNS.find((column) => column.title === sorting.title).sort;
  const direction = sorting.descending ? -1 : 1;
  return rows.sort((left, right) => {
    const a = value(left), b = value(right);
    const order = typeof a === "string" ? natural(a, b) : a - b;
    return direction * order || natural(left.name, right.name);
  });
}

function showNodes() {
  const rows = chosenNodes();
  const pages = Math.max(Math.ceil(rows.length / PAGE_ROWS), 1);
  page = Math.min(page, pages - 1);
  fillTable(byId("nodes-table"), COLUMNS, rows.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS), {
    empty: state.nodesByName.size ? "No node matches." : "There are no nodes.",
    sorting,
    onSort: (column) => {
      sorting = { title: column.title, descending: sorting.title === column.title && !sorting.descending };
      showNodes();
    },
  });
  const more = state.omittedNodes ? `; ${counted(state.omittedNodes, "ready node")} more are only in the sums` : "";
  setText(byId("nodes-count"), `${rows.length.toLocaleString("en")} of ${state.nodesByName.size.toLocaleString("en")}${more}`);
  setText(byId("page"), `page ${page + 1} of ${pages}`);
  byId("previous").disabled = page === 0;
  byId("next").disabled = page >= pages - 1;
  byId("previous").parentElement.hidden = pages === 1;
}

function turnPage(by) {
  page += by;
  showNodes();
}

byId("previous").addEventListener("click", () => turnPage(-1));
byId("next").addEventListener("click", () => turnPage(1));
for (const id of ["filter", "pool"]) byId(id).addEventListener("input", () => { page = 0; showNodes(); });

// -- pods and decisions ----------------------------------------------------------------------------

function showPending() {
  const shown = state.pendingPods.length, all = state.totals.pendingPods;
  setText(byId("pending-count"), shown < all ? `The first ${shown} of ${all.toLocaleString("en")}.` : "");
  byId("pending-count").hidden = shown >= all;
  fillTable(byId("pending-table"), [
    { title: "Pod", cell: (pod) => linkButton(pod.pod, () => explainPod(pod), `Explain pod ${pod.pod}`) },
    { title: "State", cell: (pod) => element("span", pod.state, pod.state === "unschedulable" ? "bad" : "fair") },
    { title: "Reason", kind: "text", cell: (pod) => pod.message },
    { title: "Age", kind: "number", cell: (pod) => age(pod.createdAt) },
  ], state.pendingPods, { empty: "Every pod has a node." });
}

function decisionItem(decision) {
  const item = element("li");
  const outcome = decision.rejection ? `rejected (${decision.rejection}): ` : decision.failure ? `rolled back (${decision.failure}): ` : "";
  item.append(element("span", outcome + decision.summary));
  const parts = [new Date(decision.at).toLocaleTimeString(), decision.kind, decision.reason || decision.method];
  if (decision.priceBefore !== decision.priceAfter) {
    parts.push(`${price(decision.priceBefore)} → ${price(decision.priceAfter)} ${decision.currency} per hour`);
  }
  if (decision.removed.length) parts.push(`removes ${decision.removed.join(", ")}`);
  if (decision.launched.length) parts.push(`launches ${decision.launched.join(", ")}`);
  if (decision.more) parts.push(`${decision.more} more`);
  item.append(element("small", parts.filter(Boolean).join(" · ")));
  return item;
}

function addDecision(decision) {
  if (state.decisions.some((each) => each.id === decision.id && each.at === decision.at && each.failure === decision.failure)) return;
  state.decisions.push(decision);
  const list = byId("decision-list");
  list.prepend(decisionItem(decision));
  while (state.decisions.length > MOST_DECISIONS) state.decisions.shift();
  while (list.children.length > MOST_DECISIONS) list.lastElementChild.remove();
  showSavings();
}

function showSavings() {
  const started = state.decisions.filter((each) => each.kind === "disrupt" && !each.rejection && each.priceBefore !== null && each.priceAfter !== null && each.currency === state.currency);
  const undone = new Set(started.filter((each) => each.failure).map((each) => each.id));
  const saved = started.filter((each) => !undone.has(each.id)).reduce((sum, each) => sum + each.priceBefore - each.priceAfter, 0);
  const estimate = state.decisions.findLast((each) => each.kind === "observe");
  const texts = [];
  if (!state.decisions.length) texts.push(state.role === "standby" ? "Only the leader decides." : "None yet.");
  if (saved > 0) texts.push(`The disruptions among these save ${price(saved)} ${state.currency} per hour.`);
  if (estimate) texts.push(`Planned afresh: ${estimate.summary}.`);
  setText(byId("saved"), texts.join(" "));
  byId("saved").hidden = !texts.length;
}

byId("rebalance-ask").addEventListener("click", () => showRebalance(state.currency));

// Ages and the connection go on without an event.
setInterval(() => { if (state && !document.hidden && !byId("detail").open) { showNodes(); showPending(); } }, 30000);

live();
