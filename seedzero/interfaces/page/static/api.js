// Asks the server: JSON by GET, a person's moves by POST, new rows by server-sent events after a cursor.

import { notice } from "./dom.js";

export class Refused extends Error {}

export function get(path, parameters = []) {
  return answered(fetch(`${path}?${new URLSearchParams(parameters)}`, { headers: { Accept: "application/json" } }));
}

export function post(path, value) {
  return answered(fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) }));
}

async function answered(asked) {
  const response = await asked;
  if (response.status === 401) {
    location.reload();
    return new Promise(() => {});
  }
  const value = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Refused(value.error);
  return value;
}

// Returns an answer about runs once their history is read; null: nobody is alive to wait for it. told: gets every answer.
export async function whole(path, parameters, alive, told = () => {}) {
  for (;;) {
    const found = await get(path, parameters);
    if (!alive()) return null;
    told(found);
    if (found.read === 1) return found;
    notice(`reading the history: ${Math.floor(100 * found.read)} %`);
  }
}

const RETRY_MILLISECONDS = 2000;

// Follows runs; cursors: by run. handlers: rows(event), summary(event), gone(text), lost(text). Returns a function
// that ends it.
export function follow(cursors, handlers) {
  const current = { ...cursors };
  const address = () => `api/stream?${new URLSearchParams(Object.entries(current).flatMap(([run, cursor]) => [["run", run], ["cursor", cursor]]))}`;
  const events = {
    rows(value) {
      current[value.run] = value.cursor;
      handlers.rows(value);
    },
    summary: handlers.summary,
    gone: (value) => handlers.gone(value.error),
  };
  return listen(address, events, handlers.lost);
}

// Follows an environment, or (null) the runtime of a run, after a cursor; live(event), lost(text). As `follow`.
export function followLive(run, environment, cursor, live, lost) {
  let current = cursor;
  const rest = environment === null ? {} : { environment };
  const take = (value) => {
    current = value.cursor;
    live(value);
  };
  return listen(() => `api/live/stream?${new URLSearchParams({ run, cursor: current, ...rest })}`, { live: take }, lost);
}

// Keeps a stream of events open: handlers by event; "gone" is the last one. A hidden page holds no stream.
function listen(address, handlers, lost) {
  let source = null;
  let timer = null;
  let isOver = false;

  function open() {
    clearTimeout(timer);
    if (isOver || source || document.hidden) return;
    source = new EventSource(address());
    source.addEventListener("open", () => lost(""));
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        if (name === "gone") end();
        handler(JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      close();
      if (isOver) return;
      lost("the server does not answer, or has no stream free; the page tries again");
      timer = setTimeout(open, RETRY_MILLISECONDS);
    });
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  const onVisibility = () => (document.hidden ? close() : open());
  function end() {
    isOver = true;
    close();
    document.removeEventListener("visibilitychange", onVisibility);
  }
  document.addEventListener("visibilitychange", onVisibility);
  open();
  return end;
}
