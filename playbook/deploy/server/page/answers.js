// Shows answers: probabilities as bars, boxes and masks over the picture, texts, and tables of the rest.

const LONGEST_VALUE = 500; // characters of a value that is shown as JSON
const CLASS = /^class(_\d+)?$/;
const DRAWN = /^((class|probability)(_\d+)?|boxes|mask|area|prompt|text|choices)$/;
const CHOICE = /(.*?) (\d\.\d\d)(, | \| |$)/gs; // a word for a gap with its probability

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

export async function card(answer, picture, model) {
  const colourOf = (name) => model.colours[model.classes.indexOf(name)] ?? "#c00000";
  const block = element("article");
  const layers = [picture && (await load(URL.createObjectURL(picture)))];
  if (answer.mask?.png) layers.push(await load(`data:image/png;base64,${answer.mask.png}`));
  const visible = layers.filter(Boolean);
  if (visible.length) block.append(figure(visible, answer.boxes ?? [], colourOf));
  if (answer.mask && visible.length > 1) block.append(opacity(visible[1]));
  if ("text" in answer) block.append(passage(answer.prompt ?? "", answer.text));
  if (answer.boxes?.length === 0) block.append("No object was found.");
  block.append(...bars(answer, colourOf), ...gaps(answer.choices ?? ""));
  const rest = Object.entries(answer).filter(([key]) => !DRAWN.test(key));
  if (rest.length) block.append(table(["output", "value"], rest));
  return block;
}

export function tableOf(answers, inputs) {
  const keys = [...new Set(answers.flatMap(Object.keys))].filter((key) => !/^probability(_\d+)?$/.test(key));
  const rows = answers.map((answer, number) => [
    inputs[number] ?? number + 1,
    ...keys.map((key) => (CLASS.test(key) ? `${answer[key]} ${percent(shareOf(answer, key))}` : answer[key])),
  ]);
  return table([inputs.length ? "input" : "row", ...keys], rows);
}

export function passage(prompt, text) {
  return element("p", { className: "text" }, element("span", { className: "prompt", textContent: prompt }), text);
}

async function load(address) {
  const image = element("img", { src: address, alt: "" });
  try {
    await image.decode();
  } catch {
    return null; // such as a TIFF, which only the server reads
  } finally {
    URL.revokeObjectURL(address);
  }
  return image;
}

function figure(layers, boxes, colourOf) {
  const { naturalWidth: width, naturalHeight: height } = layers[0];
  const block = element("figure", { className: Math.max(width, height) < 256 ? "small" : "" }, ...layers);
  const side = layers.length > 1 || boxes.length ? 30 : 10;
  block.style.maxWidth = `${side * Math.min(1, width / height)}rem`;
  for (const box of [...boxes].reverse()) { // the surest one on top
    const label = element("span", { textContent: `${box.class} ${box.score.toFixed(2)}` });
    const frame = element("div", { className: box.left > 0.7 * width ? "box right" : "box" }, label);
    frame.style.left = percent(box.left / width);
    frame.style.top = percent(box.top / height);
    frame.style.width = percent((box.right - box.left) / width);
    frame.style.height = percent((box.bottom - box.top) / height);
    frame.style.borderColor = label.style.backgroundColor = colourOf(box.class);
    label.style.color = inkOn(colourOf(box.class));
    block.append(frame);
  }
  return block;
}

function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
  return red + green + blue > 3 * 128 ? "black" : "white";
}

function opacity(mask) {
  const slider = element("input", { type: "range", min: 0, max: 100, value: 50 });
  const show = () => (mask.style.opacity = percent(slider.value / 100));
  slider.addEventListener("input", show);
  show();
  return element("label", { className: "tools" }, "Opacity ", slider);
}

function bars(answer, colourOf) {
  const classes = Object.keys(answer).filter((key) => CLASS.test(key));
  const areas = Object.entries(answer.area ?? {}).filter(([, share]) => share > 0);
  areas.sort((one, other) => other[1] - one[1]);
  return [
    ...classes.map((key) => bar(answer[key], shareOf(answer, key))),
    ...(answer.boxes ?? []).map((box) => bar(box.class, box.score, colourOf(box.class))),
    ...areas.map(([name, share]) => bar(name, share, colourOf(name))),
  ];
}

function bar(name, share, colour) {
  const label = element("span", {}, String(name));
  if (colour) {
    const swatch = element("i", { className: "swatch" });
    swatch.style.backgroundColor = colour;
    label.prepend(swatch, " ");
  }
  const line = element("progress", { max: 1, value: share ?? 0 });
  return element("div", { className: "bar" }, label, line, element("span", { className: "number" }, percent(share)));
}

function gaps(choices) {
  let number = 0;
  let separator = " | ";
  return [...choices.matchAll(CHOICE)].flatMap(([, word, share, next]) => {
    const isFirst = separator === " | ";
    separator = next;
    const title = isFirst ? [element("h3", { textContent: `Gap ${++number}` })] : [];
    return [...title, bar(word, Number(share))];
  });
}

function shareOf(answer, key) {
  return answer[key.replace("class", "probability")];
}

function percent(share) {
  return share === undefined ? "" : `${(100 * share).toFixed(1)}%`;
}

function table(names, rows) {
  const block = element("table");
  block.createTHead().insertRow().append(...names.map((name) => element("th", { textContent: name })));
  const body = block.createTBody();
  for (const row of rows) body.insertRow().append(...row.map((value) => element("td", { textContent: written(value) })));
  return element("div", { className: "wide" }, block);
}

function written(value) {
  if (typeof value === "string") return value;
  const short = (_, entry) => (typeof entry === "number" ? Number(entry.toPrecision(5)) : entry);
  return (JSON.stringify(value, short) ?? "").slice(0, LONGEST_VALUE);
}
