// Who is limited, most denied first, and who is let through, blocked or raised.

import { read } from "./api.js";
import { Rows, cells, showFold, tableRow } from "./rows.js";
import {
  ago, byId, duration, element, grouped, keyWords, perSecond, say, soon, visible,
} from "./words.js";

const FEW = 10;

export class Limited {
  /** `actions` has a function for each button: `look`, `reset`, `letThrough` and `end`, `block` and
   * `unblock`, `raise` and `endRaise`. */
  constructor(actions) {
    this.rows = new Rows(byId("limited-rows"), () => new LimitedRow(actions));
    this.through = new Rows(byId("let-through-rows"), () => new ListedRow(actions.end));
    this.blocked = new Rows(byId("blocked-rows"), () => new ListedRow(actions.unblock));
    this.raised = new Rows(byId("raised-rows"), () => new ListedRow(actions.endRaise));
    this.all = byId("more-limited");
    this.all.addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      this.show();
    });
    this.filter = byId("filter");
    this.filter.addEventListener("input", () => {
      // Typing here changes the rows, wherever the pointer is.
      const all = [this.rows, this.through, this.blocked, this.raised];
      if (this.view) all.forEach((rows) => rows.clear());
      if (this.view) this.show();
    });
  }

  async look(now) {
    this.view = await read("limited");
    this.canChange = now?.changes_allowed ?? false;
    this.show();
    return this.view;
  }

  show() {
    const { rows: all, of } = this.view;
    const { let_through: through, blocked, raised } = this.view;
    const rows = this.filtered(all);
    const name = ({ rule, row }) => JSON.stringify([rule, row]);
    const withRights = (row) => ({ ...row, canChange: this.canChange });
    this.rows.show(rows.map(withRights), name, this.isOpen ? Infinity : FEW);
    for (const [id, list, items] of [
      ["let-through", this.through, through], ["blocked", this.blocked, blocked],
      ["raised", this.raised, raised],
    ]) {
      list.show(this.filtered(items).map(withRights), name);
      byId(id).hidden = list.made.size === 0;
    }
    byId("nobody").hidden = this.rows.made.size > 0;
    say(byId("nobody"), all.length === 0 ? "Nobody is limited."
      : `None of these ${grouped(all.length)} keys matches the filter.`);
    byId("limited-table").hidden = this.rows.made.size === 0;
    byId("limited").classList.toggle("planless", rows.every((row) => row.plan === null));
    const limited = all.filter((row) => !hasEnded(row)).length;
    say(byId("limited-count"), limited > 0 ? grouped(limited) : "");
    say(byId("limited-of"), of === "fleet" ? "in all processes, most denied first"
      : "in this process, most denied first");
    showFold(this.all, rows.length, FEW, this.isOpen, "keys");
    say(byId("limited-error"), rows.length === 0 ? "" : errorWords(this.view));
  }

  /** The rows with all words of the filter, each somewhere in the rule, the key or the plan. */
  filtered(rows) {
    const words = this.filter.value.toLowerCase().split(/\s+/);
    return rows.filter((row) => {
      const text = [visible(row.rule), keyWords(row), visible(row.plan ?? "")].join("\n");
      return words.every((word) => text.toLowerCase().includes(word));
    });
  }
}

function errorWords(view) {
  const { too_many_by_at_most: tooMany, too_few_by_at_most: tooFew, complete } = view;
  if (!complete) return "Denials in other processes may be missing.";
  if (tooMany === 0 && tooFew === 0) return "The denials are exact.";
  const few = tooFew === 0 ? "is never too few" : `too few by at most ${grouped(tooFew)}`;
  return `The denials are estimates: each may be too many by at most ${grouped(tooMany)}, and `
    + `${few}.`;
}

const hasEnded = ({ until_in_s: until, never }) => !never && until !== null && until <= 0;

class LimitedRow {
  constructor({ look, reset, letThrough, block, raise }) {
    this.cells = cells(["Rule", "Key", "Plan", "Since", "Until", "Denials", "Denials/s", ""]);
    const [, key, , , , denials, rate, buttons] = this.cells;
    this.node = tableRow(this.cells);
    denials.className = rate.className = "number";
    buttons.className = "actions";
    this.key = element("bdi");
    this.flag = element("span", { className: "flag" });
    key.append(this.key, " ", this.flag);
    this.buttons = [
      this.button("let through…", letThrough), this.button("block…", block),
      this.button("raise…", raise), this.button("reset…", reset), this.button("look", look),
    ];
    buttons.append(...this.buttons);
  }

  button(text, action) {
    return element("button", {
      type: "button", className: "small", textContent: text, onclick: () => action(this.item),
    });
  }

  show(item) {
    this.item = item;
    const [rule, , plan, since, until, denials, rate] = this.cells;
    say(rule, visible(item.rule));
    say(this.key, keyWords(item));
    say(since, ago(item.since_ago_s));
    say(until, untilWords(item));
    say(denials, grouped(item.denials));
    say(rate, perSecond(item.denials_per_s));
    say(plan, item.plan === null ? "–" : visible(item.plan));
    this.node.classList.toggle("over", hasEnded(item));
    say(this.flag, operatorWords(item));
    for (const button of this.buttons.slice(0, -1)) button.hidden = !item.canChange;
    for (const button of this.buttons) {
      button.setAttribute("aria-label",
        `${button.textContent} ${keyWords(item)}, rule ${visible(item.rule)}`);
    }
  }
}

function untilWords({ until_in_s: until, never, busy }) {
  if (never) return "never: costs more than the limit";
  if (until === null) return "–";
  // Nobody knows when that is.
  if (busy && until > 0) return "busy: until a request ends";
  return until > 0 ? `in ${soon(until)}` : `ended ${ago(-until)}`;
}

function operatorWords({
  let_through_in_s: through, blocked_in_s: blocked, raised_in_s: raised, factor,
}) {
  if (blocked !== null) return `blocked for ${duration(blocked)}`;
  if (through !== null) return `let through for ${duration(through)}`;
  return raised === null ? "" : `× ${factor} for ${duration(raised)}`;
}

/** A key that is let through, blocked or raised; `end` asks whether to end that. */
class ListedRow {
  constructor(end) {
    this.cells = cells(["Rule", "Key", "Ends", "By", ""]);
    this.node = tableRow(this.cells);
    this.key = element("bdi");
    this.cells[1].append(this.key);
    this.button = element("button", {
      type: "button", className: "small", textContent: "end…", onclick: () => end(this.item),
    });
    this.cells[4].className = "actions";
    this.cells[4].append(this.button);
  }

  show(item) {
    this.item = item;
    const [rule, , ends, by] = this.cells;
    say(rule, visible(item.rule));
    say(this.key, keyWords(item));
    const factor = item.factor === null ? "" : `× ${item.factor}, `;
    say(ends, `${factor}in ${duration(item.ends_in_s)}`);
    say(by, item.by === null ? "–" : visible(item.by));
    this.button.hidden = !item.canChange;
    this.button.setAttribute("aria-label",
      `end… ${keyWords(item)}, rule ${visible(item.rule)}`);
  }
}
