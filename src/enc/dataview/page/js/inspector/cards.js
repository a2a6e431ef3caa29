// The inputs: open, drop or paste a file; request an event; enter the trusted key.

import { h } from "../dom.js";

const plain = { spellcheck: "false", autocomplete: "off" };

export function fileCard(checker) {
  const input = h("input", { type: "file", id: "proof-file", accept: ".json,application/json", class: "file" });
  input.addEventListener("change", () => {
    if (input.files.length) checker.file(input.files[0], input.files.length);
    input.value = ""; // so that the same file can be opened again
  });
  const label = h("label", { for: "proof-file" }, "Open a file, or drop it anywhere on this page");
  return h(
    "section",
    { class: "card", "aria-labelledby": "proof-in" },
    h("h2", { id: "proof-in" }, "A proof file"),
    h("div", { class: "drop" }, label, input),
    pasteForm(checker),
  );
}

function pasteForm(checker) {
  const hint = "A file from “enc prove”, evidence that a client stored against a node, an event, or a receipt.";
  const describes = { placeholder: '{"format": "enc-proof", …', "aria-describedby": "proof-text-hint" };
  const area = h("textarea", { id: "proof-text", rows: "7", ...plain, ...describes });
  const clear = () => {
    area.value = "";
    area.focus();
  };
  const check = (event) => {
    event.preventDefault();
    checker.text(area.value, "the pasted text");
  };
  return h(
    "form",
    { onsubmit: check },
    h("label", { for: "proof-text" }, "… or paste one"),
    area,
    h("p", { class: "hint", id: "proof-text-hint" }, hint),
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit" }, "Check the text"),
      h("button", { type: "button", class: "quiet", onclick: clear }, "Clear"),
    ),
  );
}

export function askCard(checker, kept, id) {
  return h(
    "section",
    { class: "card", "aria-labelledby": "proof-ask" },
    h("h2", { id: "proof-ask" }, "An event that is served here"),
    eventForm(checker, kept, id),
    h("h2", {}, "Trusted sequencer"),
    ...keyField(checker, kept),
  );
}

function eventForm(checker, kept, id) {
  const hint = "64 hex characters. The server is asked for its proof; what it answers is checked here as any file is.";
  const event = h("input", { ...oneLine("proof-event"), value: id });
  const go = (submitted) => {
    submitted.preventDefault();
    const wanted = event.value.trim().toLowerCase();
    const to = `#/proof/${encodeURIComponent(wanted)}`;
    if (wanted === "" || location.hash === to) return checker.ask(wanted);
    kept.asked = wanted;
    location.hash = to; // so that the address can be bookmarked
  };
  return h(
    "form",
    { onsubmit: go },
    h("label", { for: "proof-event" }, "Event id"),
    event,
    h("p", { class: "hint", id: "proof-event-hint" }, hint),
    h("div", { class: "row" }, h("button", { type: "submit" }, "Ask the server")),
  );
}

function keyField(checker, kept) {
  const hint =
    "A proof is a statement of the key that signed it. Enter the node's key, from another source than " +
    "the file: a statement of any other key is then shown in red.";
  const key = h("input", { ...oneLine("proof-key"), value: kept.expected });
  key.addEventListener("change", () => {
    kept.expected = key.value.trim();
    checker.again();
  });
  return [
    h("label", { for: "proof-key" }, "Sequencer's key (optional)"),
    key,
    h("p", { class: "hint", id: "proof-key-hint" }, hint),
  ];
}

const oneLine = (id) => ({
  id,
  type: "text",
  maxlength: "200",
  class: "mono",
  "aria-describedby": `${id}-hint`,
  ...plain,
});

// Anywhere on the page: otherwise the browser would open the dropped file instead.
export function dropping(root, checker, signal) {
  const on = (kind, work) => document.addEventListener(kind, work, { signal });
  on("dragover", (event) => {
    event.preventDefault();
    root.classList.add("dragging");
  });
  on("dragleave", (event) => {
    if (event.relatedTarget === null) root.classList.remove("dragging");
  });
  on("drop", (event) => {
    event.preventDefault();
    root.classList.remove("dragging");
    const { files } = event.dataTransfer;
    const text = event.dataTransfer.getData("text");
    if (files.length) checker.file(files[0], files.length);
    else if (text) checker.text(text, "the dropped text");
  });
}
