// Elements from names, attributes and children. Text is always text, whatever it contains.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export const h = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

export const at = (id) => document.getElementById(id);

// Heads with a leading # are columns of numbers, those with ~ may wrap.
export function table(heads, rows) {
  const kind = (text) => ({ class: { "#": "number", "~": "wide" }[text[0]] });
  const head = heads.map((text) => h("th", { scope: "col", ...kind(text) }, text.replace(/^[#~]/, "")));
  const body = rows.map((cells) =>
    h("tr", {}, cells.map((cell, index) => h("td", kind(heads[index]), cell))));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function busyBar(share) {
  const bar = h("i");
  bar.style.width = `${Math.min(100, share * 100)}%`;
  return h("span", { class: "busy", "aria-hidden": "true" }, bar);
}

// Replaces the children of an element, and keeps the focus and what was opened where they were.
export function replace(element, ...children) {
  const focused = document.activeElement;
  const key = element.contains(focused) ? focused.getAttribute("data-key") : null;
  const open = new Set([...element.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  element.replaceChildren(...children.flat());
  for (const each of element.querySelectorAll("details")) each.open = open.has(each.dataset.key);
  if (key !== null) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}
