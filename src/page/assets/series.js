// The last five minutes of each rule. Each look asks only for what is new.

import { read } from "./api.js";

/** The series of a rule: what is counted each second, and how it is called. */
export const COUNTS = [
  ["allowed", "allowed"], ["denied", "denied"], ["errors", "errors"], ["near", "near limit"],
  ["shadow", "shadow"], ["let_through", "let through"],
];
export const LATENCIES = [["mean_us", "store"], ["p99_us", "store p99"]];
const SECONDS = 300;

export class Recent {
  /** What `api/now` says, with the seconds that were known before. */
  async look() {
    const known = this.view;
    if (!known) return (this.view = await read("now"));
    const news = await read(`now?after=${known.tick}`);
    // It knows nothing of the seconds that were shown before.
    if (news.process !== known.process) return this.again();
    // All that it knows: what is new alone would leave a gap.
    if (news.first !== known.tick + 1) return (this.view = news);
    const before = new Map(known.rules.map((rule) => [rule.rule, rule]));
    // Its seconds before were not among those of the busiest rules.
    if (news.rules.some((rule) => !before.has(rule.rule))) return this.again();
    for (const rule of news.rules) {
      const old = before.get(rule.rule);
      for (const [name] of [...COUNTS, ...LATENCIES]) {
        rule[name] = old[name].concat(rule[name]).slice(-SECONDS);
      }
    }
    return (this.view = news);
  }

  async again() {
    this.view = undefined;
    return (this.view = await read("now"));
  }
}
