/** Forms: the types of fields. A form gets a value and its path, and returns the value or throws Refused. */

import { Fraction } from "./json.js";
import { Refused } from "./refusal.js";

function wrong(path, expected, value) {
  throw new Refused(`${path ? `${path}: ` : ""}expected ${expected}, got ${kindOf(value)}`);
}

function kindOf(value) {
  if (value === null) return "null";
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return "a list";
  if (value instanceof Fraction) return "a number that is not an integer";
  return { string: "a text", number: "an integer", bigint: "an integer", boolean: "a boolean", object: "an object" }[
    typeof value
  ];
}

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Fraction);

export const text = (value, path) => (typeof value === "string" ? value : wrong(path, "a text", value));

export const integer = (value, path) =>
  typeof value === "number" || typeof value === "bigint" ? value : wrong(path, "an integer", value);

/** A non-negative integer that every JSON parser represents exactly. */
export function exact(number, name) {
  if (typeof number !== "number" || number < 0) throw new Refused(`${name}: must be 0 to 2^53 - 1`);
  return number;
}

export const anyObject = (value, path) => (isObject(value) ? value : wrong(path, "an object", value));

export const oneOf =
  (...values) =>
  (value, path) =>
    values.includes(value) ? value : wrong(path, `one of ${values.join(", ")}`, value);

export const orNull = (form) => (value, path) => (value === null ? null : form(value, path));

export const list = (form, size) => (value, path) => {
  if (!Array.isArray(value)) wrong(path, "a list", value);
  if (size !== undefined && value.length !== size) throw new Refused(`${path}: expected a list of ${size}`);
  return value.map((item, i) => form(item, `${path}[${i}]`));
};

/** A field that may be missing, with its default. */
export const optional = (form, absent) => Object.assign((value, path) => form(value, path), { absent });

/** An object with these fields; others are ignored. */
export const struct =
  (fields) =>
  (value, path = "") => {
    if (!isObject(value)) wrong(path, "an object", value);
    const found = {};
    for (const [name, form] of Object.entries(fields)) {
      const inner = path ? `${path}.${name}` : name;
      if (Object.hasOwn(value, name)) found[name] = form(value[name], inner);
      else if ("absent" in form) found[name] = form.absent;
      else throw new Refused(`${inner}: missing`);
    }
    return found;
  };
