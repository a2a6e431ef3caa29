// Requests to the server of this page, with the rights of the reader's token, or anonymous without one.

const KEY = "enc-token";
const PATIENCE_MS = 30_000;
let kept = null; // the list of views, loading or loaded, until `forget`

// An error whose `message` can be shown to the reader.
export class Refused extends Error {
  constructor(message, code = "", status = 0) {
    super(message);
    this.name = "Refused";
    this.code = code;
    this.status = status;
  }
}

export function holder() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function hold(token) {
  forget();
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    throw new Refused("This browser does not allow this page to store data, so a token cannot be used.");
  }
}

export function forget() {
  kept = null;
}

export function address(path, parameters = {}) {
  const url = new URL(path, document.baseURI.split("#")[0]);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  return url;
}

// Returns a successful response, or throws. `token`: instead of the stored one.
export async function fetched(path, parameters = {}, { signal, token = holder() } = {}) {
  const signals = [AbortSignal.timeout(PATIENCE_MS), ...(signal ? [signal] : [])];
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  let answer;
  try {
    answer = await fetch(address(path, parameters), {
      headers, signal: AbortSignal.any(signals), credentials: "omit", redirect: "error", cache: "no-cache",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const slow = error.name === "TimeoutError";
    throw new Refused(slow ? "The server took too long to answer." : "The server does not answer: it may have stopped, or the network is down.");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function ask(path, parameters = {}, options = {}) {
  const answer = await fetched(path, parameters, options);
  try {
    return await answer.json();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused("The server's answer was incomplete or invalid.");
  }
}

const SAID = {
  QUERY_TOO_SLOW: "The query timed out because no index supports it: filter or order by the key.",
  VIEW_NOT_FOUND: "There is no view of this name, or you may not read it.",
  UNAVAILABLE: "The server is busy, or its database does not answer. Try again in a moment.",
};

async function refusal(answer) {
  let wire = {};
  try {
    wire = await answer.json();
  } catch {
    // not JSON: a proxy in between answered
  }
  const code = typeof wire?.code === "string" ? wire.code : "";
  const message = typeof wire?.message === "string" ? wire.message : "";
  if (answer.status === 401 && holder()) return new Refused(`The token is not accepted here: ${message}`, code, 401);
  return new Refused(SAID[code] ?? (message ? `The server says: ${message}` : `The server answered ${answer.status}.`), code, answer.status);
}

// The readable views, by name.
export function views(options = {}) {
  kept ??= ask("views", {}, options).then((found) => new Map(found.views.map((view) => [view.name, view])));
  return kept;
}

// A page of rows: {rows, next, complete}.
export function rows(view, parameters = {}, options = {}) {
  return ask(`views/${encodeURIComponent(view)}`, parameters, options);
}

// As `rows`, but null if the view does not exist or is not readable.
export async function rowsIf(view, parameters = {}, options = {}) {
  return (await views(options)).has(view) ? rows(view, parameters, options) : null;
}

export function absent(view) {
  return holder()
    ? `The view “${view}” is not published yet, or this token may not read it.`
    : `The view “${view}” is not published yet, or not public: a token may give access to it.`;
}
