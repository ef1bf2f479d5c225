// Three things to try: use up a limit, open a second process, stop Redis.

import { PATIENCE, ask } from "./requests.js";
import { byId, element, grouped, icon, say } from "./words.js";

const REQUESTS = 20;
const SHOWN_FIELDS = ["RateLimit", "RateLimit-Policy", "Retry-After"];

/** The rule that is used up: a quick one of the example, else the first one. */
const chosen = (cards) => cards.get("getId") ?? cards.values().next().value;

export class Try {
  constructor() {
    this.send = byId("try-send");
    this.redis = byId("try-redis");
    this.process = byId("try-process");
    this.send.addEventListener("click", () => this.burst());
    this.redis.addEventListener("click", () => {
      this.change(`/demo/redis/${this.state.redis === "running" ? "stop" : "start"}`, this.redis);
    });
    this.process.addEventListener("click", () => this.change("/demo/process", this.process));
  }

  /** What the server says each second: the rules, and what it has started. */
  show(cards, state) {
    this.card = chosen(cards);
    this.state = state;
    this.send.disabled = this.card === undefined;
    if (this.card) this.showLimit();
    if (!this.isBusy) this.showState();
  }

  showLimit() {
    const name = this.card.find("h2").textContent;
    say(this.send, `Send ${REQUESTS} requests to ${name}`);
    say(byId("try-limit"), `${name} allows ${this.card.find(".words").textContent}.`);
  }

  showState() {
    const { redis, second } = this.state;
    const isOwn = redis === "running" || redis === "stopped";
    this.redis.disabled = !isOwn;
    say(this.redis, redis === "stopped" ? "Start Redis" : "Stop Redis");
    say(byId("try-redis-now"), {
      running: "Redis runs: it counts for all processes. Without it, each of two admits half of each "
        + "limit.",
      stopped: "Redis is stopped: this process counts alone, up to half of each limit. "
        + "Started again, Redis counts from zero.",
      given: "This app has not started Redis: stop it where you started it.",
      none: "The limits are in the memory of this process. Install redis-server and start this app "
        + "again, or set REDIS_URL.",
    }[redis]);
    this.process.disabled = redis === "none" || redis === "stopped";
    this.process.hidden = second !== null;
    const link = byId("try-second");
    link.hidden = second === null;
    if (second !== null) {
      link.href = `http://${second}/`;
      say(link, `Open the second process at ${second}`);
    }
  }

  async change(url, button) {
    this.isBusy = true;
    button.disabled = true;
    const said = byId("try-said");
    say(said, "");
    try {
      const headers = { "x-demo": "1" };
      const { response, body } = await ask(url, headers, "POST");
      if (!response.ok) throw new Error(body);
      this.state = JSON.parse(body);
    } catch (error) {
      const isSlow = error.name === "TimeoutError";
      say(said, isSlow ? `no answer within ${PATIENCE / 1_000} s` : error.message);
    }
    this.isBusy = false;
    this.showState();
  }

  async burst() {
    const { card } = this;
    this.counts = { allowed: 0, degraded: 0, failed: 0 };
    card.onAnswer = (kind, response) => this.hear(kind, response);
    await card.burst(REQUESTS);
  }

  hear(kind, response) {
    const heard = Object.values(this.counts).reduce((sum, count) => sum + count);
    // Those that the card's own buttons send are not of these.
    if (heard === REQUESTS) return;
    this.counts[kind] += 1;
    const shown = Object.entries(this.counts).filter(([, count]) => count > 0);
    const texts = shown.map(([kind, count]) => (
      element("span", {}, icon(kind), `${grouped(count)} ${kind === "degraded" ? "denied" : kind}`)
    ));
    byId("try-counts").replaceChildren(...texts);
    if (!response) return;
    const fields = byId("try-fields");
    const found = SHOWN_FIELDS.filter((name) => response.headers.has(name));
    const lines = found.map((name) => `${name}: ${response.headers.get(name)}`);
    say(fields, [`${response.status} ${response.statusText}`.trim(), ...lines].join("\n"));
    fields.hidden = false;
  }
}
