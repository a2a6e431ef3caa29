// The dialog to enter or remove a token. The token is stored only in this tab, until it is closed.

import { hold, holder, Refused } from "./api.js";
import { h } from "./dom.js";

// Returns whether something changed. `check(token)` throws if the server rejects it.
export function askToken(check) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "bad", role: "alert" });
    const input = h("input", { id: "token-text", type: "password", autocomplete: "off", spellcheck: "false", required: true, maxlength: 512, class: "wide" });
    const done = (changed) => {
      dialog.close();
      dialog.remove();
      resolve(changed);
    };
    const drop = holder() && h("button", { type: "button", class: "quiet", onclick: () => (hold(""), done(true)) }, "Remove the token");
    const form = h(
      "form", { onsubmit: (event) => (event.preventDefault(), take()) },
      h("h2", { id: "token-title" }, "Read with a token"),
      h("p", {}, "A token gives access to views. It is stored only in this tab, until the tab is closed."),
      h("label", { for: "token-text" }, "Token"), input, problem,
      h("div", { class: "row end" }, drop, h("button", { type: "button", class: "quiet", onclick: () => done(false) }, "Cancel"),
        h("button", { type: "submit" }, "Use it")),
    );
    const dialog = h("dialog", { "aria-labelledby": "token-title", oncancel: () => done(false) }, form);

    async function take() {
      const token = input.value.trim();
      try {
        if (!/^[!-~]+$/.test(token)) throw new Refused("A token consists of printable characters without spaces.");
        await check(token);
        hold(token);
        done(true);
      } catch (error) {
        problem.textContent = error instanceof Refused ? error.message : "The token could not be checked.";
        input.focus();
      }
    }

    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
