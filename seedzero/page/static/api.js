// Asks the server: JSON by GET, new rows by server-sent events after a cursor.

export class Refused extends Error {}

export async function get(path, parameters = []) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, { headers: { Accept: "application/json" } });
  if (response.status === 401) {
    location.reload();
    return new Promise(() => {});
  }
  const value = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Refused(value.error);
  return value;
}

// Returns series once the history is read; progress: receives the read share. alive: whether anyone waits.
export async function series(run, metrics, options, progress, alive) {
  const parameters = [["run", run], ...metrics.map((name) => ["metric", name]), ...Object.entries(options)];
  while (alive()) {
    const found = await get("/api/series", parameters);
    if (found.series) return found;
    progress(found.read);
  }
  return null;
}

const RETRY_MILLISECONDS = 2000;

// Follows runs; cursors: by run. handlers: rows(event), summary(event), gone(text), lost(text). Returns a function
// that ends it. A hidden page holds no stream.
export function follow(cursors, handlers) {
  const current = { ...cursors };
  let source = null;
  let timer = null;
  let isOver = false;

  function open() {
    clearTimeout(timer);
    if (isOver || source || document.hidden) return;
    const parameters = Object.entries(current).flatMap(([run, cursor]) => [["run", run], ["cursor", cursor]]);
    source = new EventSource(`/api/stream?${new URLSearchParams(parameters)}`);
    source.addEventListener("open", () => handlers.lost(""));
    source.addEventListener("rows", (event) => {
      const value = JSON.parse(event.data);
      current[value.run] = value.cursor;
      handlers.rows(value);
    });
    source.addEventListener("summary", (event) => handlers.summary(JSON.parse(event.data)));
    source.addEventListener("gone", (event) => {
      end();
      handlers.gone(JSON.parse(event.data).error);
    });
    source.addEventListener("error", () => {
      close();
      if (isOver) return;
      handlers.lost("the server does not answer, or has no stream free; the page tries again");
      timer = setTimeout(open, RETRY_MILLISECONDS);
    });
  }

  function close() {
    clearTimeout(timer);
    if (source) source.close();
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
