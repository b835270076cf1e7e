// Divided keys in the card beside the graph: a picture of the load of each instance, and the hot keys.

import { h, svg, table } from "./elements.js";
import { count, percent } from "./format.js";

const PARTS = "partial.";
const WIDTH = 320, HEIGHT = 96, LABELS = 14, GAP = 3;
const MOST_LABELS = 20;

// By node: what its instances had when the page last looked, and the load since then.
const known = new Map();

// Totals begin anew with each owner of a shard: what has become less is all new.
const since = (now, before) => (now < before ? now : now - before);

function now(live, divided) {
  const before = known.get(divided.node);
  if (before?.at === live.at_ms) return before.load;
  const seconds = before ? (live.at_ms - before.at) / 1000 : 0;
  const load = divided.instances.map((each, index) => {
    const old = before?.instances[index];
    return seconds > 0 && old
      ? { records: since(each.records, old.records) / seconds, busy: since(each.busy_s, old.busy_s) / seconds }
      : { records: 0, busy: 0 };
  });
  known.set(divided.node, { at: live.at_ms, instances: divided.instances, load });
  return load;
}

export function loads(live, name) {
  const divided = (live.divided || []).find((each) => each.node === name || PARTS + each.node === name);
  if (!divided) return [];
  const load = now(live, divided);
  const epoch = divided.senders ? `, epoch ${count(divided.epoch)}` : "";
  const copies = divided.copies === null ? "" : `, ${divided.copies.toFixed(2)} copies of a key`;
  return [
    h("h2", {}, "Instances"),
    picture(divided, load),
    h("p", { class: "hint" }, `${divided.grouping}${epoch}, imbalance ${divided.imbalance.toFixed(2)}${copies}`),
    h("details", { "data-key": `instances ${divided.node}` }, h("summary", {}, "Figures of instances"), figures(divided, load)),
    ...hot(divided),
  ];
}

// Bars are the part of a core that an instance took since the page last looked; the line is their mean.
function picture(divided, load) {
  const busiest = Math.max(...load.map((each) => each.busy), 1e-9);
  const mean = load.reduce((all, each) => all + each.busy, 0) / load.length;
  const step = WIDTH / load.length, floor = HEIGHT - LABELS;
  const high = (value) => (value / busiest) * (floor - GAP);
  const bars = load.map((each, index) => {
    const { instance } = divided.instances[index];
    const told = `instance ${instance}: ${count(Math.round(each.records))} records/s, ${percent(each.busy)} of a core`;
    return svg("g", {},
      svg("title", {}, told),
      svg("rect", { class: "load", x: index * step + GAP / 2, y: floor - high(each.busy), width: Math.max(1, step - GAP), height: high(each.busy) }),
      load.length > MOST_LABELS ? null : svg("text", { x: (index + 0.5) * step, y: HEIGHT - 3, "text-anchor": "middle" }, `${instance}`));
  });
  const line = svg("line", { class: "mean", x1: 0, x2: WIDTH, y1: floor - high(mean), y2: floor - high(mean) });
  const label = `Load of ${load.length} instances: the busiest takes ${percent(busiest)} of a core, the mean is ${percent(mean)}`;
  return svg("svg", { class: "loads", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, bars, line);
}

function figures(divided, load) {
  const rows = divided.instances.map((each, index) => [
    `${each.instance}`, count(each.records), count(Math.round(load[index].records)), percent(load[index].busy),
    each.share === null ? "" : percent(each.share),
    each.time_s === null ? "" : `${Math.round(each.time_s * 1e6)} µs`,
  ]);
  return table(["instance", "#records", "#a second", "#busy", "#p", "#t"], rows);
}

function hot(divided) {
  if (!divided.hot.length) return [];
  const rows = divided.hot.map((each) => [h("span", { class: "mono" }, each.key), percent(each.share), count(each.instances)]);
  return [h("h2", {}, "Hot keys"), table(["~key", "#share", "#instances"], rows)];
}
