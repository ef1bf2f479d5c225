// What the server has counted for a rule, for all its clients.

import { element, grouped, say } from "./words.js";
import { Minute } from "./minute.js";

/** The numbers of a rule, in the order in which they are shown. */
const NUMBERS = [
  ["allowed", "allowed", (rule) => rule.decisions.allowed],
  ["denied", "denied", denied],
  ["errors", "errors", (rule) => sum(Object.values(rule.errors))],
  ["near", "near limit", (rule) => rule.near_limit],
  ["units", "units", (rule) => rule.units],
  ["waiting", "waiting", (rule) => rule.waiting],
  ["p50", "store p50", (rule) => latency(rule, "p50_ms")],
  ["p99", "store p99", (rule) => latency(rule, "p99_ms")],
];

const sum = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

/** Denials, also those of requests that cost more than a quota holds. */
function denied({ decisions }) {
  return decisions.denied + decisions.never;
}

/** How long the store takes, at most, as the buckets tell. A memory store answers at once. */
function latency({ latency }, name) {
  if (latency.answers === 0) return "–";
  return latency[name] === null ? "> 1 s" : `≤ ${latency[name]} ms`;
}

export class Counters {
  constructor(node) {
    this.node = node;
    this.minute = new Minute(node.querySelector("svg"));
    const numbers = NUMBERS.map(([name, label]) => {
      const value = element("dd", { textContent: "0" });
      value.dataset.count = name;
      return element("div", {}, element("dt", { textContent: label }), value);
    });
    node.querySelector("dl").append(...numbers);
  }

  show(rule, at) {
    for (const [name, , read] of NUMBERS) {
      const value = read(rule);
      const text = typeof value === "number" ? grouped(value) : value;
      const node = this.node.querySelector(`[data-count=${name}]`);
      say(node, text);
      node.parentElement.classList.toggle("some", name === "denied" && value > 0);
      node.parentElement.classList.toggle("bad", name === "errors" && value > 0);
    }
    this.minute.add(at, rule.decisions.allowed, denied(rule));
    const highest = Math.round(this.minute.highest());
    say(this.node.querySelector(".highest"), `at most ${grouped(highest)} a second`);
    say(this.node.querySelector(".more"), this.more(rule));
  }

  /** What is rare is said only when it happened. */
  more({ errors, proceeded, refunded_units, waited, shadow, decisions }) {
    const words = Object.entries(errors).map(([kind, count]) => `${grouped(count)} ${kind}`);
    if (proceeded > 0) words.push(`${grouped(proceeded)} without a decision`);
    if (refunded_units > 0) words.push(`${grouped(refunded_units)} units refunded`);
    if (waited > 0) words.push(`${grouped(waited)} waited`);
    if (shadow) words.push("shadow rule: it counts and denies nothing");
    const spared = decisions.shadow_denied;
    if (spared > 0) words.push(`${grouped(spared)} would have been denied by the shadow`);
    return words.join(" · ");
  }
}
