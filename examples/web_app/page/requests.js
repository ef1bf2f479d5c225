// Requests of this page, not too many simultaneously.

import { now } from "./words.js";

/** A browser opens six connections to a server: more requests would wait without our knowing. */
const AT_ONCE = 5;
/** How long an answer may take. */
export const PATIENCE = 15_000;

/** At most so many simultaneously; the others wait here, in their order. */
export const slots = {
  free: AT_ONCE,
  waiting: [],
  async take() {
    if (this.free > 0) this.free -= 1;
    else await new Promise((go) => this.waiting.push(go));
  },
  give() {
    const next = this.waiting.shift();
    if (next) next();
    else this.free += 1;
  },
};

export async function ask(url, headers, method = "GET") {
  const signal = AbortSignal.timeout(PATIENCE);
  const response = await fetch(location.origin + url, { method, headers, cache: "no-store", signal });
  return { response, body: await response.text() };
}

/** A handler that was let through may answer with any status. */
export function kindOf(response, isLimited) {
  if (response.status === 429 || response.headers.has("x-degraded")) return "degraded";
  const isDecided = !isLimited || response.headers.has("ratelimit");
  return response.ok || isDecided ? "allowed" : "failed";
}

/** Whether the status is one of these classes and statuses, such as "2xx" and "304". */
export function isGivenBack({ status }, outcomes) {
  return outcomes.includes(`${Math.floor(status / 100)}xx`) || outcomes.includes(String(status));
}
