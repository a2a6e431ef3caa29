/** An exact JSON parser: JSON.parse rounds large numbers, reads 1.0 as 1, and hides repeated keys.
 *
 * A text becomes a string, an object has no prototype, an integer becomes a number, or a BigInt if it is too large for
 * one, and a number with a point or an exponent becomes a Fraction.
 */

import { Refused } from "./refusal.js";

export const MAX_DEPTH = 64;

export class Fraction {
  constructor(text) {
    this.text = text;
    this.value = Number(text);
  }
}

/** Thrown for a text that two parsers could read differently. */
export class Doubtful extends Refused {}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const WORDS = [
  ["true", true],
  ["false", false],
  ["null", null],
];

/** `strict`: accept only integers that every parser represents exactly, as in contents. `vast`: accept any size. */
export function parseJson(text, { strict = false, vast = false } = {}) {
  if (!text.isWellFormed()) throw new Refused("not JSON: it holds half a surrogate pair");
  const reader = new Reader(text, strict, vast);
  const value = reader.value(0);
  reader.space();
  if (reader.at < text.length) reader.fail("something comes after its end");
  return value;
}

class Reader {
  constructor(text, strict, vast) {
    this.text = text;
    this.strict = strict;
    this.vast = vast;
    this.at = 0;
  }

  fail(what) {
    throw new Refused(`not JSON: ${what}, at character ${this.at + 1}`);
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at += found[0].length;
    return found;
  }

  space() {
    this.match(SPACE);
  }

  /** Returns whether the next character is this one; if so, skips it. */
  take(character) {
    const is = this.text[this.at] === character;
    if (is) this.at += 1;
    return is;
  }

  expect(character) {
    if (!this.take(character)) this.fail(this.at < this.text.length ? `expected ${character}` : "it ends too early");
  }

  value(depth) {
    if (depth > MAX_DEPTH) throw new Doubtful(`nested deeper than ${MAX_DEPTH} levels`);
    this.space();
    if (this.take("{")) return this.object(depth);
    if (this.take("[")) return this.list(depth);
    if (this.take('"')) return this.string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    return this.number();
  }

  number() {
    const found = this.match(NUMBER);
    if (!found) this.fail(this.at < this.text.length ? "expected a value" : "it ends too early");
    if (/[0-9]/.test(this.text[this.at] ?? "")) this.fail("a number begins with 0");
    const number = Number(found[0]);
    if (found[1] !== undefined || found[2] !== undefined) {
      if (!Number.isFinite(number) && !this.vast) this.fail("a number is too large");
      return new Fraction(found[0]);
    }
    if (Number.isSafeInteger(number)) return number + 0; // -0 is 0
    if (this.strict) this.fail("an integer is above 2^53 - 1");
    return BigInt(found[0]);
  }

  list(depth) {
    const items = [];
    this.space();
    if (this.take("]")) return items;
    for (;;) {
      items.push(this.value(depth + 1));
      this.space();
      if (this.take("]")) return items;
      this.expect(",");
    }
  }

  object(depth) {
    const found = Object.create(null);
    this.space();
    if (this.take("}")) return found;
    if (depth >= MAX_DEPTH) throw new Doubtful(`nested deeper than ${MAX_DEPTH} levels`);
    for (;;) {
      this.space();
      this.expect('"');
      const key = this.string();
      if (key in found) throw new Doubtful(`the key ${JSON.stringify(key.slice(0, 40))} is repeated`);
      this.space();
      this.expect(":");
      found[key] = this.value(depth + 1);
      this.space();
      if (this.take("}")) return found;
      this.expect(",");
    }
  }

  string() {
    let text = "";
    for (;;) {
      text += this.match(PLAIN)[0];
      if (this.take('"')) break;
      if (!this.take("\\"))
        this.fail(this.at < this.text.length ? "a control character in a string" : "it ends too early");
      text += this.escape();
    }
    if (!text.isWellFormed()) this.fail("half a surrogate pair in a string");
    return text;
  }

  escape() {
    const letter = this.text[this.at];
    this.at += 1;
    if (letter !== undefined && Object.hasOwn(ESCAPES, letter)) return ESCAPES[letter];
    const digits = this.text.slice(this.at, this.at + 4);
    if (letter !== "u" || !/^[0-9a-fA-F]{4}$/.test(digits)) this.fail("an escape that JSON does not know");
    this.at += 4;
    return String.fromCharCode(Number.parseInt(digits, 16));
  }
}
