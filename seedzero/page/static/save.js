// Saves a chart as a file of the browser: its numbers, or its picture with title and legend.

import { el } from "./dom.js";

export function save(title, ending, blob) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: `${title.replace(/[^\w.-]+/g, "_").slice(0, 100)}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Returns a canvas with a plot's canvas below its title and above its legend; legend: [label, colour].
export function picture(plot, title, legend, { ink, back }) {
  const unit = devicePixelRatio;
  const [head, line] = [30 * unit, 20 * unit];
  const canvas = el("canvas", { width: plot.width, height: plot.height + head + line * (legend.length + 0.5) });
  const context = canvas.getContext("2d");
  const write = (text, left, top, colour, weight = "") => {
    context.fillStyle = colour;
    context.font = `${weight} ${13 * unit}px system-ui, sans-serif`;
    context.fillText(text, left, top);
  };
  context.fillStyle = back;
  context.fillRect(0, 0, canvas.width, canvas.height);
  write(title, 12 * unit, 20 * unit, ink, "bold");
  context.drawImage(plot, 0, head);
  legend.forEach(([label, colour], place) => {
    const top = head + plot.height + line * (place + 0.7);
    context.fillStyle = colour;
    context.fillRect(12 * unit, top - 9 * unit, 10 * unit, 10 * unit);
    write(label, 30 * unit, top, ink);
  });
  return canvas;
}
