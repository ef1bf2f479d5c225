// What the server has counted for a rule, for all its clients.

import { element, grouped, say } from "./words.js";

/** The numbers of a rule, in the order in which they are shown. */
const NUMBERS = [
  ["allowed", "allowed"], ["denied", "denied"], ["errors", "errors"], ["near", "near limit"],
  ["units", "units"], ["waiting", "waiting"],
];

export class Counters {
  constructor(node) {
    this.node = node;
    const numbers = NUMBERS.map(([name, label]) => {
      const value = element("dd", { textContent: "0" });
      value.dataset.count = name;
      return element("div", {}, element("dt", { textContent: label }), value);
    });
    node.querySelector("dl").append(...numbers);
  }

  show({ total, is_shadow: isShadow }) {
    for (const [name] of NUMBERS) {
      const node = this.node.querySelector(`[data-count=${name}]`);
      say(node, grouped(total[name]));
      node.parentElement.classList.toggle("some", name === "denied" && total[name] > 0);
      node.parentElement.classList.toggle("bad", name === "errors" && total[name] > 0);
    }
    say(this.node.querySelector(".more"), more(total, isShadow));
  }
}

/** What is rare is said only when it happened. */
function more({ proceeded, refunded, waited, shadow, let_through: through }, isShadow) {
  const words = [];
  if (proceeded > 0) words.push(`${grouped(proceeded)} without a decision`);
  if (refunded > 0) words.push(`${grouped(refunded)} units refunded`);
  if (waited > 0) words.push(`${grouped(waited)} waited`);
  if (through > 0) words.push(`${grouped(through)} let through`);
  if (isShadow) words.push("shadow rule: it counts and denies nothing");
  if (shadow > 0) words.push(`${grouped(shadow)} would have been denied by the shadow`);
  return words.join(" · ");
}
