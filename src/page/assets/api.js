// The JSON of the process behind this page. URLs are relative to where the page is mounted.

/** Where the page is. Its address may have a user and a password, with which nothing is fetched. */
const base = new URL(document.baseURI);
base.username = base.password = "";

/** How long an answer may take. */
const PATIENCE = 5_000;

/** The process cannot be reached, or something else answers in its place. */
export class NoAnswer extends Error {}

/** The process says in a sentence why not. */
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** What a view shows now. */
export function read(view) {
  // A URL that is asked once is not worth a place in the browser's cache.
  return ask(view, { cache: view.includes("?") ? "no-store" : "no-cache" });
}

/** Asks about a key or changes something. The error is the sentence of the server. */
export function send(command, body) {
  return ask(command, {
    method: "POST",
    cache: "no-store",
    headers: { "content-type": "application/json", "x-tidegate": "1" },
    body: JSON.stringify(body),
  });
}

async function ask(path, options) {
  let response, text;
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    response = await fetch(new URL(`api/${path}`, base), { ...options, signal });
    text = await response.text();
  } catch {
    throw new NoAnswer("This process does not answer.");
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    const status = `${response.status} ${response.statusText}`.trim();
    throw new NoAnswer(`This process does not answer; something else does: ${status}.`);
  }
  const { ok, status } = response;
  if (!ok) throw new Refusal(answer?.error ?? `The answer was ${status}.`, status);
  return answer;
}
