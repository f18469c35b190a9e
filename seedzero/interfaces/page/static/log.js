// The logs of a run: the end of one, read again while it is shown.

import { get } from "./api.js";
import { el, notice } from "./dom.js";
import { number } from "./format.js";

const EVERY_MILLISECONDS = 5000;

export async function logPage(main, run, parameters) {
  let timer = null;
  let isOver = false;
  const choice = el("select", { "aria-label": "log", change: () => read(true) });
  const told = el("span", { class: "faint" }, "reading…");
  const text = el("pre", { class: "log", tabindex: 0, role: "region", "aria-label": "end of the log" });
  main.replaceChildren(el("div", { class: "tools" }, choice, told), text);

  async function read(isOther) {
    clearTimeout(timer);
    if (!document.hidden) {
      try {
        const file = choice.value || parameters.get("file") || "";
        const found = await get("api/log", { run, file });
        if (isOver || (file && choice.value && choice.value !== file)) return;
        if (found.files.join() !== [...choice.options].map((option) => option.value).join()) choice.replaceChildren(...found.files.map((name) => el("option", { value: name }, name)));
        choice.value = found.file;
        const isAtEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
        if (text.textContent !== found.text) text.textContent = found.text;
        if (isOther || isAtEnd) text.scrollTop = text.scrollHeight;
        told.textContent = found.file ? `${number(found.bytes)} bytes, the end is shown` : "no log yet; any NAME.log of the run is shown";
        notice("");
      } catch (error) {
        if (!isOver) notice(error);
      }
    }
    if (!isOver) timer = setTimeout(read, EVERY_MILLISECONDS, false);
  }
  await read(true);
  return { close: () => ((isOver = true), clearTimeout(timer)) };
}
