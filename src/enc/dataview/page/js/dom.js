// Creates elements. Text from a log is untrusted: it is inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// h("a", {href: "#/", class: "x", onclick: f}, "text", element, [more])
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
}

export function clear(element) {
  element.replaceChildren();
  return element;
}

let turn = 0;
export function unique(prefix) {
  turn += 1;
  return `${prefix}-${turn}`;
}

// Announces a text to screen readers.
export function say(text) {
  document.getElementById("said").textContent = text;
}

export function notice(text, kind = "", ...more) {
  return h("div", { class: `notice ${kind}` }, h("p", {}, text), ...more);
}

export function section(title, ...children) {
  const id = unique("part");
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}
