// The page of a run: what the server tells goes to the graph, to the card beside it, and to the tabs.

import { showNode } from "./details.js";
import { at, h } from "./elements.js";
import { count, rate } from "./format.js";
import { draw, mark, refresh } from "./graph.js";
import { begin, happened } from "./panels.js";
import { askForToken, follow, get, Refused } from "./server.js";

let drawing = null;
let live = null;
let chosen = "";

const WORDS = { starting: "starting", running: "running", complete: "complete", stopped: "not running" };
const THEME = "millwheel-theme";

function drawn(given) {
  drawing = given;
  if (!drawing.nodes.some((node) => node.name === chosen)) chosen = drawing.nodes[0]?.name || "";
  mark(chosen);
  draw(drawing, choose);
  if (live) shown(live);
}

function choose(name) {
  chosen = name;
  if (live) showNode(live, drawing, chosen);
}

function shown(given) {
  live = given;
  document.title = `${live.pipeline} – MillWheel`;
  at("pipeline").textContent = live.pipeline;
  at("pipeline").title = live.root;
  const troubled = live.troubles.length > 0 || live.problem !== "";
  at("state").textContent = WORDS[live.state];
  at("state").className = `state ${live.state === "running" && troubled ? "troubled" : live.state}`;
  const total = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  at("totals").replaceChildren(
    total("records read", count(live.records_in)), total("rate", rate(live.rate)), total("workers", count(live.workers.length)),
    total("dead letters", count(live.dead_letters)));
  const told = [...(live.problem ? [live.problem] : []), ...live.troubles];
  at("troubles").hidden = told.length === 0;
  at("troubles").replaceChildren(h("ul", {}, told.map((trouble) => h("li", {}, trouble))));
  refresh(live);
  showNode(live, drawing, chosen);
}

function connection(sentence) {
  at("connection").hidden = sentence === "";
  at("connection").textContent = sentence;
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const put = (value) => {
    if (value) document.documentElement.dataset.theme = value;
    at("theme").textContent = now() === "dark" ? "Light" : "Dark";
  };
  put(localStorage.getItem(THEME));
  dark.addEventListener("change", () => put(""));
  at("theme").addEventListener("click", () => {
    const next = now() === "dark" ? "light" : "dark";
    localStorage.setItem(THEME, next);
    put(next);
  });
}

async function first() {
  for (;;) {
    try {
      return [await get("api/graph"), await get("api/live")];
    } catch (error) {
      if (error instanceof Refused && error.status === 401) await askForToken(error.message);
      else connection(error.message);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

theme();
const [graph, now] = await first();
drawn(graph.drawing);
shown(now);
begin(graph.writable);
follow({ graph: drawn, live: shown, timeline: happened }, connection);
