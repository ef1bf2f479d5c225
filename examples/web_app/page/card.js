import { Counters } from "./counters.js";
import { Inputs } from "./inputs.js";
import { Meter } from "./meter.js";
import { PATIENCE, ask, isGivenBack, kindOf, slots } from "./requests.js";
import { Quota, items } from "./quota.js";
import { KINDS, TimeLine } from "./time_line.js";
import { byId, element, grouped, icon, inWords, now, pause, say, wait } from "./words.js";

const BETWEEN_SHOTS = 45, BETWEEN_AUTO_SHOTS = 333;
/** What an answer's head is shown of. */
const SHOWN_FIELDS = ["RateLimit", "RateLimit-Policy", "Retry-After", "x-degraded"];

/**
 * One rule: its buttons, its counters, the answers to this page on a line of time, what remains,
 * and the last answer.
 */
export class Card {
  constructor(path, onNoAnswer) {
    this.path = path;
    this.onNoAnswer = onNoAnswer;
    this.quotas = [];
    this.counts = { allowed: 0, degraded: 0, failed: 0 };
    this.queued = 0;
    this.node = byId("card").content.firstElementChild.cloneNode(true);
    this.counters = new Counters(this.find(".counters"));
    this.fillIn();
    this.listen();
  }

  find(selector) {
    return this.node.querySelector(selector);
  }

  fillIn() {
    const { path } = this;
    this.find("h2").textContent = path.startsWith("/") ? path : `/${path}`;
    this.node.setAttribute("aria-label", path);
    for (const button of this.node.querySelectorAll("[data-fire]")) {
      const count = button.dataset.fire;
      const requests = count === "1" ? "request" : "requests";
      button.setAttribute("aria-label", `${count} ${requests} to ${path}`);
    }
    this.find("[data-auto]").setAttribute("aria-label", `auto: keep sending requests to ${path}`);
    this.inputs = new Inputs(this.find(".inputs"), path, {
      // Another tenant has counts of its own; another plan goes on with those of the last.
      onTenant: () => this.quotas.forEach((quota) => quota.forget()),
      onPlan: () => this.showLimits(),
    });
    this.find("canvas").setAttribute("aria-label", `Time line of the answers of ${path}`);
    this.showCounts();
  }

  /** The canvas has a size only once it is in the document. */
  begin() {
    this.line = new TimeLine(this.find("canvas"));
    this.line.setQuotas(this.quotas);
  }

  /** What the server says now: the rule may have other limits than before. */
  update(rule) {
    this.rule = rule;
    this.counters.show(rule);
    const plans = JSON.stringify(Object.keys(rule.plans));
    if (plans !== this.plans) this.inputs.showPlans(Object.keys(rule.plans));
    this.plans = plans;
    this.showLimits();
  }

  /** The policies of the chosen plan, or of the rule. */
  policies() {
    return this.rule.plans[this.inputs.planName()] ?? this.rule.quotas;
  }

  showLimits() {
    const policies = this.policies();
    const { cost, enabled, refund_on, denied_by: by } = this.rule;
    const shown = JSON.stringify([policies, cost, enabled, refund_on]);
    if (shown !== this.shown) this.showNewLimits(policies);
    this.shown = shown;
    for (const meter of this.meters) {
      meter.denials(by.find((it) => it.name === meter.quota.name)?.denials ?? 0);
    }
  }

  showNewLimits(policies) {
    const { cost, enabled, refund_on } = this.rule;
    const limits = policies.map(({ max, window_s: seconds }) => `${grouped(max)} `
      + (seconds === null ? "at a time" : `in any ${inWords(seconds * 1_000)}`));
    const words = limits.join(" and ") + (cost === 1 ? "" : `, ${cost} for a request`)
      + (refund_on.length === 0 ? "" : `, ${refund_on.join(", ")} given back`);
    this.find(".words").textContent = enabled ? words : `switched off: ${words}`;
    const before = this.quotas;
    const ofWindows = policies.filter((policy) => policy.window_s !== null);
    this.quotas = ofWindows.map((policy) => Quota.after(before, policy));
    this.meters = this.quotas.map((quota) => new Meter(quota));
    this.find(".quotas").replaceChildren(...this.meters.map((meter) => meter.node));
    this.line?.setQuotas(this.quotas);
  }

