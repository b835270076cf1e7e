"use strict";
// Asks the gateway that serves this page: one request a second, with the totals and the points of the chart.

const POINTS = 60, SLICE_US = 10e6;
const UNITS_S = {s: 1, m: 60, h: 3600, d: 86400};
const WINDOWS = ["5m", "15m", "1h", "3h"];
const CARDS = {
  impressions: {title: "impressions", of: values => values.impressions, text: count},
  clicks: {title: "clicks", of: values => values.clicks, text: count},
  ctr: {title: "click-through rate", of: values => values.impressions ? values.clicks / values.impressions : null, text: share},
  spend: {title: "spend", of: values => values.spend ?? 0, text: money},
  cpc: {title: "cost per click", of: values => values.clicks ? (values.spend ?? 0) / values.clicks : null, text: money},
  users: {title: "users, about", of: values => values.users, text: count},
};
const given = new URLSearchParams(location.search);
const token = new URLSearchParams(location.hash.slice(1)).get("token"); // in the address that `millwheel serve` prints
if (token) sessionStorage.setItem("token", token);
const shown = () => sessionStorage.getItem("token") ? {authorization: "Bearer " + sessionStorage.getItem("token")} : {};
const state = {ad: given.get("ad") ?? "0", window: given.get("window") ?? "15m", card: given.get("card") ?? "impressions"};
const fixedUs = given.has("at") ? Number(given.get("at")) : null; // a time in place of now
const at = id => document.getElementById(id);

function count(value) { return value.toLocaleString("en"); }
function share(value) { return value === null ? "–" : (100 * value).toFixed(2) + " %"; }
function money(value) { return value === null ? "–" : value.toLocaleString("en", {minimumFractionDigits: 2, maximumFractionDigits: 2}); }
function clock(us, seconds) {
  return new Date(us / 1000).toLocaleTimeString("en-GB", {hour: "2-digit", minute: "2-digit", ...(seconds && {second: "2-digit"})});
}

function windowUs(text) {
  const parts = [...text.matchAll(/(\d+)([smhd])/g)];
  if (!parts.length || parts.map(each => each[0]).join("") !== text) return null;
  return 1e6 * parts.reduce((sum, [, number, unit]) => sum + number * UNITS_S[unit], 0);
}

function questions() {
  const nowUs = fixedUs ?? Date.now() * 1000, key = Number(state.ad), sizeUs = windowUs(state.window);
  const stepUs = Math.max(1, Math.ceil(sizeUs / POINTS / SLICE_US)) * SLICE_US;
  const endUs = Math.ceil(nowUs / stepUs) * stepUs, ends = [];
  for (let us = endUs - Math.ceil(sizeUs / stepUs) * stepUs + stepUs; us <= endUs; us += stepUs) ends.push(us);
  const ask = (indicator, more) => ({indicator, key, consistency: "latest", ...more});
  const total = {window: state.window, until: Math.round(nowUs)};
  return {
    ends, stepUs,
    queries: [ask("ads", total), ask("ctr", total), ask("cpc", total), ...ends.map(us => ask("ads", {window: stepUs, until: us}))],
  };
}

async function refresh() {
  const asked = {...state}, {ends, stepUs, queries} = questions();
  try {
    const reply = await fetch("v1/query", {method: "POST", headers: shown(), body: JSON.stringify({queries})});
    const told = await reply.json();
    if (!reply.ok) throw new Error(told.error.sentence);
    if (Object.keys(state).some(name => state[name] !== asked[name])) return; // somebody chose another one meanwhile
    const [total, ctr, cpc, ...points] = told.answers, failed = told.answers.find(each => each.error);
    if (failed) throw new Error(failed.error.sentence);
    showCards({...total.values, ctr: ctr.values.ctr, cpc: cpc.values.cpc});
    draw(ends.map((us, place) => [us, CARDS[state.card].of(points[place].values)]), stepUs);
    showAbout(total, queries.length);
    at("problem").textContent = "";
  } catch (ex) {
    at("problem").textContent = ex.message;
  }
}

