// The recorded episodes of a run, and its videos.

import { get } from "./api.js";
import { aside, el, notice, table } from "./dom.js";
import { counted, localTime, number } from "./format.js";

const HEADS = ["episode", "return", "steps", "update", "actions", "task", "recorded"];

export async function recordsPage(main, run) {
  const box = el("div", {}, aside("reading…"));
  main.replaceChildren(box);
  try {
    const { records, videos, most, run_dir: runDir } = await get("api/records", { run });
    const command = `seedzero record --run_dir=${runDir} --episodes=5`;
    const more = records.length >= most ? `; only ${most} are shown` : "";
    const hint = aside(records.length ? `${counted(records.length, "episode")}${more}` : `no recorded episode yet; make some by `, records.length ? "" : el("code", {}, command));
    box.replaceChildren(...(records.length ? [table(HEADS, records.map((one) => row(run, one)), new Set([1, 2, 3]), "recorded episodes", true)] : []), hint, ...(videos.length ? [el("h2", {}, "Videos"), el("div", { class: "panels videos" }, videos.map((one) => video(run, one)))] : []));
  } catch (error) {
    notice(error);
  }
  return { close: () => {} };
}

function row(run, one) {
  if (one.error) return [one.record, "–", "–", "–", "–", "–", el("span", { class: "faint" }, one.error)];
  const link = el("a", { href: recordAddress(run, one.record) }, one.record);
  return [link, number(one.return), number(one.steps), number(one.step), one.policy || "–", one.task || "–", localTime(1000 * one.changed)];
}

function video(run, { file, bytes }) {
  const src = `api/video?${new URLSearchParams({ run, file })}`;
  const picture = file.endsWith(".gif") ? el("img", { src, alt: `video ${file}`, loading: "lazy" }) : el("video", { src, controls: true, preload: "metadata", "aria-label": `video ${file}` });
  return el("figure", { class: "panel" }, picture, el("figcaption", {}, `${file}, `, el("a", { href: src, download: file.replace(/.*[/]/, "") }, `${number(bytes)} bytes`)));
}

export function recordAddress(run, record, step = 0) {
  return `#/record?${new URLSearchParams({ run, record, step })}`;
}
