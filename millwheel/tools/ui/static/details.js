// The card beside the graph: one node with its shards, and the workers.

import { loads } from "./divided.js";
import { at, busyBar, h, replace, table } from "./elements.js";
import { bytes, count, duration, percent, rate } from "./format.js";
import { level, stateWords } from "./graph.js";

const CREDIT = 0.5;

const fact = (name, value, kind) => h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value));

export function showNode(live, drawing, name) {
  const node = live.nodes.find((each) => each.name === name);
  const drawn = drawing.nodes.find((each) => each.name === name);
  if (!drawn) return;
  const head = [
    h("h2", {}, `${drawn.kind}${drawn.where ? ` · ${drawn.where}` : ""}`),
    h("h3", {}, drawn.name),
    h("ul", { class: "does mono" }, drawn.lines.map((line) => h("li", {}, line))),
  ];
  const shown = node ? [...figures(node), ...loads(live, name)] : [h("p", { class: "empty" }, "No figures yet.")];
  replace(at("node"), ...head, ...shown, ...workers(live));
}

function figures(node) {
  const [words, state] = stateWords(node);
  const held = node.held && node.state !== "drained" ? why(node, state) : null;
  const busy = node.shards.map((shard) => [
    h("span", { class: "mono" }, shard.shard.slice(shard.shard.lastIndexOf("-"))),
    shard.owner ? `${shard.slot}` : h("span", { class: "pill bad" }, "nobody"),
    rate(shard.rate),
    h("span", {}, busyBar(shard.busy), percent(shard.busy)),
    shard.credit >= CREDIT ? h("span", { class: `pill ${level(shard.credit)}` }, percent(Math.min(1, shard.credit))) : percent(shard.credit),
    bytes(shard.state_bytes),
  ]);
  return [
    h("p", {}, h("span", { class: `pill ${state || "good"}` }, words)),
    held,
    h("dl", { class: "facts" },
      fact("watermark", node.watermark || node.state, "row"),
      fact("in", rate(node.rate_in)), fact("out", rate(node.rate_out)),
      fact("state", bytes(node.state_bytes)), fact("late", count(node.late)),
      fact("dead letters", count(Object.values(node.dead_letters).reduce((sum, each) => sum + each, 0)))),
    h("h2", {}, "Shards"),
    table(["shard", "worker", "#in", "busy", "credit", "#state"], busy),
  ].filter(Boolean);
}

function why(node, state) {
  const where = node.held.node === node.name ? "" : `${node.held.node}, `;
  const text = `Its watermark is held by ${where}${node.held.shard}: ${node.held.words}`;
  return h("p", { class: state ? "why" : "why calm" }, text);
}

function workers(live) {
  if (!live.workers.length) return [];
  const rows = live.workers.map((worker) => [
    `${worker.slot}`,
    worker.answers ? h("span", { class: "mono" }, worker.worker) : h("span", { class: "pill bad" }, `${worker.worker} does not answer`),
    count(worker.shards),
    worker.step_s >= 1 ? h("span", { class: "pill warn" }, duration(worker.step_s)) : "",
  ]);
  return [h("h2", {}, "Workers"), table(["slot", "worker", "#shards", "#busy with a step"], rows)];
}
