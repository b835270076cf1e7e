// Questions to the server. A token comes in the address after "#", and stays in this tab.

import { at } from "./elements.js";

const KEPT = "millwheel-token";
const RETRY_MS = 1500;
const SILENT_MS = 25000;

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEPT, given);
  history.replaceState(null, "", location.pathname);
}

const headers = () => {
  const token = sessionStorage.getItem(KEPT);
  return token ? { authorization: `Bearer ${token}` } : {};
};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answered(reply) {
  if (reply.ok) return reply.json();
  const told = await reply.json().catch(() => ({}));
  throw new Refused(reply.status, told.error || `The server answers ${reply.status}`);
}

export const get = async (path) => answered(await fetch(path, { headers: headers() }));

export const post = async (path, body) =>
  answered(await fetch(path, { method: "POST", headers: { ...headers(), "content-type": "application/json" }, body: JSON.stringify(body) }));

export const hasToken = () => sessionStorage.getItem(KEPT) !== null;

// Asks the user for a token. Resolves to whether there is one now.
export function askForToken(why) {
  const dialog = at("token-dialog");
  at("token-why").textContent = why;
  at("token").value = "";
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.onclose = () => {
      const value = at("token").value.trim();
      const use = dialog.returnValue === "use" && value !== "";
      if (use) sessionStorage.setItem(KEPT, value);
      resolve(use);
    };
    dialog.showModal();
    at("token").focus();
  });
}

// Follows the server's events for as long as the page lives. Not EventSource, which cannot show a token.
export async function follow(handlers, connection) {
  for (;;) {
    try {
      await read(handlers, () => connection(""));
      connection("The server has ended the connection; trying again …");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        sessionStorage.removeItem(KEPT);
        await askForToken(error.message);
      } else if (error instanceof Refused) connection(error.message);
      else connection("The page's server does not answer: what you see may be old. Trying again …");
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function read(handlers, connected) {
  const control = new AbortController();
  let timer = setTimeout(() => control.abort(), SILENT_MS);
  const reply = await fetch("api/events", { headers: headers(), signal: control.signal });
  if (!reply.ok) await answered(reply);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    clearTimeout(timer);
    if (done) return;
    timer = setTimeout(() => control.abort(), SILENT_MS);
    connected();
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) tell(part, handlers);
  }
}

function tell(part, handlers) {
  const fields = Object.fromEntries(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
  if (fields.event) handlers[fields.event](JSON.parse(fields.data));
}
