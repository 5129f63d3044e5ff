// Draws series as lines: what was given, and what was answered.

import { element, rounded } from "/page/dom.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, AXIS, NUM_COLOURS] = [640, 240, 56, 6];

// Rows of an answer as columns of numbers by name; null if they are none.
export function columnsOf(value) {
  if (!Array.isArray(value) || value.length < 2) return null;
  if (value.every((entry) => typeof entry === "number")) return { "": value };
  const names = value[0] && typeof value[0] === "object" ? Object.keys(value[0]) : [];
  const numeric = names.filter((name) => value.every((row) => typeof row?.[name] === "number"));
  if (!numeric.length || numeric.length > 12) return null;
  return Object.fromEntries(numeric.map((name) => [name, value.map((row) => row[name])]));
}

// Columns of the answer, after the same columns of the input where it has them.
export function chart(columns, given = {}) {
  const names = Object.keys(columns);
  const known = names.map((name) => given[name] ?? []);
  const numKnown = Math.max(...known.map((values) => values.length));
  const length = numKnown + Math.max(...names.map((name) => columns[name].length));
  const all = [...known.flat(), ...names.flatMap((name) => columns[name])].filter(Number.isFinite);
  const [low, high] = [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))];
  const x = (step) => (AXIS + (step / Math.max(length - 1, 1)) * (WIDTH - AXIS)).toFixed(1);
  const y = (value) => (10 + (1 - (value - low) / (high - low || 1)) * (HEIGHT - 40)).toFixed(1);
  const line = (values, start, className) =>
    drawn("polyline", { class: className, points: values.map((value, step) => `${x(start + step)},${y(value)}`).join(" ") });
  const block = drawn("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  block.setAttribute("aria-label", `Lines from ${rounded(low)} to ${rounded(high)}`);
  for (const [number, name] of names.entries()) {
    const colour = `k${(number % NUM_COLOURS) + 1}`;
    const start = numKnown - known[number].length;
    if (known[number].length) block.append(line(known[number], start, `${colour} known`));
    block.append(line([...known[number].slice(-1), ...columns[name]], numKnown - (known[number].length ? 1 : 0), colour));
  }
  if (numKnown) block.append(drawn("line", { x1: x(numKnown - 1), x2: x(numKnown - 1), y1: 0, y2: HEIGHT - 25 }));
  block.append(
    text(AXIS, HEIGHT - 6, numKnown ? `input, ${numKnown} steps` : "first step"),
    text(WIDTH, HEIGHT - 6, numKnown ? `answer, ${length - numKnown} steps` : `step ${length}`, "end"),
    text(AXIS - 6, 14, short(high), "end"),
    text(AXIS - 6, HEIGHT - 26, short(low), "end"),
  );
  return element("div", {}, block, ...(names.length > 1 ? [keys(names)] : []));
}

const short = (value) => String(Number(value.toPrecision(3)));

function keys(names) {
  const entry = (name, number) => {
    const mark = element("span", { className: `k${(number % NUM_COLOURS) + 1}`, textContent: "━ " });
    return element("span", {}, mark, /^\d+$/.test(name) ? `channel ${Number(name) + 1}` : name);
  };
  return element("div", { className: "keys" }, ...names.map(entry));
}

function text(x, y, content, anchor = "start") {
  const block = drawn("text", { x, y, "text-anchor": anchor });
  block.textContent = content;
  return block;
}

function drawn(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
