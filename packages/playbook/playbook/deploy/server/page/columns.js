// A row of a table as a form, a field for each column.

import { element } from "/page/dom.js";

const LARGEST_FORM = 100; // columns; wider tables are pasted or dropped

export const fits = (row) => Object.keys(row?.properties ?? {}).length <= LARGEST_FORM;

export function columnFields(row, values) {
  return Object.entries(row.properties).map(([name, { type, examples }], number) => {
    const isNumber = type.includes("number") && !type.includes("string");
    const input = element("input", { name, type: isNumber ? "number" : "text", step: "any" });
    input.placeholder = "missing";
    input.value = values?.[name] ?? "";
    const label = element("label", {}, name, input);
    if (!isNumber && examples.length > 1) {
      const list = element("datalist", { id: `values-${number}` }, ...examples.map((value) => element("option", { value })));
      input.setAttribute("list", list.id);
      label.append(list);
    }
    return label;
  });
}

// The row that was entered; an empty field is a missing value.
export function rowOf(block) {
  const fields = [...block.querySelectorAll("input")];
  const value = (input) => (input.value === "" ? null : input.type === "number" ? Number(input.value) : input.value);
  return Object.fromEntries(fields.map((input) => [input.name, value(input)]));
}
