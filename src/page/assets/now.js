// Now: what each rule decides, each second.

import { read } from "./api.js";
import { Chart } from "./chart.js";
import { Rows, showFold } from "./rows.js";
import { COUNTS, LATENCIES, Recent } from "./series.js";
import {
  byId, element, fromTemplate, grouped, latency, processWords, quotaWords, say, sayAll, visible,
} from "./words.js";

/** So many rules are shown before somebody asks for more. */
const FEW = 6;
const BETWEEN_HOURS = 60_000;

export class Now {
  constructor() {
    this.recent = new Recent();
    this.rows = new Rows(byId("rules"), (rule) => new RuleCard(rule.rule));
    this.span = "now";
    for (const button of document.querySelectorAll("[data-span]")) {
      button.addEventListener("click", () => this.choose(button.dataset.span));
    }
    this.all = byId("more-rules");
    this.all.addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      this.show();
    });
  }

  async look() {
    this.view = await this.recent.look();
    const isOld = !(performance.now() - this.hourAt < BETWEEN_HOURS);
    if (this.span === "hour" && (isOld || this.hour.process !== this.view.process)) {
      this.hour = await read("hour");
      this.hourAt = performance.now();
    }
    this.show();
    return this.view;
  }

  choose(span) {
    this.span = span;
    for (const button of document.querySelectorAll("[data-span]")) {
      button.setAttribute("aria-pressed", button.dataset.span === span);
    }
    if (this.view) this.look().catch(() => {});
  }

  show() {
    const { rules, process, process_name: name, more_rules: more } = this.view;
    const hour = this.span === "hour" && new Map(this.hour?.rules.map((it) => [it.rule, it]));
    const items = sorted(rules).map((rule) =>
      ({ rule, charted: hour ? hour.get(rule.rule) : rule, isHour: Boolean(hour) }));
    this.rows.show(items, (item) => item.rule.rule, this.isOpen ? Infinity : FEW);
    say(byId("now-process"), `requests of the process ${processWords(process, name)}`);
    say(byId("other-rules"), more > 0 ? `${grouped(more)} rules with fewer requests are not shown.`
      : rules.length === 0 ? "There are no rules: nothing is limited." : "");
    showFold(this.all, rules.length, FEW, this.isOpen, "rules");
  }
}

/** Those that deny most first. Powers of two, so that they seldom change places. */
function sorted(rules) {
  const power = (numbers) => Math.ceil(Math.log2(1 + numbers.reduce((sum, it) => sum + it, 0)));
  const ranks = new Map(rules.map((rule) => [rule, [
    power(rule.denied) + power(rule.errors) + power(rule.shadow), power(rule.allowed),
  ]]));
  return [...rules].sort((a, b) => {
    const [x, y] = [ranks.get(a), ranks.get(b)];
    return y[0] - x[0] || y[1] - x[1] || (a.rule < b.rule ? -1 : 1);
  });
}

class RuleCard {
  constructor({ rule }) {
    this.node = fromTemplate("rule-card");
    this.node.setAttribute("aria-label", visible(rule));
    this.find("h3").textContent = visible(rule);
    this.chart = new Chart(this.node);
    this.numbers = new Map();
    for (const [name, label] of [...COUNTS, ...LATENCIES]) {
      const number = element("b"), total = element("span");
      const value = element("dd", {}, number, total);
      value.dataset.count = name;
      this.numbers.set(name, { number, total });
      this.find("dl").append(element("div", { className: name },
        element("dt", { textContent: label }), value));
    }
  }

  find(selector) {
    return this.node.querySelector(selector);
  }

  show({ rule, charted, isHour }) {
    sayAll(this.find(".flags"), "span", flags(rule));
    say(this.find(".words"), words(rule));
    for (const [name] of COUNTS) {
      const last = rule[name].at(-1) ?? 0;
      this.set(name, `${grouped(last)}/s`, `${grouped(rule.total[name])} in all`, last > 0);
    }
    for (const [name] of LATENCIES) {
      const last = rule[name].at(-1) ?? 0;
      this.set(name, latency(last), last > 0 ? "last second" : "", false);
    }
    if (charted) this.chart.draw(charted, isHour ? 60 : 1, isHour ? 60 : 300);
    say(this.find(".more"), rare(rule));
  }

  set(name, value, total, isSome) {
    const shown = this.numbers.get(name);
    say(shown.number, value);
    say(shown.total, total);
    shown.number.parentElement.parentElement.classList.toggle("some", isSome);
  }
}

function flags({ enabled, is_shadow: shadow }) {
  const found = [];
  if (!enabled) found.push("switched off");
  if (shadow) found.push("shadow: denies nothing");
  return found;
}

function words({ quotas, plans, quotas_of_plans: ofPlans }) {
  const one = (quota) => quotaWords(quota) + (quota.subject ? ` (${visible(quota.subject)})` : "");
  const all = (quotas) => quotas.map(one).join(" and ");
  const own = new Set(quotas.map(one));
  // What a plan has of its own: it may keep the quotas of some subjects.
  const plan = (name, index) => {
    const differs = ofPlans[index]?.filter((quota) => !own.has(one(quota))) ?? [];
    return visible(name) + (differs.length > 0 ? `: ${all(differs)}` : "");
  };
  const more = plans.length > 0 ? [`plans: ${plans.map(plan).join("; ")}`] : [];
  return [all(quotas), ...more].join(" · ");
}

/** What is rare is said only when it happened. */
function rare({ total, denied_by: by, quotas, failures }) {
  const said = [];
  const add = (number, what) => number > 0 && said.push(`${grouped(number)} ${what}`);
  if (by.length > 1 || quotas.length > 1) {
    by.forEach(({ name, denials }) => add(denials, `denied by ${visible(name)}`));
  }
  if (total.units !== total.allowed) add(total.units, "units charged");
  add(total.refunded, "units refunded");
  add(total.proceeded, "admitted without a decision");
  add(total.waiting, "waiting");
  add(total.longest_wait_ms, "ms the longest wait");
  add(total.waited, "waited");
  add(total.blocked, "blocked by an operator");
  if (failures !== null) said.push(`failures since the start: ${grouped(failures)}`);
  if (failures === 0 && total.allowed >= 1_000) {
    said.push("a layer with a lockout that sees no failure may stand inside of authentication");
  }
  return said.join(" · ");
}
