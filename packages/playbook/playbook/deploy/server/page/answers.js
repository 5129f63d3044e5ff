// Shows answers as cards: what was found in a line, then its details beside the input.

import { element, percent, rounded, table } from "/page/dom.js";
import { chart, columnsOf } from "/page/lines.js";
import { figure, load, opacity, pictureOf, swatch } from "/page/pictures.js";
import { player, times } from "/page/sound.js";

const CLASS = /^(class|label)(_\d+)?$/;
const SHARE = /^probability(_\d+)?$/;
const SHOWN = /^((class|label|probability)(_\d+)?|labels|boxes|mask|area|prompt|text|choices)$/;
const CHOICE = /(.*?) (\d\.\d\d)(, | \| |$)/gs; // a word for a gap with its probability

// The card of an input {name, picture, sound, given} and its answer.
export async function card(answer, input, model) {
  const colourOf = (name) => model.colours[model.classes.indexOf(name)] ?? "#c00000";
  const media = element("div", { className: "media" });
  const facts = element("div", { className: "facts" });
  if (input.name) facts.append(element("p", { className: "name", textContent: input.name }));
  const layers = [input.picture && (await pictureOf(input.picture, input.name))];
  if (answer.mask?.png) layers.push(await load(`data:image/png;base64,${answer.mask.png}`));
  const visible = layers.filter(Boolean);
  let choose = () => {};
  if (visible.length) {
    const picture = figure(visible, layers[0] ? (answer.boxes ?? []) : [], colourOf);
    choose = picture.choose;
    media.append(picture.block);
    if (answer.mask && visible.length > 1) media.append(opacity(visible[1]));
  }
  if (input.sound) media.append(player(input.sound));
  facts.append(...headline(answer, model), ...details(answer, model, colourOf, choose));
  const rest = Object.entries(answer).filter(([key, value]) => !SHOWN.test(key) && !isHeadline(answer, key, value));
  facts.append(...others(rest, input.given, model.classes));
  const isBig = answer.boxes !== undefined || answer.mask !== undefined;
  const pair = media.childNodes.length ? `pair${isBig ? " big" : ""}` : "";
  return element("article", { className: pair }, ...(pair ? [media] : []), facts);
}

// The card of a recording in windows, with an answer to each.
export function recording(answers, windows, file) {
  const sound = player(file);
  const media = element("div", { className: "media" }, element("p", { className: "name", textContent: file.name }), sound);
  const blocks = [media, times(windows, answers.map(inShort), sound)];
  if ("class" in answers[0] || "labels" in answers[0]) blocks.splice(1, 0, mostFrequent(answers));
  return element("article", {}, ...blocks);
}

function mostFrequent(answers) {
  const counts = new Map();
  for (const { class: name, labels } of answers) counts.set(labels ?? name, (counts.get(labels ?? name) ?? 0) + 1);
  const [[name, count]] = [...counts].sort((one, other) => other[1] - one[1]);
  const note = element("small", { textContent: `in ${count} of ${answers.length} windows` });
  return element("p", { className: "headline" }, String(name || "No label"), " ", note);
}

// The answers to several texts or rows, a line each.
export function listed(answers, inputs) {
  const keys = [...new Set(answers.flatMap(Object.keys))].filter((key) => !SHARE.test(key));
  const columns = [...new Set(inputs.flatMap((input) => (input && typeof input === "object" ? Object.keys(input) : [])))];
  const rows = answers.map((answer, number) => [
    ...(columns.length ? [number + 1] : [inputs[number] ?? number + 1]),
    ...keys.map((key) => (CLASS.test(key) ? `${answer[key]}  ${percent(shareOf(answer, key))}` : answer[key])),
    ...columns.map((name) => inputs[number]?.[name] ?? ""),
  ]);
  const first = columns.length || !inputs.length ? "row" : "input";
  const title = element("p", { className: "headline", textContent: `${answers.length} answers` });
  return element("article", {}, title, table([first, ...keys, ...columns], rows));
}

export function passage(prompt, text) {
  return element("p", { className: "passage" }, element("span", { className: "prompt", textContent: prompt.replace(/^\s*\n/, "") }), text);
}

export function inShort(answer) {
  if ("labels" in answer) return answer.labels || "no label";
  if ("class" in answer) return `${answer.class} ${percent(answer.probability)}`;
  return Object.entries(answer).map(([key, value]) => `${key} ${typeof value === "number" ? rounded(value) : value}`).join(", ");
}

function headline(answer, model) {
  const line = (text, note = "") => [element("p", { className: "headline" }, text, " ", element("small", { textContent: note }))];
  if ("labels" in answer) {
    if (!answer.labels) return line("No label", "is likely enough");
    const chips = answer.labels.split(", ").map((name) => element("span", { textContent: name }));
    return [element("div", { className: "chips" }, ...chips)];
  }
  if ("class" in answer) return line(String(answer.class), percent(answer.probability));
  if (answer.boxes) return line(counted(answer.boxes.length, "object"), summary(answer.boxes));
  if (answer.area) {
    const parts = Object.entries(answer.area).filter(([, share]) => share > 0);
    const large = parts.filter(([, share]) => share >= 0.01).sort((one, other) => other[1] - one[1]);
    const names = large.slice(0, 3).map(([name]) => name);
    return line(names.join(", "), `${parts.length} of ${Object.keys(answer.area).length} classes`);
  }
  if (typeof answer.value === "number") return line(answer.value.toLocaleString("en", { maximumSignificantDigits: 5 }), model.target ?? "");
  return [];
}

