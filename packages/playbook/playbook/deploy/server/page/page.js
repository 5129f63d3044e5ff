// Finds the models, sends what was drawn, chosen or typed to one of them, and has its answers shown.

import { card, listed, passage, recording } from "/page/answers.js";
import { asJson, formOf, jsonRows, textOf } from "/page/bodies.js";
import { columnFields, fits, rowOf } from "/page/columns.js";
import { element } from "/page/dom.js";
import { chosenOptions, optionFields } from "/page/options.js";
import { makePad } from "/page/pad.js";
import { pictureOf } from "/page/pictures.js";
import { player, windowsOf } from "/page/sound.js";
import { piecesOf } from "/page/stream.js";

const at = (id) => document.getElementById(id);
const pad = makePad(at("pad"), (isEmpty) => (at("hint").hidden = !isEmpty));
const MOST_PREVIEWS = 12;
let model = null; // description and path of the chosen one
let running = new AbortController();
let example = null; // {file} or {input} of the chosen one
let files = [];

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
  say("One moment …", "busy");
  try {
    say((await task()) ?? "");
  } catch (error) {
    if (error.name === "AbortError") say("Stopped.");
    else {
      show(); // former answers must not stand below an error
      say(error instanceof TypeError ? `No answer: ${error.message}` : error.message, "error");
    }
  }
}

function say(text, kind = "") {
  at("status").textContent = text;
  at("status").className = kind;
}

async function loadModels() {
  const { models } = await (await request("/v1/models")).json();
  const versions = models.flatMap(({ name, versions }) => versions.toReversed().map((version) => [name, version]));
  const options = versions.map(([name, version]) => {
    return new Option(`${name}, version ${version}`, `/v1/models/${encodeURIComponent(name)}/versions/${version}`);
  });
  at("model").replaceChildren(...options);
  at("model-field").hidden = options.length < 2;
  if (!options.length) return "No model is served.";
  return chooseModel();
}

async function chooseModel() {
  running.abort();
  const path = at("model").value;
  const description = await (await request(path)).json();
  const found = description.example && (await readExample(`${path}/example`, description.example.type));
  if (path !== at("model").value) return; // another one was chosen meanwhile
  model = { ...description, path };
  example = found;
  document.title = at("title").textContent = `Try ${model.name}`;
  const about = [model.net && `${model.net} (${model.task})`, model.format, model.classes.length && `${model.classes.length} classes`];
  at("about").textContent = [`version ${model.version}`, ...about].filter(Boolean).join(" · ");
  at("drop").hidden = takesTexts();
  at("layout-field").hidden = !takesTexts();
  at("file").multiple = takesFiles();
  const titles = { image: draws() ? "or drop pictures here" : "Drop pictures here", audio: "Drop recordings here", row: "Drop a .csv here" };
  at("drop-title").textContent = titles[model.kind] ?? "Drop a .npy or .npz here";
  at("inverted").checked = false;
  const side = model.inputs[0]?.shape[2];
  at("pen").value = at("pad").width * Math.min(0.14, 2.5 / (Number.isInteger(side) ? side : 28));
  usePen();
  at("text").value = "";
  chooseLayout();
  at("options").replaceChildren(...optionFields(model));
  at("reset").hidden = !example;
  at("origin").hidden = true;
  takeFiles([]);
  if (hasForm()) at("columns").replaceChildren(...columnFields(model.row, example?.input));
  if (example && !takesFiles()) useExample();
  showEmpty();
}

async function readExample(path, type) {
  const response = await request(path);
  if (type === "application/json") return await response.json();
  const name = type.startsWith("image/") ? "example.png" : "example.wav";
  return { file: new File([await response.blob()], name, { type }) };
}

function useExample() {
  takeFiles(example.file ? [example.file] : []);
  if (hasForm()) at("columns").replaceChildren(...columnFields(model.row, example.input));
  else if (!example.file) at("text").value = textOf(example.input);
  const origin = model.example.is_sample ? "The example of the model: a validation sample." : "Made up of typical values of the training data.";
  at("origin").textContent = origin;
  at("origin").hidden = false;
}

async function showEmpty() {
  const block = element("article", { className: "empty" });
  if (example?.file && model.kind === "image") block.append(await pictureOf(example.file, "Example"));
  else if (example?.file) block.append(player(example.file));
  const texts = { image: "a picture", audio: "a recording", text: "a text", prompt: "a beginning", row: "a row", tensor: "numbers" };
  block.append(element("p", { className: "headline", textContent: "Answers appear here" }));
  block.append(element("p", { className: "quiet", textContent: `Give the model ${texts[model.kind]}, then press Run.` }));
  if (example) {
    const button = element("button", { type: "button", textContent: "Run the example" });
    button.addEventListener("click", () => {
      useExample();
      at("form").requestSubmit();
    });
    block.append(button);
  }
  show(block);
}

function usePen() {
  pad.pen = Number(at("pen").value);
  pad.invert(at("inverted").checked);
}

const PLACES = ["boxes", "mask"]; // of models that look at scenes, which nobody draws
const draws = () => model.kind === "image" && model.channels === 1 && !PLACES.includes(model.answers);
const hasForm = () => model.kind === "row" && fits(model.row);
const takesTexts = () => model.kind === "text" || model.kind === "prompt";
const takesFiles = () => model.kind === "image" || model.kind === "audio";

