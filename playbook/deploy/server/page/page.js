"use strict";
// Tries a model by hand. Names and answers come from the server, so they are only ever shown as text.

const element = (id) => document.getElementById(id);
const COLOURS = ["#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000"];
let models = [];

async function request(path, options = {}) {
  const token = element("token").value;
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  element("token-label").hidden = response.status !== 401 && !token;
  const content = await response.json();
  if (!response.ok) throw new Error(content.error || `status ${response.status}`);
  return content;
}

function say(text, isError = false) {
  element("status").textContent = text;
  element("status").className = isError ? "error" : "";
}

function current() {
  return models[element("model").selectedIndex];
}

async function loadModels() {
  try {
    models = (await request("/v1/models")).models;
    element("model").replaceChildren(...models.map((model) => new Option(`${model.name}, version ${model.version}`)));
    chooseModel();
    say(models.length ? "" : "No model is served.");
  } catch (error) {
    say(error.message, true);
  }
}

function chooseModel() {
  const model = current();
  if (!model) return;
  const takesFile = model.kind === "image";
  element("file-label").hidden = !takesFile;
  element("text-label").hidden = takesFile;
  element("text-name").textContent = model.kind === "tensor" ? "Rows of numbers, separated by commas" : "Text";
  const inputs = Object.entries(model.options).map(([name, kind]) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { name, type: "number", step: kind === "int" ? "1" : "any" });
    label.append(name, input);
    return label;
  });
  element("options").replaceChildren(...inputs);
  element("answers").replaceChildren();
  element("picture").hidden = true;
}

function body(model) {
  if (model.kind === "image") {
    const file = element("file").files[0];
    if (!file) throw new Error("Choose a file first.");
    return { content: file, type: file.type || "application/octet-stream" };
  }
  const text = element("text").value;
  if (!text.trim()) throw new Error("Enter a text first.");
  if (model.kind === "tensor") return { content: text, type: "text/csv" };
  return { content: JSON.stringify({ input: text }), type: "application/json" };
}

async function run(event) {
  event.preventDefault();
  const model = current();
  if (!model) return;
  try {
    const { content, type } = body(model);
    const query = new URLSearchParams();
    for (const input of element("options").querySelectorAll("input")) if (input.value) query.set(input.name, input.value);
    say("Running …");
    const path = `/v1/models/${encodeURIComponent(model.name)}/versions/${model.version}?${query}`;
    const { answers } = await request(path, { method: "POST", body: content, headers: { "content-type": type } });
    element("answers").replaceChildren(...answers.map(table));
    if (model.kind === "image") await draw(content, answers[0]);
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

function table(answer) {
  const rows = document.createElement("table");
  const names = Object.keys(answer).filter((key) => /^class(_\d+)?$/.test(key));
  for (const key of names) {
    const share = answer[key.replace("class", "probability")];
    const meter = document.createElement("meter");
    meter.value = share ?? 0;
    addRow(rows, answer[key], share === undefined ? "" : share.toFixed(4), meter);
  }
  for (const box of answer.boxes ?? []) addRow(rows, box.class, box.score.toFixed(4));
  for (const [key, value] of Object.entries(answer)) {
    if (/^(class|probability)(_\d+)?$/.test(key) || key === "boxes" || key === "mask") continue;
    addRow(rows, key, typeof value === "string" ? value : JSON.stringify(value));
  }
  return rows;
}

function addRow(rows, ...cells) {
  const row = rows.insertRow();
  for (const cell of cells) row.insertCell().append(cell);
}

async function draw(file, answer) {
  const image = await createImageBitmap(file);
  const canvas = element("picture");
  const scale = Math.max(1, Math.round(256 / Math.max(image.width, image.height)));
  Object.assign(canvas, { width: image.width * scale, height: image.height * scale, hidden: false });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  if (answer.mask?.png) {
    const bytes = Uint8Array.from(atob(answer.mask.png), (sign) => sign.charCodeAt(0));
    context.globalAlpha = 0.5;
    context.drawImage(await createImageBitmap(new Blob([bytes])), 0, 0, canvas.width, canvas.height);
    context.globalAlpha = 1;
  }
  const classes = [...new Set((answer.boxes ?? []).map((box) => box.class))];
  context.lineWidth = 2;
  context.font = "14px sans-serif";
  for (const box of answer.boxes ?? []) {
    context.strokeStyle = context.fillStyle = COLOURS[classes.indexOf(box.class) % COLOURS.length];
    context.strokeRect(box.left * scale, box.top * scale, (box.right - box.left) * scale, (box.bottom - box.top) * scale);
    context.fillText(`${box.class} ${box.score.toFixed(2)}`, box.left * scale + 2, box.top * scale + 14);
  }
}

element("form").addEventListener("submit", run);
element("model").addEventListener("change", chooseModel);
element("token").addEventListener("change", loadModels);
loadModels();
