// The tabs below the graph: time line, dead letters, rows, savepoints, settings.

import { at, h, replace, table } from "./elements.js";
import { clock, count, eventTime, moment } from "./format.js";
import { askForToken, get, hasToken, post } from "./server.js";

const AGAIN_MS = { letters: 5000, rows: 1000, savepoints: 10000, settings: 60000 };
const ROWS = 40;
const SOME = 5;
const LETTERS = "dead_letters";

let shown = "timeline";
let events = [];
let writable = false;
const seen = new Map();
let stream = "";
let paused = false;
let timer = 0;
let told = "";

const PANELS = [
  ["timeline", "Time line", timeline], ["letters", "Dead letters", letters], ["rows", "Live rows", rows],
  ["savepoints", "Savepoints", savepoints], ["settings", "Settings", settings],
];

export function begin(mayWrite) {
  writable = mayWrite;
  at("tabs").replaceChildren(...PANELS.map(([name, title]) =>
    h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", onclick: () => show(name), onkeydown: turn }, title)));
  show(shown);
}

export function happened(given) {
  events = given;
  if (shown === "timeline") timeline();
}

function turn(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = PANELS.map(([name]) => name);
  const next = names[(names.indexOf(shown) + step + names.length) % names.length];
  show(next);
  at(`tab-${next}`).focus();
}

function show(name) {
  shown = name;
  for (const [each] of PANELS) {
    at(`tab-${each}`).setAttribute("aria-selected", each === name);
    at(`tab-${each}`).setAttribute("tabindex", each === name ? 0 : -1);
  }
  at("panel").setAttribute("aria-labelledby", `tab-${name}`);
  at("panel").replaceChildren(h("p", { class: "empty" }, "…"));
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  const mine = shown;
  try {
    await PANELS.find(([name]) => name === mine)[2]();
  } catch (error) {
    if (mine === shown) replace(at("panel"), h("p", { class: "empty" }, error.message));
  }
  clearTimeout(timer);
  if (AGAIN_MS[shown]) timer = setTimeout(refresh, AGAIN_MS[shown]);
}

function timeline() {
  const lines = events.toReversed().map((event) =>
    h("li", { class: event.kind }, h("time", { title: moment(event.at_ms) }, clock(event.at_ms)), h("span", {}, event.words)));
  const since = "Starts, deaths, moves and recoveries of workers appear here, since this page's server was started.";
  replace(at("panel"), lines.length ? h("ol", { class: "line" }, lines) : h("p", { class: "empty" }, since));
}

// --- dead letters --------------------------------------------------------------------------------------

async function letters() {
  const found = await get("api/letters");
  if (shown !== "letters") return;
  if (found.problem) return replace(at("panel"), h("p", { class: "empty" }, found.problem));
  const said = told ? h("p", { role: "status", class: "why calm" }, told) : null;
  const groups = found.groups.map(group);
  const none = h("p", { class: "empty" }, "No dead letters: every record could be used.");
  return replace(at("panel"), ...[said, h("div", { class: "letters" }, groups.length ? groups : none)].filter(Boolean));
}

function group(each) {
  const key = `${each.computation} ${each.kind}`;
  const times = `${moment(each.first_s * 1000)} to ${moment(each.last_s * 1000)}`;
  const button = h("button", { type: "button", "data-key": `replay ${key}`, disabled: !each.left, onclick: () => replay(each, "") },
    `Replay ${count(each.left)}`);
  return h("article", {},
    h("div", { class: "head" },
      h("h3", {}, `${each.computation}: ${each.kind}`),
      h("span", {}, h("strong", {}, count(each.count)), each.replayed ? `, ${count(each.replayed)} tried again` : "")),
    h("p", { class: "empty" }, times),
    each.left ? button : h("p", { class: "empty" }, each.replayed ? "All that can be tried again were." : "These cannot be tried again."),
    each.letters.map((letter) => one(each, letter)));
}

function one(each, letter) {
  const again = letter.again && !letter.replayed
    ? h("button", { type: "button", class: "quiet", "data-key": `replay ${letter.id}`, onclick: () => replay(each, letter.id) }, "Replay this one")
    : null;
  const when = letter.timestamp_us === null ? "" : `event time ${eventTime(letter.timestamp_us)}`;
  return h("details", { "data-key": letter.id },
    h("summary", {}, `${letter.reason}${letter.replayed ? " (tried again)" : ""}`),
    h("p", {}, `key ${letter.key}`, when ? `, ${when}` : "", letter.attempts ? `, ${letter.attempts} attempts` : "", letter.location ? `, ${letter.location}` : ""),
    h("pre", {}, JSON.stringify(letter.value, null, 1)),
    letter.exception ? h("pre", {}, letter.exception) : null,
    h("p", { class: "empty mono" }, letter.id),
    again);
}

async function replay(each, letter) {
  const body = { computation: each.computation, kind: each.kind, letter };
  try {
    if (!writable) told = "This page is read-only. Start it with `millwheel ui --writable`, or use `millwheel replay`.";
    else if (hasToken() || (await askForToken("To replay dead letters, give the token that `millwheel ui --writable` has printed."))) {
      told = (await post("api/letters/replay", body)).words;
    }
  } catch (error) {
    told = error.message;
    if (error.status === 401 && (await askForToken(error.message))) return replay(each, letter);
  }
  await refresh();
}

// --- rows, savepoints, settings ------------------------------------------------------------------------

async function rows() {
  const fresh = paused ? [] : await get("api/rows");
  if (shown !== "rows") return;
  fresh.sort((a, b) => a.timestamp_us - b.timestamp_us);
  for (const row of fresh) seen.set(row.stream, [row, ...(seen.get(row.stream) || [])].slice(0, ROWS));
  const streams = [...seen.keys()].sort();
  const shownAlways = streams.filter((name) => name !== LETTERS);
  const each = stream ? ROWS : Math.max(SOME, Math.floor(ROWS / (shownAlways.length || 1)));
  const mine = (stream ? [stream] : shownAlways).flatMap((name) => (seen.get(name) || []).slice(0, each));
  const choice = h("select", { "data-key": "stream", "aria-label": "Stream", onchange: (event) => { stream = event.target.value; refresh(); } },
    h("option", { value: "" }, "all streams"), streams.map((name) => h("option", { value: name, selected: name === stream }, name)));
  const pause = h("button", { type: "button", class: "quiet", "data-key": "pause", onclick: () => { paused = !paused; refresh(); } }, paused ? "Go on" : "Pause");
  const about = h("span", { class: "empty" }, "A few of the rows that shards take. Fields that sound like secrets are hidden.");
  const list = mine.map((row) => [row.stream, row.node, eventTime(row.timestamp_us), row.key, h("code", {}, JSON.stringify(row.value))]);
  const empty = h("p", { class: "empty" }, "No rows yet.");
  if (document.activeElement?.getAttribute("data-key") === "stream" && !paused && fresh.length === 0) return;
  replace(at("panel"), h("div", { class: "controls" }, choice, pause, about),
    mine.length ? table(["stream", "taken by", "event time", "key", "~value"], list) : empty);
}

async function savepoints() {
  const found = await get("api/savepoints");
  if (shown !== "savepoints") return;
  const list = found.map(({ savepoint, there }) => [
    moment(Date.parse(savepoint.taken)), h("code", {}, savepoint.folder), count(savepoint.shards), `${savepoint.held_ms} ms`,
    there ? h("span", { class: "pill good" }, savepoint.last ? "last of the run" : "there") : h("span", { class: "pill bad" }, "not there any more"),
  ]);
  const how = h("p", { class: "hint" }, "To take one: ", h("code", {}, "millwheel savepoint FOLDER"), ". To begin with one: ", h("code", {}, "millwheel run PIPELINE --root NEW --from-savepoint FOLDER"), ".");
  replace(at("panel"), list.length ? table(["taken", "~folder", "#shards", "#stood still", ""], list) : h("p", { class: "empty" }, "No savepoint was taken of this root."), how);
}

async function settings() {
  const found = await get("api/settings");
  if (shown !== "settings") return;
  replace(at("panel"), table(["setting", "~value"], found.map((each) => [each.name, h("span", { class: "mono" }, each.value)])));
}
