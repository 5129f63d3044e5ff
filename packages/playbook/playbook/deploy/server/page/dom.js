// Builds elements; every text becomes a text node, so that none is read as markup.

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

export function percent(share) {
  return share === undefined ? "" : `${(100 * share).toFixed(1)} %`;
}

export function rounded(number) {
  return Number.isInteger(number) ? String(number) : String(Number(number.toPrecision(5)));
}

export function table(names, rows) {
  const block = element("table");
  const isNumber = names.map((_, column) => rows.every((row) => typeof row[column] === "number"));
  const cell = (kind) => (text, column) => element(kind, { textContent: text, className: isNumber[column] ? "number" : "" });
  block.createTHead().insertRow().append(...names.map(cell("th")));
  const body = block.createTBody();
  for (const row of rows) body.insertRow().append(...row.map(written).map(cell("td")));
  return element("div", { className: "scroll" }, block);
}

const LONGEST_VALUE = 500; // characters of a value that is shown as JSON

function written(value) {
  if (typeof value === "string") return value;
  if (typeof value === "number") return rounded(value);
  const short = (_, entry) => (typeof entry === "number" ? Number(entry.toPrecision(5)) : entry);
  return (JSON.stringify(value, short) ?? "").slice(0, LONGEST_VALUE);
}