function showCards(values) {
  for (const [name, card] of Object.entries(CARDS)) {
    const value = name in values ? values[name] : card.of(values);
    at("card-" + name).querySelector("b").textContent = card.text(value ?? (name === "ctr" || name === "cpc" ? null : 0));
  }
}

function showAbout(answer, asked) {
  const lag = Math.max(0, (fixedUs ?? Date.now() * 1000) - answer.watermark) / 1e6;
  at("about").replaceChildren(...[
    `covered: ${clock(answer.covered_start, true)} to ${clock(answer.covered_end, true)}`,
    answer.complete ? "complete" : `complete up to ${lag.toFixed(0)} s ago`,
    `shard ${answer.shard}, commit ${answer.commit}`,
    `${asked} questions a second`,
  ].map(text => Object.assign(document.createElement("span"), {textContent: text})));
  at("about").dataset.start = answer.covered_start;
  at("about").dataset.end = answer.covered_end;
}

function element(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map(each => each * power).find(each => each >= value);
}

function draw(points, stepUs) {
  const svg = document.querySelector("svg"), {width, height} = svg.getBoundingClientRect();
  const left = 52, bottom = height - 24, right = width - 8;
  const top = niceTop(Math.max(...points.map(([, value]) => value ?? 0)));
  const x = place => left + (right - left) * place / Math.max(1, points.length - 1);
  const y = value => bottom - (bottom - 8) * value / top;
  svg.replaceChildren();
  const axis = CARDS[state.card].text;
  for (let part = 0; part <= 4; part++) {
    const level = top * part / 4;
    svg.append(element("line", {class: "grid", x1: left, x2: right, y1: y(level), y2: y(level)}));
    svg.append(element("text", {x: left - 8, y: y(level) + 4, "text-anchor": "end"}, axis(level)));
  }
  const every = Math.ceil(points.length / 6);
  points.forEach(([us], place) => {
    if (place % every === 0) svg.append(element("text", {x: x(place), y: height - 4, "text-anchor": "middle"}, clock(us, stepUs < 60e6)));
  });
  const spots = points.map(([, value], place) => value === null ? null : [x(place).toFixed(1), y(value).toFixed(1)]);
  const whole = spots.slice(0, -1).filter(Boolean); // the last step still runs: its share of records is dashed
  if (whole.length) {
    const curve = whole.join(" L");
    svg.append(element("path", {class: "area", d: `M${whole[0][0]},${bottom} L${curve} L${whole.at(-1)[0]},${bottom} Z`}));
    svg.append(element("path", {class: "curve", d: `M${curve}`}));
    if (spots.at(-1)) svg.append(element("path", {class: "curve running", d: `M${whole.at(-1)} L${spots.at(-1)}`}));
  }
  points.forEach(([us, value], place) => {
    const spot = svg.appendChild(element("circle", {cx: x(place), cy: y(value ?? 0), r: 7, fill: "transparent"}));
    spot.append(element("title", {}, `${clock(us - stepUs, true)} to ${clock(us, true)}: ${value === null ? "–" : axis(value)}`));
  });
}

function choose(change) {
  Object.assign(state, change);
  for (const button of document.querySelectorAll("[data-window]")) button.ariaPressed = button.dataset.window === state.window;
  for (const name of Object.keys(CARDS)) at("card-" + name).ariaPressed = name === state.card;
  at("ad").value = state.ad;
  refresh();
}

function button(text, onclick) {
  return Object.assign(document.createElement("button"), {textContent: text, type: "button", onclick});
}

for (const window of WINDOWS) {
  const made = at("windows").appendChild(button(window, () => choose({window})));
  made.dataset.window = window;
}
for (const [card, {title}] of Object.entries(CARDS)) {
  const made = at("cards").appendChild(button("", () => choose({card})));
  made.id = "card-" + card;
  made.append(Object.assign(document.createElement("span"), {textContent: title}), document.createElement("b"));
}
at("ad").onchange = () => choose({ad: at("ad").value || "0"});
at("any").onchange = () => {
  const window = at("any").value.trim();
  if (windowUs(window)) choose({window});
  else at("problem").textContent = `${window} is no window; write 90s, 7m, 2h30m or 1d`;
};
choose({});
setInterval(refresh, 1000);
