// Makes and updates elements. All text goes in as text: names and messages are other people's.

import { percent, tone } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function linkButton(text, onClick, label = "") {
  const made = element("button", text, "link");
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", onClick);
  return made;
}

export function useBar(use) {
  const made = element("div", "", "use");
  if (!use) return made;
  const track = element("span", "", "bar");
  track.setAttribute("aria-hidden", "true");
  const fill = element("span", "", tone(use.share));
  fill.style.width = `${Math.min(100, Math.max(0, 100 * use.share))}%`;
  track.append(fill);
  made.append(track, element("span", percent(use.share)), element("small", `${use.requested} of ${use.allocatable}`));
  return made;
}

// Columns are {title, cell(row) -> text or element, kind: "" | "number" | "text", sort}. The first is the row's header.
export function fillTable(table, columns, rows, { empty, sorting = null, onSort = null } = {}) {
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const headings = element("tr");
  for (const column of columns) {
    const cell = element("th", "", column.kind === "number" ? "number" : "");
    cell.scope = "col";
    if (column.sort && onSort) {
      const isSorted = sorting.title === column.title;
      if (isSorted) cell.setAttribute("aria-sort", sorting.descending ? "descending" : "ascending");
      const mark = isSorted ? (sorting.descending ? " ↓" : " ↑") : "";
      const button = linkButton(column.title + mark, () => onSort(column));
      button.dataset.key = `sort ${column.title}`;
      cell.append(button);
    } else {
      cell.textContent = column.title;
    }
    headings.append(cell);
  }
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    columns.forEach((column, number) => {
      const cell = element(number ? "td" : "th", "", column.kind ?? "");
      if (number) cell.dataset.label = column.title;
      else cell.scope = "row";
      const content = column.cell(row);
      if (content instanceof Node && content.tagName === "BUTTON") content.dataset.key = `${column.title} ${row.name ?? row.pod}`;
      cell.append(content);
      line.append(cell);
    });
    body.append(line);
  }
  if (!rows.length && empty) {
    const cell = element("td", empty, "none");
    cell.colSpan = columns.length;
    const line = element("tr");
    line.append(cell);
    body.append(line);
  }
  const head = element("thead");
  head.append(headings);
  table.replaceChildren(head, body);
  if (focused) [...table.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
}

export function facts(pairs) {
  const list = element("dl", "", "facts");
  for (const [name, value] of pairs) {
    if (value === "" || value === null || value === undefined) continue;
    const group = element("div");
    group.append(element("dt", name), element("dd", String(value)));
    list.append(group);
  }
  return list;
}

// Points are [time, value, ...], drawn as steps from zero up.
export function stepChart(points) {
  const width = 1000, height = 100;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 -4 ${width} ${height + 4}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  if (points.length < 2) return svg;
  const first = points[0][0], span = Math.max(points.at(-1)[0] - first, 1);
  const top = Math.max(...points.map((point) => point[1])) || 1;
  const x = (point) => ((point[0] - first) / span * width).toFixed(1);
  const y = (point) => (height - point[1] / top * height).toFixed(1);
  let line = `M${x(points[0])} ${y(points[0])}`;
  for (const point of points.slice(1)) line += `H${x(point)}V${y(point)}`;
  for (const [className, path] of [["area", `${line}V${height}H0Z`], ["line", line]]) {
    const drawn = document.createElementNS(SVG, "path");
    drawn.setAttribute("class", className);
    drawn.setAttribute("d", path);
    svg.append(drawn);
  }
  return svg;
}
