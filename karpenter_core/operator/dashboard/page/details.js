// The dialog with the details of a node, a pod, or a rebalance, which the controller is asked for.

import { fetchJson } from "./client.js";
import { byId, element, facts, fillTable, setText } from "./elements.js";
import { age, counted, price } from "./format.js";

let asked = 0;

function openDetail(title) {
  asked += 1;
  setText(byId("detail-title"), title);
  byId("detail-body").replaceChildren();
  if (!byId("detail").open) byId("detail").showModal();
  return asked;
}

byId("close").addEventListener("click", () => byId("detail").close());

function section(title) {
  const made = element("section");
  const status = element("p", "asks the controller …");
  status.setAttribute("role", "status");
  made.append(element("h3", title), status);
  byId("detail-body").append(made);
  return { made, status };
}

async function fillSection({ made, status }, number, path, fill) {
  try {
    const answer = await fetchJson(path);
    if (number !== asked) return;
    status.remove();
    fill(made, answer);
  } catch (error) {
    setText(status, error.message);
  }
}

export function showNode(node, currency) {
  const number = openDetail(node.name);
  byId("detail-body").append(facts([
    ["State", node.reason ? `${node.state}: ${node.reason}` : node.state], ["NodePool", node.nodePool],
    ["NodeClaim", node.nodeClaim], ["Instance type", node.instanceType], ["Zone", node.zone],
    ["Capacity", node.capacityType], [`${currency} per hour`, price(node.pricePerHour)], ["Age", age(node.createdAt)],
  ]));
  const query = `node=${encodeURIComponent(node.name)}`;
  fillSection(section("Why it stays, or goes"), number, `explain?${query}`, fillNodeExplanation);
  fillSection(section("Pods"), number, `pods?${query}`, fillPods);
}

function fillNodeExplanation(made, answer) {
  made.append(element("p", answer.answer ?? answer.message));
  if (answer.schedule) made.append(element("p", answer.schedule));
  const rows = Object.entries(answer.methods).map(([name, method]) => ({ name, ...method }));
  made.append(tableOf([
    { title: "Method", cell: (row) => row.name },
    { title: "Answer", cell: (row) => row.verdict },
    { title: "Reason", kind: "text", cell: (row) => row.message },
    { title: "Saves per hour", kind: "number", cell: (row) => price(row.move?.savingsPerHour) },
  ], rows));
}

function fillPods(made, answer) {
  made.append(tableOf([
    { title: "Pod", cell: (pod) => pod.pod },
    { title: "Phase", cell: (pod) => pod.phase },
    { title: "CPU", kind: "number", cell: (pod) => pod.cpu },
    { title: "Memory", kind: "number", cell: (pod) => pod.memory },
    { title: "Note", cell: (pod) => [pod.daemon && "DaemonSet", pod.doNotDisrupt && "do-not-disrupt"].filter(Boolean).join(", ") || "–" },
    { title: "Age", kind: "number", cell: (pod) => age(pod.createdAt) },
  ], answer.pods, "No pods."));
  if (answer.omitted) made.append(element("p", `${counted(answer.omitted, "pod")} more.`));
}

export function explainPod(pod) {
  const number = openDetail(pod.pod);
  byId("detail-body").append(facts([["State", pod.state], ["Age", age(pod.createdAt)]]), element("p", pod.message));
  fillSection(section("What a plan of this moment says"), number, `explain?pod=${encodeURIComponent(pod.pod)}`, (made, answer) => {
    made.append(element("p", answer.answer ?? answer.message));
    const rows = Object.entries(answer.pools ?? {}).map(([name, pool]) => ({ name, ...pool }));
    if (!rows.length) return;
    made.append(tableOf([
      { title: "NodePool", cell: (row) => row.name },
      { title: "Constraint", cell: (row) => row.constraint ?? "–" },
      { title: "Detail", kind: "text", cell: (row) => row.detail ?? "–" },
      { title: "Closest type", cell: (row) => row.closest || "–" },
    ], rows));
  });
}

// What one disruption pass would do now: its steps, and the nodes that something blocks.
export function showRebalance(currency) {
  const number = openDetail("What a disruption pass would do now");
  fillSection(section("Savings"), number, "rebalance", (made, answer) => {
    const { before, after, steps, blocked } = answer;
    made.append(facts([
      ["Saves per hour", `${price(answer.savingsPerHour)} ${currency}`],
      ["Price per hour", `${price(before.pricePerHour)} → ${price(after.pricePerHour)}`],
      ["Nodes", `${before.nodes} → ${after.nodes}`], ["Pods to move", answer.podsMoved],
    ]), tableOf([
      { title: "Removes", kind: "text", cell: (step) => listed(step.nodes.map((each) => each.node || each.nodeClaim), step.omittedNodes) },
      { title: "Launches", kind: "text", cell: (step) => listed(step.nodeClaims.map((each) => [each.cheapest?.instanceType, each.cheapest?.zone].filter(Boolean).join(" ")), step.omittedNodeClaims) },
      { title: "Method", cell: (step) => step.method },
      { title: "Pods", kind: "number", cell: (step) => String(step.podsMoved) },
      { title: "Saves per hour", kind: "number", cell: (step) => price(step.savingsPerHour) },
    ], steps, "Nothing: the nodes stay as they are."));
    if (answer.omittedSteps) made.append(element("p", `${counted(answer.omittedSteps, "step")} more.`));
    if (answer.budgetsUsedUp.length) made.append(element("p", `Budgets allow no further disruption of NodePools ${answer.budgetsUsedUp.join(", ")}.`));
    if (blocked.length) made.append(element("h3", "Blocked nodes"), tableOf([
      { title: "Obstacle", kind: "text", cell: (each) => each.message },
      { title: "Nodes", kind: "number", cell: (each) => String(each.count) },
      { title: "Such as", kind: "text", cell: (each) => each.nodes.join(", ") },
    ], blocked));
    made.append(element("p", "karpenter plan --rebalance shows all steps until nothing more can be saved.", "soft"));
  });
}

function listed(names, omitted) {
  return [...names, ...(omitted ? [`${omitted} more`] : [])].join(", ") || "–";
}

function tableOf(columns, rows, empty = "Nothing.") {
  const table = element("table");
  fillTable(table, columns, rows, { empty });
  const scroll = element("div", "", "scroll");
  scroll.append(table);
  return scroll;
}
