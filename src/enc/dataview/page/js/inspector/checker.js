// Checks an input and shows the result. The last input is kept, to check it again if another key is expected.

import { h, say } from "../dom.js";
import { fromServer } from "./lookup.js";
import { report } from "./report.js";

export class Checker {
  constructor(checks, kept, signal) {
    Object.assign(this, { checks, kept, signal });
    this.place = h("div", { class: "verdict-place" });
    this.turn = 0;
    this.again = () => {};
  }

  // Clears the old result first, so that no verdict is mistaken for that of another file. Returns a function that
  // tells whether the work that begins here is still the latest.
  begin() {
    this.turn += 1;
    const mine = this.turn;
    this.again = () => {};
    this.place.replaceChildren();
    return () => mine === this.turn && !this.signal.aborted;
  }

  text(text, source) {
    this.begin();
    this.check((options) => this.checks.inspectText(text, options), { source });
  }

  async file(file, count = 1) {
    const { MAX_BYTES } = this.checks;
    const isLatest = this.begin();
    if (count > 1) return this.tell("These are several files: open one at a time.");
    if (file.size > MAX_BYTES) {
      const size = `${MAX_BYTES / 1024 / 1024} MiB`;
      return this.tell(`${file.name} is over ${size}, more than this page reads. “enc verify FILE” reads larger ones.`);
    }
    try {
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (isLatest()) this.check((options) => this.checks.inspectBytes(bytes, options), { source: file.name });
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      if (isLatest()) this.tell(`${file.name} cannot be read: it may be a folder, or gone.`);
    }
  }

  async ask(id) {
    const isLatest = this.begin();
    const { asked, value, why } = await fromServer(id, this.signal);
    if (!isLatest()) return;
    if (!value) return this.tell(why);
    this.check((options) => this.checks.inspectValue(value, options), { source: "this server", asked, why, value });
  }

  check(work, more) {
    this.again = () => this.show(work({ ...more, expected: this.kept.expected }), more);
    this.again();
    this.focus();
  }

  // Shows a sentence instead of a verdict.
  tell(why) {
    this.again = () => {};
    this.show({ verdict: "unreadable", why, groups: [], proved: [], notProved: [] });
    this.focus();
  }

  show(found, more = {}) {
    this.place.replaceChildren(report(found, more));
    say(this.heading.textContent);
  }

  get heading() {
    return this.place.querySelector("h2");
  }

  focus() {
    const { top } = this.place.getBoundingClientRect();
    this.heading.focus({ preventScroll: top >= 0 && top < innerHeight / 2 });
  }
}
