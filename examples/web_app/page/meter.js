import { element, grouped, now, say, wait } from "./words.js";

const between0And1 = (number) => Math.min(Math.max(number, 0), 1);

/** How a quota is shown: a number, a bar, and when it moves next. */
export class Meter {
  constructor(quota) {
    this.quota = quota;
    this.number = element("b");
    this.of = element("span", { className: "soft" });
    this.denied = element("span", { className: "denied" });
    this.pips = element("div", { className: "pips unknown" });
    this.hint = element("p", { className: "hint" });
    this.oneEach = quota.max > 0 && quota.max <= 25;
    this.count = this.oneEach ? quota.max : 1;
    for (let at = 0; at < this.count; at++) this.pips.append(element("i"));
    this.node = element("div", { className: "quota" },
      element("span", { className: "name" }, quota.name, " ", this.denied),
      element("output", {}, this.number, this.of), this.pips, this.hint);
  }

  /** How many requests this quota had no room for. */
  denials(count) {
    say(this.denied, count > 0 ? `${grouped(count)} denied` : "");
  }

  draw(at, limited) {
    const { quota } = this;
    quota.prune(at);
    const known = quota.heard > -Infinity;
    const remaining = quota.remaining();
    say(this.number, known ? grouped(remaining) : limited ? "?" : "");
    say(this.of, limited ? ` of ${grouped(quota.max)} left` : "not limited");
    this.node.classList.toggle("empty", known && remaining === 0);
    this.pips.classList.toggle("unknown", !known);
    this.fill(at, known ? remaining : quota.max);
    say(this.hint, this.words(known, limited));
  }

  fill(at, remaining) {
    const next = this.quota.takes[0];
    const coming = next ? 1 - (next.leaves - at) / this.quota.window : 0;
    [...this.pips.children].forEach((pip, index) => {
      const part = remaining / Math.max(this.quota.max, 1);
      const whole = this.oneEach ? between0And1(remaining - index) : part;
      const isComing = this.oneEach && index === remaining;
      pip.style.setProperty("--full", isComing ? between0And1(coming).toFixed(3) : whole);
      pip.classList.toggle("coming", isComing);
    });
  }

  words(known, limited) {
    const { takes } = this.quota;
    if (!limited) return "";
    if (!known) return "not known before the first answer";
    if (takes.length === 0) return "whole";
    const about = (take) => `${take.ours ? "" : "≈ "}${wait(take.leaves - now())}`;
    const next = about(takes[0]), whole = about(takes[takes.length - 1]);
    const others = this.quota.others();
    return `next back in ${next}` + (whole === next ? "" : ` · whole in ${whole}`)
      + (others > 0 ? ` · ${grouped(others)} taken elsewhere` : "");
  }
}
