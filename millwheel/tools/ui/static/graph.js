// The graph: boxes with figures, arrows with rate, lag and back-pressure.

import { at, svg } from "./elements.js";
import { duration, percent, rate } from "./format.js";

const BEHIND_S = 3;
const WARN = 0.5;
const BAD = 0.9;
const CUT = 27;

let drawing = null;
let chosen = "";
let choose = () => {};

export function draw(given, chooses) {
  drawing = given;
  choose = chooses;
  const { width, height } = drawing;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "The pipeline as a graph" });
  for (const edge of drawing.edges) picture.append(arrow(edge));
  for (const node of drawing.nodes) picture.append(box(node));
  at("graph").replaceChildren(picture);
  picture.addEventListener("keydown", moved);
  mark(chosen || drawing.nodes[0]?.name);
}

export function mark(name) {
  chosen = name;
  for (const each of at("graph").querySelectorAll(".node")) {
    const mine = each.dataset.name === name;
    each.classList.toggle("chosen", mine);
    each.setAttribute("tabindex", mine ? 0 : -1);
    each.setAttribute("aria-pressed", mine);
  }
}

const id = (prefix, name) => `${prefix}-${name}`;
const short = (text) => (text.length > CUT ? `${text.slice(0, CUT - 1)}…` : text);

function box(node) {
  const [width, height] = drawing.node;
  const [left, top] = [node.x - width / 2, node.y - height / 2];
  const text = (name, x, y, anchor) => svg("text", { class: name, x, y, "text-anchor": anchor || "start" });
  const title = text("title", left + 16, top + 22);
  title.textContent = short(node.title);
  const kind = text("kind", left + width - 10, top + 21, "end");
  kind.textContent = node.kind;
  const group = svg("g", { class: "node", "data-name": node.name, role: "button", tabindex: -1 },
    svg("rect", { class: "box", x: left, y: top, width, height, rx: 10 }),
    svg("rect", { class: `stripe-${node.kind}`, x: left + 5, y: top + 10, width: 4, height: height - 20, rx: 2 }),
    title, kind,
    text("figure rate", left + 16, top + 45), text("figure soft lag", left + width - 10, top + 45, "end"),
    text("figure soft state", left + 16, top + 65), text("figure soft size", left + width - 10, top + 65, "end"),
    svg("rect", { class: "bar-back", x: left + 16, y: top + height - 14, width: width - 26, height: 5, rx: 2.5 }),
    svg("rect", { class: "bar", x: left + 16, y: top + height - 14, width: 0, height: 5, rx: 2.5 }));
  group.addEventListener("click", () => pick(node.name));
  return group;
}

function arrow(edge) {
  const points = edge.points;
  let path = "";
  for (let index = 0; index < points.length; index += 2) {
    const [[x1, y1], [x2, y2]] = [points[index], points[index + 1]];
    const middle = (y1 + y2) / 2;
    path += `${path ? "L" : "M"}${x1},${y1} C${x1},${middle} ${x2},${middle} ${x2},${y2} `;
  }
  const [x, y] = points.at(-1);
  const up = points.at(-2)[1] > y;
  const [labelX, labelY] = edge.label;
  const label = (name, offset) => svg("text", { class: `label ${name}`, x: labelX, y: labelY + offset });
  return svg("g", { "data-edge": `${edge.source}>${edge.target}>${edge.stream}` },
    svg("path", { class: "edge", d: path, "stroke-width": 1.5 }),
    svg("path", { class: "tip", d: up ? `M${x - 4},${y + 7}L${x + 4},${y + 7}L${x},${y}z` : `M${x - 4},${y - 7}L${x + 4},${y - 7}L${x},${y}z` }),
    svg("rect", { class: "label-back", x: labelX - 58, y: labelY - 15, width: 116, height: 31, rx: 6 }),
    label("first", -2), label("second", 12));
}

function pick(name) {
  mark(name);
  choose(name);
}

function moved(event) {
  const from = drawing.nodes.find((node) => node.name === chosen);
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(chosen);
    return;
  }
  const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
  if (!way || !from) return;
  event.preventDefault();
  const ahead = (node) => (node.x - from.x) * way[0] + (node.y - from.y) * way[1];
  const aside = (node) => Math.abs((node.x - from.x) * way[1]) + Math.abs((node.y - from.y) * way[0]);
  const near = drawing.nodes.filter((node) => ahead(node) > 1).sort((a, b) => ahead(a) + 0.6 * aside(a) - ahead(b) - 0.6 * aside(b));
  if (!near.length) return;
  pick(near[0].name);
  at("graph").querySelector(`[data-name="${CSS.escape(near[0].name)}"]`).focus();
}

// --- figures -------------------------------------------------------------------------------------------

export function level(value) {
  return value >= BAD ? "bad" : value >= WARN ? "warn" : "";
}

export function stateWords(node) {
  if (node.unowned) return [`${node.unowned} of ${node.shards.length} shards wait for an owner`, "bad"];
  if (node.state !== "flowing") return [node.state, ""];
  if (node.behind_s > BEHIND_S) return [`${duration(node.behind_s)} behind`, "warn"];
  return ["up to date", ""];
}

export function refresh(live) {
  for (const node of live.nodes) refreshNode(node);
  for (const edge of live.edges) refreshEdge(edge);
}

function put(group, name, text, more = "") {
  const found = group.querySelector(`.${name}`);
  found.textContent = text;
  found.classList.toggle("warn", more === "warn");
  found.classList.toggle("bad", more === "bad");
}

function refreshNode(node) {
  const group = at("graph").querySelector(`[data-name="${CSS.escape(node.name)}"]`);
  if (!group) return;
  const source = node.name.startsWith("source.");
  const [words, state] = stateWords(node);
  const dead = Object.values(node.dead_letters).reduce((sum, each) => sum + each, 0);
  put(group, "rate", source ? rate(node.rate_in) : `in ${rate(node.rate_in)}`);
  put(group, "lag", source || node.name.startsWith("sink.") ? "" : `out ${rate(node.rate_out)}`);
  put(group, "state", words, state);
  put(group, "size", dead ? `${dead.toLocaleString("en")} dead` : node.late ? `${node.late.toLocaleString("en")} late` : "", dead ? "bad" : "");
  const bar = group.querySelector(".bar");
  const most = drawing.node[0] - 26;
  const busiest = Math.max(0, ...node.shards.map((shard) => shard.busy));
  bar.setAttribute("width", Math.min(1, busiest) * most);
  bar.classList.toggle("bad", busiest >= BAD);
  group.setAttribute("aria-label", `${node.name}: ${rate(node.rate_in)} in, ${words}, busiest shard ${percent(busiest)}`);
}

function refreshEdge(edge) {
  const group = at("graph").querySelector(`[data-edge="${CSS.escape(`${edge.source}>${edge.target}>${edge.stream}`)}"]`);
  if (!group) return;
  const pressure = level(edge.pressure);
  const line = group.querySelector(".edge");
  line.setAttribute("stroke-width", 1.3 + Math.min(4, Math.log10(1 + (edge.rate || 0)) * 0.75));
  line.classList.toggle("warn", pressure === "warn");
  line.classList.toggle("bad", pressure === "bad");
  const lag = edge.lag_s > BEHIND_S ? `lag ${duration(edge.lag_s)}` : "";
  put(group, "first", edge.rate === null ? edge.stream : `${edge.stream} ${rate(edge.rate)}`.slice(0, CUT));
  put(group, "second", pressure ? `back-pressure ${percent(Math.min(1, edge.pressure))}` : lag, pressure || (lag ? "warn" : ""));
}
