// The options of a model in words, with the values that it takes when nothing is chosen.

import { element } from "/page/dom.js";

const WORDS = {
  top: ["Show the", "most likely"],
  score: ["Show boxes above a score of", ""],
  max_new_tokens: ["Write at most", "tokens"],
  temperature: ["Temperature", "(0: the likeliest)"],
  top_k: ["Choose among the", "likeliest (0: all)"],
  top_p: ["Choose within a probability of", ""],
  min_p: ["Leave out below", "× the likeliest"],
};
const LABELS = ["Name labels above a probability of", ""];
const NUM_OPEN = 2; // more options wait behind a line

export function optionFields(model) {
  const fields = Object.entries(model.options).map(([name, type]) => field(name, type, model));
  if (fields.length <= NUM_OPEN) return fields;
  const more = element("details", {}, element("summary", { textContent: "More options" }), ...fields.slice(NUM_OPEN));
  return [...fields.slice(0, NUM_OPEN), more];
}

function field(name, type, model) {
  const [before, after] = name === "score" && model.answers === "labels" ? LABELS : (WORDS[name] ?? [name, ""]);
  const preset = name === "top" ? Math.min(model.defaults.top ?? 5, model.classes.length || 5) : model.defaults[name];
  const input = element("input", { name, type: "number", step: type === "int" ? 1 : "any", value: preset ?? "" });
  if (name === "top") Object.assign(input, { min: 1, max: model.classes.length || "" });
  input.dataset.preset = preset ?? "";
  if (name !== "score") return element("label", {}, before, input, after);
  Object.assign(input, { type: "range", min: 0, max: 1, step: 0.01, value: preset ?? 0.25 });
  const shown = element("output", { textContent: Number(input.value).toFixed(2) });
  input.addEventListener("input", () => (shown.textContent = Number(input.value).toFixed(2)));
  return element("label", {}, before, element("span", { className: "slider" }, input, shown));
}

// What differs from the model's own values: others need not be sent.
export function chosenOptions(block) {
  const fields = [...block.querySelectorAll("input")].filter((input) => input.value && input.value !== input.dataset.preset);
  return new URLSearchParams(fields.map((input) => [input.name, input.value]));
}
