// Finds the models, sends what was drawn, chosen or typed to one of them, and has its answers shown.

import { card, element, passage, tableOf } from "/page/answers.js";
import { makePad } from "/page/pad.js";

const at = (id) => document.getElementById(id);
const pad = makePad(at("pad"), () => (at("file").value = ""));
let model = null; // description and path of the chosen one
let running = new AbortController();

async function request(path, options = {}) {
  const token = at("token").value;
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) at("token-field").hidden = false;
  if (response.ok) return response;
  const content = await response.json().catch(() => ({}));
  throw new Error(content.error ?? `The server answers with status ${response.status}.`);
}

async function tell(task) {
  say("…");
  try {
    say((await task()) ?? "");
  } catch (error) {
    if (error.name === "AbortError") say("Stopped.");
    else say(error instanceof TypeError ? `No answer: ${error.message}` : error.message, true);
  }
}

function say(text, isError = false) {
  at("status").textContent = text;
  at("status").className = isError ? "error" : "";
}

async function loadModels() {
  const { models } = await (await request("/v1/models")).json();
  const versions = models.flatMap(({ name, versions }) => versions.toReversed().map((version) => [name, version]));
  const options = versions.map(([name, version]) => {
    return new Option(`${name}, version ${version}`, `/v1/models/${encodeURIComponent(name)}/versions/${version}`);
  });
  at("model").replaceChildren(...options);
  if (!options.length) return "No model is served.";
  return chooseModel();
}

async function chooseModel() {
  running.abort();
  const path = at("model").value;
  const description = await (await request(path)).json();
  if (path !== at("model").value) return; // another one was chosen meanwhile
  model = { ...description, path };
  const isText = model.kind === "text" || model.kind === "prompt";
  at("drawing").hidden = model.kind !== "image";
  at("file-field").hidden = isText;
  at("layout-field").hidden = !isText;
  at("text-field").hidden = model.kind === "image";
  at("file").multiple = model.kind === "image";
  at("file").value = "";
  at("file-name").textContent = model.kind === "image" ? "or choose pictures" : "A .npy or .npz file, or below";
  const about = [model.task, model.net, model.format, model.classes.length && `${model.classes.length} classes`];
  at("about").textContent = about.filter(Boolean).join(" · ");
  at("inverted").checked = model.channels !== 1;
  const side = model.inputs[0]?.shape[2];
  at("pen").value = at("pad").width * Math.min(0.14, 2.5 / (Number.isInteger(side) ? side : 28));
  usePen();
  pad.clear();
  chooseLayout();
  at("options").replaceChildren(...Object.entries(model.options).map(option));
  show();
}

function option([name, type]) {
  const step = type === "int" ? 1 : "any";
  return element("label", {}, name, element("input", { name, step, type: "number", placeholder: "default" }));
}

function usePen() {
  pad.pen = Number(at("pen").value);
  pad.invert(at("inverted").checked);
}

function chooseLayout() {
  const names = { text: model.kind === "prompt" ? "Prompt" : "Text", lines: "Texts", rows: "Rows" };
  const inputs = model.inputs.map(({ name, shape }) => `${name} (${shape.slice(1).join(" × ")})`).join(", ");
  const layout = model.kind === "tensor" ? "rows" : at("layout").value;
  at("text-name").textContent = model.answers === "gaps" && layout === "text" ? "Text, with <mask> for a gap" : names[layout];
  at("text").placeholder = model.kind === "tensor" ? `${inputs}, as CSV or JSON` : "";
}

async function gather() {
  const files = [...at("file").files];
  if (model.kind === "image") {
    if (!files.length && pad.isEmpty) throw new Error("Draw something or choose a picture first.");
    const pictures = files.length ? files : [await pad.file()];
    const form = new FormData();
    for (const picture of pictures) form.append("file", picture, picture.name ?? "drawing.png");
    return { body: form, pictures };
  }
  if (files.length) return { body: files[0], type: "application/octet-stream" };
  const text = at("text").value;
  if (!text.trim()) throw new Error("Enter something first.");
  const layout = model.kind === "tensor" ? "rows" : at("layout").value;
  if (layout === "text") return { ...asJson([text]), prompt: text };
  if (layout === "lines") return asJson(text.split("\n").filter((line) => line.trim()));
  if (!/^\s*[[{]/.test(text)) return { body: text, type: text.includes("\t") ? "text/tab-separated-values" : "text/csv" };
  return asJson(jsonRows(text));
}

function asJson(inputs) {
  return { body: JSON.stringify({ inputs }), type: "application/json", inputs };
}

function jsonRows(text) {
  const content = JSON.parse(text);
  if (!Array.isArray(content)) return [content];
  const depth = (value) => (Array.isArray(value) ? 1 + depth(value[0]) : typeof value === "number" ? 0 : NaN);
  return model.kind === "tensor" && depth(content) === model.inputs[0].shape.length - 1 ? [content] : content;
}

async function run() {
  const { body, type, inputs = [], pictures = [], prompt } = await gather();
  const isStream = model.streams && prompt !== undefined;
  const fields = [...at("options").querySelectorAll("input")].filter((input) => input.value);
  const query = new URLSearchParams(fields.map((input) => [input.name, input.value]));
  const start = performance.now();
  running = new AbortController();
  const response = await request(`${model.path}${isStream ? "/stream" : ""}?${query}`, {
    method: "POST",
    body,
    headers: type ? { "content-type": type } : {}, // of a form, the browser writes it
    signal: running.signal,
  });
  if (isStream) await showStream(response, prompt);
  else {
    const { answers } = await response.json();
    if (answers.length > 1 && !pictures.length) show(tableOf(answers, inputs));
    else show(...(await Promise.all(answers.map((answer, number) => card(answer, pictures[number], model)))));
  }
  return `${Math.round(performance.now() - start)} ms`;
}

function show(...blocks) {
  at("answers").replaceChildren(...blocks);
}

async function showStream(response, prompt) {
  const block = passage(prompt, "");
  show(block);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const events = (rest + chunk.value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const { text = "", error } = JSON.parse(event.slice("data: ".length));
      if (error) throw new Error(error);
      block.append(text);
    }
  }
}

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!model || at("run").disabled) return;
  at("run").disabled = true;
  at("stop").disabled = false;
  await tell(run);
  at("run").disabled = false;
  at("stop").disabled = true;
});
at("model").addEventListener("change", () => tell(chooseModel));
at("token").addEventListener("change", () => tell(loadModels));
at("layout").addEventListener("change", chooseLayout);
at("pen").addEventListener("input", usePen);
at("inverted").addEventListener("change", usePen);
at("clear").addEventListener("click", () => pad.clear());
at("file").addEventListener("change", () => pad.clear());
at("stop").addEventListener("click", () => running.abort());
tell(loadModels);