const isHeadline = (answer, key, value) => key === "value" && typeof value === "number" && !("class" in answer);
const counted = (number, name) => `${number || "No"} ${name}${number === 1 ? "" : "s"}`;

function summary(boxes) {
  const counts = new Map();
  for (const box of boxes) counts.set(box.class, (counts.get(box.class) ?? 0) + 1);
  const most = [...counts].slice(0, 4); // of the surest boxes
  if (counts.size > most.length) return `of ${counts.size} classes`;
  return most.map(([name, count]) => (count > 1 ? `${count} × ${name}` : name)).join(", ");
}

function details(answer, model, colourOf, choose) {
  const blocks = [];
  if ("text" in answer) blocks.push(passage(answer.prompt ?? "", answer.text));
  const classes = Object.keys(answer).filter((key) => CLASS.test(key));
  const areas = Object.entries(answer.area ?? {}).filter(([, share]) => share > 0);
  areas.sort((one, other) => other[1] - one[1]);
  const bars = [
    ...classes.map((key) => bar(answer[key], shareOf(answer, key))),
    ...(answer.boxes ?? []).map((box, number) => pointing(bar(box.class, box.score, colourOf(box.class)), () => choose(number), choose)),
    ...areas.map(([name, share]) => bar(name, share, colourOf(name))),
  ];
  if (bars.length) blocks.push(element("ol", { className: "bars" }, ...bars));
  return [...blocks, ...gaps(answer.choices ?? "")];
}

// Shows the box of a line while it is pointed at.
function pointing(line, show, choose) {
  line.tabIndex = 0;
  for (const event of ["pointerenter", "focus"]) line.addEventListener(event, show);
  for (const event of ["pointerleave", "blur"]) line.addEventListener(event, () => choose(null));
  return line;
}

function bar(name, share, colour) {
  const label = element("span", {}, String(name));
  if (colour) label.prepend(swatch(colour), " ");
  const line = element("progress", { max: 1, value: share ?? 0, ariaLabel: String(name) });
  return element("li", { className: "bar" }, label, line, element("span", { className: "share" }, percent(share)));
}

function gaps(choices) {
  const blocks = [];
  let separator = " | ";
  for (const [, word, share, next] of choices.matchAll(CHOICE)) {
    if (separator === " | ") {
      const title = element("h3", { textContent: `Gap ${blocks.length + 1}` });
      blocks.push(element("div", {}, title, element("ol", { className: "bars" })));
    }
    blocks.at(-1).lastChild.append(bar(word, Number(share)));
    separator = next;
  }
  return blocks.length ? [element("div", { className: "gaps" }, ...blocks)] : [];
}

// Outputs without a form of their own: series as lines, numbers and the rest as a table.
function others(entries, given, classes) {
  const blocks = [];
  const rest = [];
  for (const [key, value] of entries) {
    const columns = columnsOf(value);
    if (key === "logits" && value?.[0]?.length === classes.length) blocks.push(...decisions(value, classes));
    else if (columns) blocks.push(element("h3", { textContent: key }), chart(columns, columnsOf(given) ?? {}), rowsOf(value));
    else rest.push([key, value]);
  }
  return rest.length ? [...blocks, table(["output", "value"], rest)] : blocks;
}

const MOST_ROWS = 500;

// The likeliest class of each row of logits (N, K), such as those of the nodes of a graph.
function decisions(logits, classes) {
  const rows = logits.map((row) => {
    const best = row.indexOf(Math.max(...row));
    return [classes[best], 1 / row.reduce((sum, value) => sum + Math.exp(value - row[best]), 0)];
  });
  const counts = new Map();
  for (const [name] of rows) counts.set(name, (counts.get(name) ?? 0) + 1);
  const sorted = [...counts].sort((one, other) => other[1] - one[1]);
  const bars = sorted.map(([name, count]) => bar(name, count / rows.length));
  const shown = rows.slice(0, MOST_ROWS).map(([name, share], number) => [number + 1, name, percent(share)]);
  const more = rows.length > MOST_ROWS ? `, the first ${MOST_ROWS} of ${rows.length}` : "";
  return [
    element("p", { className: "headline" }, `${rows.length} decisions `, element("small", { textContent: `mostly ${sorted[0][0]}` })),
    element("ol", { className: "bars" }, ...bars),
    element("details", {}, element("summary", { textContent: `Each of them${more}` }), table(["row", "class", "probability"], shown)),
  ];
}

function rowsOf(value) {
  const rows = value.slice(0, MOST_ROWS).map((row, number) => [number + 1, ...(typeof row === "number" ? [row] : Object.values(row))]);
  const isNamed = typeof value[0] === "object" && !Array.isArray(value[0]);
  const names = isNamed ? Object.keys(value[0]) : rows[0].slice(1).map((_, number) => (rows[0].length > 2 ? String(number + 1) : "value"));
  const more = value.length > MOST_ROWS ? `, the first ${MOST_ROWS} of ${value.length}` : "";
  return element("details", {}, element("summary", { textContent: `Numbers${more}` }), table(["step", ...names], rows));
}

function shareOf(answer, key) {
  return answer[key.replace(/class|label/, "probability")];
}
