// Bodies of requests.

export function formOf(chosen) {
  const form = new FormData(); // its answers and refusals are by the names of the files
  for (const file of chosen) form.append("file", file, file.name);
  return form;
}

export function asJson(inputs) {
  return { body: JSON.stringify({ inputs }), type: "application/json", inputs };
}

// Inputs in JSON: several in a list, unless the list is the array of one.
export function jsonRows(text, model) {
  let content;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Error(`The numbers are not valid JSON: ${error.message}`);
  }
  if (!Array.isArray(content)) return [content];
  const depth = (value) => (Array.isArray(value) ? 1 + depth(value[0]) : typeof value === "number" ? 0 : NaN);
  return model.kind === "tensor" && depth(content) === model.inputs[0]?.shape.length - 1 ? [content] : content;
}

// An example as it is typed: a text, the only text of a row, or JSON.
export function textOf(input) {
  const values = typeof input === "object" ? Object.values(input) : [input];
  return values.length === 1 && typeof values[0] === "string" ? values[0] : JSON.stringify(input);
}