async function takeFiles(chosen) {
  files = !takesFiles() ? [...chosen].slice(0, 1) : [...chosen];
  at("origin").hidden = true;
  const isChosen = files.length > 0;
  if (!isChosen) at("file").value = "";
  pad.clear();
  at("drawing").hidden = isChosen || !draws();
  at("columns").hidden = isChosen || !hasForm();
  at("text-field").hidden = isChosen || takesFiles() || hasForm();
  at("drop").classList.toggle("small", !takesFiles() || (draws() && !isChosen));
  at("remove").hidden = !isChosen;
  at("drop-text").hidden = isChosen;
  const own = files;
  const blocks = await Promise.all(own.slice(0, MOST_PREVIEWS).map(preview));
  if (own.length > MOST_PREVIEWS) blocks.push(element("span", { textContent: `and ${own.length - MOST_PREVIEWS} more` }));
  if (own === files) at("previews").replaceChildren(...blocks);
}

async function preview(file) {
  const picture = model.kind === "image" ? await pictureOf(file, file.name) : null;
  if (picture) return picture;
  const block = element("span", {}, element("span", { textContent: file.name }));
  if (model.kind === "audio") block.append(player(file));
  return block;
}

// Texts have a layout of their choice; rows and arrays are CSV or JSON.
function layoutOf() {
  return takesTexts() ? at("layout").value : "rows";
}

function chooseLayout() {
  const names = { text: model.kind === "prompt" ? "Prompt" : "Text", lines: "Texts", rows: "Rows" };
  const inputs = model.inputs.map(({ name, shape }) => `${name} (${shape.slice(1).join(" × ") || "a number"})`).join(", ");
  const layout = layoutOf();
  at("text-name").textContent = model.answers === "gaps" && layout === "text" ? "Text, with <mask> for a gap" : names[layout];
  if (model.kind === "tensor") at("text-name").textContent = `Numbers: ${inputs}, as JSON or CSV`;
}

// The body of a request, and for each answer to it the input that its card shows.
async function gather() {
  if (model.kind === "image") {
    if (!files.length && pad.isEmpty) throw new Error(draws() ? "Draw something or choose a picture first." : "Choose a picture first.");
    const pictures = files.length ? files : [new File([await pad.file()], "drawing.png")];
    return { body: formOf(pictures), shown: pictures.map((picture) => ({ name: picture.name, picture })) };
  }
  if (model.kind === "audio") {
    if (!files.length) throw new Error("Choose a recording first.");
    const recordings = await Promise.all(files.map((file) => windowsOf(file, model.audio)));
    return { body: formOf(recordings.flat().map(({ file }) => file)), recordings };
  }
  if (files.length) return { body: formOf(files), inputs: [] };
  if (hasForm()) return asJson([rowOf(at("columns"))]);
  const text = at("text").value;
  if (!text.trim()) throw new Error(takesTexts() ? "Enter a text first." : "Enter rows or choose a file first.");
  const layout = layoutOf();
  if (layout === "text") return { ...asJson([text]), prompt: text };
  if (layout === "lines") return asJson(text.split("\n").filter((line) => line.trim()));
  if (!/^\s*[[{]/.test(text)) return { body: text, type: text.includes("\t") ? "text/tab-separated-values" : "text/csv", inputs: [] };
  return asJson(jsonRows(text, model));
}

async function run() {
  show(); // former answers must not stand below an error
  const asked = await gather();
  const isStream = model.streams && asked.prompt !== undefined;
  const start = performance.now();
  running = new AbortController();
  const response = await request(`${model.path}${isStream ? "/stream" : ""}?${chosenOptions(at("options"))}`, {
    method: "POST",
    body: asked.body,
    headers: asked.type ? { "content-type": asked.type } : {}, // of a form, the browser writes it
    signal: running.signal,
  });
  if (isStream) {
    const block = passage(asked.prompt, "");
    show(element("article", {}, block));
    for await (const piece of piecesOf(response)) block.append(piece);
  } else await showAnswers((await response.json()).answers, asked);
  const seconds = (performance.now() - start) / 1000;
  return `Answered in ${seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`}`;
}

async function showAnswers(answers, { shown, recordings, inputs = [] }) {
  if (recordings) {
    let first = 0;
    const cards = recordings.map((windows, number) => {
      const own = answers.slice(first, (first += windows.length));
      if (windows.length > 1) return recording(own, windows, files[number]);
      return card(own[0], { name: files[number].name, sound: files[number] }, model);
    });
    show(...(await Promise.all(cards)));
  } else if (answers.length > 1 && !shown) show(listed(answers, inputs));
  else show(...(await Promise.all(answers.map((answer, number) => card(answer, shown?.[number] ?? { given: inputs[number] }, model)))));
}

function show(...blocks) {
  at("answers").replaceChildren(...blocks);
}

at("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!model || at("run").disabled) return;
  at("run").disabled = true;
  at("stop").hidden = false;
  await tell(run);
  at("run").disabled = false;
  at("stop").hidden = true;
});
at("model").addEventListener("change", () => tell(chooseModel));
at("token").addEventListener("change", () => tell(loadModels));
at("layout").addEventListener("change", chooseLayout);
at("pen").addEventListener("input", usePen);
at("inverted").addEventListener("change", usePen);
at("clear").addEventListener("click", () => pad.clear());
at("file").addEventListener("change", () => takeFiles(at("file").files));
at("stop").addEventListener("click", () => running.abort());
at("remove").addEventListener("click", () => takeFiles([]));
at("reset").addEventListener("click", useExample);
for (const name of ["dragover", "dragleave", "drop"]) {
  at("drop").addEventListener(name, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") takeFiles(event.dataTransfer.files);
  });
}
at("options").addEventListener("change", () => {
  const isAnswered = at("answers").querySelector("article:not(.empty)") && !model.streams;
  if (isAnswered) at("form").requestSubmit();
});
tell(loadModels);
