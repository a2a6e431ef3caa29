// The proof inspector: checks every step from an event to the signed head in the browser, for a file or an event id.
// It asks the server only for an event by its id, and verifies the answer like any file.

import { h, say } from "./dom.js";
import { askCard, dropping, fileCard } from "./inspector/cards.js";
import { Checker } from "./inspector/checker.js";

const kept = { expected: "", asked: "" }; // the entered values, while the page is open
const LEAD =
  "Open a proof and watch every hash, path and signature being checked, from the event up to the head that its " +
  "sequencer signed. The checks run in this browser; no server is trusted with them, and files that you open here stay here.";

export async function inspector(root, params) {
  const checker = new Checker(await import("./proof/inspect.js"), kept, params.signal);
  root.append(
    h("h1", {}, "Proof inspector"),
    h("p", { class: "lead" }, LEAD),
    h("div", { class: "inspector-in" }, fileCard(checker), askCard(checker, kept, params.id)),
    checker.place,
  );
  dropping(root, checker, params.signal);
  if (params.id) await checker.ask(params.id);
  if (params.id && kept.asked === params.id) requestAnimationFrame(() => focusOn(checker.place)); // once it is on the page
  kept.asked = "";
}

function focusOn(place) {
  const heading = place.querySelector("h2");
  if (!heading?.isConnected) return;
  heading.focus();
  say(heading.textContent);
}
