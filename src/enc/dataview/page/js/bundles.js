// Finds the bundles of a log. They depend only on the events in order (docs/protocol.md, section 8.1).

const SIZE = 256, TIMEOUT = 5000;

// {size, timeout} of a Manifest's content, with the protocol's defaults.
export function bundling(manifest) {
  const said = manifest && typeof manifest.bundle === "object" && manifest.bundle ? manifest.bundle : {};
  const whole = (value, other) => (Number.isSafeInteger(value) && value > 0 ? value : other);
  return { size: whole(said.size, SIZE), timeout: whole(said.timeout, TIMEOUT) };
}

// Reads events in order of seq: {seq, ms, type, sequencer}. `closed` grows; `open` is the last, or null.
export class Bundles {
  constructor({ size, timeout }, at = { index: 0, open: null, next: 0 }) {
    this.size = size;
    this.timeout = timeout;
    this.index = at.index; // the number of the open bundle, or of the next
    this.open = at.open;
    this.next = at.next; // the expected seq
    this.closed = [];
  }

  // Returns false and changes nothing if an event is missing before this one.
  take(event) {
    if (event.seq !== this.next) return false;
    this.next += 1;
    if (this.open && event.ms >= this.open.first_ms + this.timeout) this.#close("time");
    if (this.open && event.sequencer !== this.open.sequencer) this.#close("another sequencer");
    this.open ??= { index: this.index, first: event.seq, first_ms: event.ms, sequencer: event.sequencer, count: 0 };
    this.open.count += 1;
    this.open.last = event.seq;
    this.open.last_ms = event.ms;
    if (this.open.count >= this.size) this.#close("size");
    else if (event.type === "Migrate") this.#close("a Migrate");
    return true;
  }

  #close(by) {
    this.closed.push({ ...this.open, by });
    this.index += 1;
    this.open = null;
  }
}