  listen() {
    for (const button of this.node.querySelectorAll("[data-fire]")) {
      button.addEventListener("click", () => this.burst(Number(button.dataset.fire)));
    }
    const auto = this.find("[data-auto]");
    auto.addEventListener("click", () => {
      const on = auto.getAttribute("aria-pressed") !== "true";
      auto.setAttribute("aria-pressed", on);
      clearInterval(this.timer);
      const next = () => this.queued < 10 && this.shoot();
      if (on) this.timer = setInterval(next, BETWEEN_AUTO_SHOTS);
    });
  }

  end() {
    clearInterval(this.timer);
    this.line?.end();
    this.node.remove();
  }

  async burst(count) {
    for (let shot = 0; shot < count; shot++) {
      if (shot > 0) await pause(BETWEEN_SHOTS);
      if (this.queued < 200) this.shoot();
    }
  }

  async shoot() {
    this.queued += 1;
    await slots.take();
    this.queued -= 1;
    const mark = { at: now(), kind: "pending" };
    this.line.add(mark);
    const { inputs, rule } = this;
    const headers = inputs.headers();
    const sent = JSON.stringify(headers);
    try {
      const { response, body } = await ask(rule.url + inputs.query(), headers);
      mark.kind = kindOf(response, rule.enabled);
      if (sent === JSON.stringify(inputs.headers())) this.hear(mark, response);
      this.showAnswer(mark.kind, response, body);
      this.onAnswer?.(mark.kind, response);
    } catch (error) {
      mark.kind = "failed";
      const isSlow = error.name === "TimeoutError";
      const late = `no answer within ${wait(PATIENCE)}`;
      this.showNoAnswer(isSlow ? late : "no answer: the server cannot be reached");
      this.onAnswer?.(mark.kind);
      if (!isSlow) this.onNoAnswer();
    } finally {
      slots.give();
      this.counts[mark.kind] += 1;
      this.showCounts();
    }
  }

  hear(mark, response) {
    const found = items(response.headers.get("ratelimit"));
    const { cost, refund_on } = this.rule;
    const denied = mark.kind === "degraded";
    const isCharged = !denied && !isGivenBack(response, refund_on);
    for (const quota of this.quotas) {
      const item = found.get(quota.name);
      // The answer says what was left before its charge was given back.
      if (item && !denied && !isCharged) item.r += cost;
      quota.hear(mark.at, cost, item, isCharged);
    }
    const retryAfter = response.headers.get("retry-after");
    if (retryAfter !== null) this.backAt = now() + Number(retryAfter) * 1000;
    else if (response.status === 429) this.backAt = Infinity;
    else if (mark.kind === "allowed") this.backAt = undefined;
  }

  showAnswer(kind, response, body) {
    const status = `${response.status} ${response.statusText}`.trim();
    this.showStatus(kind, status);
    const lines = [element("b", { className: kind, textContent: status })];
    for (const name of SHOWN_FIELDS) {
      const value = response.headers.get(name);
      if (value === null) continue;
      lines.push("\n", element("span", { className: "field-name", textContent: name }));
      lines.push(`: ${value}`);
    }
    lines.push("\n\n", body.length > 2000 ? `${body.slice(0, 2000)}…` : body.trimEnd());
    this.find("pre").replaceChildren(...lines);
  }

  showNoAnswer(text) {
    this.showStatus("failed", text);
    this.find("pre").replaceChildren(element("b", { className: "failed", textContent: text }));
  }

  showStatus(kind, text) {
    this.find(".status").replaceChildren(element("b", { className: kind, textContent: text }));
  }

  showCounts() {
    const texts = KINDS.map((kind) => element("span", {}, icon(kind), this.countOf(kind)));
    this.find(".counts").replaceChildren(...texts);
  }

  countOf(kind) {
    return `${grouped(this.counts[kind])} ${kind}`;
  }

  /** Quick answers are not worth a flicker. */
  running(at) {
    const slow = this.line.marks.filter((mark) => mark.kind === "pending" && at - mark.at > 150);
    if (slow.length === 0) return "";
    const waiting = this.queued > 0 ? `, ${this.queued} waiting` : "";
    return `${slow.length} running for ${wait(at - slow[0].at)}${waiting}`;
  }

  draw(at) {
    this.meters.forEach((meter) => meter.draw(at, this.rule.enabled));
    this.line.draw(at);
    say(this.find(".running"), this.running(at));
    const back = this.find(".back");
    back.hidden = this.backAt === undefined || at > this.backAt + 2_000;
    if (back.hidden) return;
    const left = this.backAt - at;
    back.classList.toggle("now", left <= 0);
    if (left === Infinity) say(back, "no Retry-After: it never fits");
    else say(back, left > 0 ? `Retry-After: ${wait(left)}` : "Retry-After is over");
  }
}
