// The shell: routes addresses to pages, and handles the token and the colours.
//
// A page is a function (root, params) that fills `root`, an empty element, and may be async. `params.id` is the part
// after the page's name in the address ("#/proof/ID"), decoded, or ""; `params.query` is a URLSearchParams of the part
// after a "?"; `params.signal` is aborted once another page is shown. Errors are shown as a sentence.

import { ask, forget, holder, Refused } from "./api.js";
import { clear, h, say } from "./dom.js";
import { enclave } from "./enclave.js";
import { enclaves } from "./enclaves.js";
import { overview } from "./overview.js";
import { registry } from "./registry.js";
import { askToken } from "./token.js";
import { view } from "./view.js";
import { views } from "./views.js";

const PLACES = {
  overview: { title: "Overview", page: overview },
  enclaves: { title: "Enclaves", page: enclaves },
  enclave: { title: "Enclave", page: enclave, under: "enclaves" },
  views: { title: "Views", page: views },
  view: { title: "View", page: view, under: "views" },
  registry: { title: "Registry", page: registry },
  proof: { title: "Proof inspector", page: inspector },
};
const SINGLE = { enclaves: "enclave", views: "view" };

const main = document.getElementById("main");
let shown = null; // the AbortController of the page that is shown
let last = null; // the place that was shown last

export function parseHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [first = "", ...rest] = path.split("/");
  let id;
  try {
    id = decodeURIComponent(rest.join("/"));
  } catch {
    return null; // a malformed "%" escape
  }
  const name = first === "" ? "overview" : first;
  const place = id !== "" && name in SINGLE ? SINGLE[name] : name;
  const known = Object.hasOwn(PLACES, place) && (first === "" || place !== "overview") && !(name === place && isSingle(name));
  return known ? { place, id, query: new URLSearchParams(query) } : null;
}

function isSingle(name) {
  return Object.values(SINGLE).includes(name);
}

async function show() {
  if (location.hash === "#main") return; // the skip link
  shown?.abort();
  forget(); // rights are looked up again for each page
  const mine = (shown = new AbortController());
  const found = parseHash(location.hash);
  const place = found && PLACES[found.place];
  const title = place?.title ?? "Nothing here";
  begin(title, found ? (place.under ?? found.place) : "");
  let fresh = h("div", { class: "page" });
  try {
    if (found === null) throw new Refused("There is no page at this address.");
    await place.page(fresh, { id: found.id, query: found.query, signal: mine.signal });
    if (!fresh.querySelector("h1")) fresh.prepend(h("h1", {}, title));
  } catch (error) {
    if (mine.signal.aborted) return;
    fresh = h("div", { class: "page" }, h("h1", {}, title), failure(error));
  }
  if (!mine.signal.aborted) end(fresh);
}

// Loaded on demand, because it includes the cryptography.
async function inspector(root, params) {
  let loaded;
  try {
    loaded = await import("./inspector.js");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new Refused("The server does not answer: the inspector could not be loaded. Reload the page.");
  }
  return loaded.inspector(root, params);
}

let focused = null; // the focused element of a page that is redrawn with another filter or cursor

function begin(title, place) {
  const path = location.hash.split("?")[0];
  const isSame = path === last;
  focused = isSame && main.contains(document.activeElement) ? document.activeElement.id : null;
  main.dataset.state = "loading";
  main.setAttribute("aria-busy", "true");
  mark(place);
  if (isSame) return; // the old content stays until the new one is ready
  document.title = `${title} · ENC DataView`;
  clear(main).append(h("div", { class: "page" }, h("h1", {}, title), h("p", { class: "loading" }, "Loading…")));
  if (last !== null) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  last = path;
}

function end(fresh) {
  clear(main).append(fresh);
  const heading = fresh.querySelector("h1").textContent;
  document.title = `${heading} · ENC DataView`;
  if (focused !== null) (document.getElementById(focused || "main") ?? main).focus({ preventScroll: true });
  main.removeAttribute("aria-busy");
  main.dataset.state = "ready";
  say(heading);
}

function failure(error) {
  const why = error instanceof Refused ? error.message : "This page could not be shown because of an internal error.";
  if (!(error instanceof Refused)) console.error(error);
  const again = h("button", { type: "button", onclick: show }, "Try again");
  return h("div", { class: "notice bad", role: "alert" }, h("p", {}, why), again);
}


function mark(place) {
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.place === place) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// Token

function tellHolder() {
  const button = document.getElementById("token");
  button.textContent = holder() ? "Reading with a token" : "Reading without a token";
}

document.getElementById("token").addEventListener("click", async () => {
  if (await askToken((token) => ask("views", {}, { token }))) {
    tellHolder();
    show();
  }
});

// Colours

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme;
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
  try {
    localStorage.setItem("enc-theme", theme.value);
  } catch {
    // storage may be forbidden: then the choice lasts until the page is left
  }
});

addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address decides which page is shown
  main.focus();
  main.scrollIntoView();
});
tellHolder();
show();
