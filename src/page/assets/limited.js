// Who is limited, most denied first, and who is let through, blocked or raised.

import { read, send } from "./api.js";
import { target } from "./confirm.js";
import { Rows, cells, showFold, tableRow } from "./rows.js";
import {
  ago, byId, duration, element, grouped, keyWords, perSecond, quotaWords, roughly, say, sayKey,
  soon, visible,
} from "./words.js";

const FEW = 10;

export class Limited {
  /** `actions` has a function for each button: `look`, `reset`, `letThrough` and `end`, `block` and
   * `unblock`, `raise` and `endRaise`. */
  constructor(actions) {
    this.rows = new Rows(byId("limited-rows"), () => new LimitedRow(actions));
    this.waiting = new Rows(byId("waiting-rows"), () => new WaitingRow());
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
      const all = [this.rows, this.waiting, this.through, this.blocked, this.raised];
      if (this.view) all.forEach((rows) => rows.clear());
      if (this.view) this.show();
    });
  }

  async look(now) {
    this.view = await read("limited");
    this.canChange = now?.changes_allowed ?? false;
    this.rules = new Map(now?.rules.map((it) => [it.rule, it]));
    this.show();
    this.lookUsed();
    return this.view;
  }

  /** Asks what a few of the keys that are shown have used, in turn, and one time at a time. */
  async lookUsed() {
    if (this.isAsking) return;
    this.isAsking = true;
    const rows = [...this.rows.made.values()].sort((a, b) => a.askedAt - b.askedAt);
    await Promise.allSettled(rows.slice(0, FEW).map((row) => row.lookUsed(this.rules)));
    this.isAsking = false;
  }

  show() {
    const { rows: all, of } = this.view;
    const { let_through: through, blocked, raised } = this.view;
    const rows = this.filtered(all);
    const name = ({ rule, row }) => JSON.stringify([rule, row]);
    const quotas = ({ rule, subject }) => {
      const { quotas = [], subjects = [] } = this.rules.get(rule) ?? {};
      return quotas.filter((it) => (it.subject ?? subjects[0] ?? null) === subject);
    };
    const withRights = (row) => ({ ...row, canChange: this.canChange, quotas: quotas(row) });
    this.rows.show(rows.map(withRights), name, this.isOpen ? Infinity : FEW);
    const { waiting, waiting_unknown_in: unknown } = this.view;
    const byRule = (a, b) => (a.rule < b.rule ? -1 : Number(a.rule > b.rule));
    // Each rule sends the longest wait first.
    this.waiting.show(this.filtered(waiting).sort(byRule), name);
    byId("waiting").hidden = this.waiting.made.size === 0;
    say(byId("waiting-unknown"), unknown === 0 ? ""
      : `Processes of an older version, which do not say who waits: ${grouped(unknown)}.`);
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
    byId("limited").classList.toggle("readonly", !this.canChange);
    say(byId("limited-count"), all.length > 0 ? grouped(all.length) : "");
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
    this.cells = cells(
      ["Rule", "Key", "Plan", "Used", "Since", "Until", "Denials", "Denials/s", "", ""]);
    const [, key, plan, used, since, until, denials, rate, buttons, fold] = this.cells;
    this.node = tableRow(this.cells);
    this.askedAt = 0;
    plan.className = used.className = since.className = until.className = "rest";
    denials.className = "number";
    rate.className = "number rest";
    buttons.className = "actions rest";
    this.key = element("bdi");
    key.append(this.key);
    this.buttons = [
      this.button("let through…", letThrough), this.button("block…", block),
      this.button("raise…", raise), this.button("reset…", reset), this.button("look", look),
    ];
    buttons.append(...this.buttons);
    fold.className = "fold";
    this.fold = element("button", { type: "button", className: "small", textContent: "▾" });
    this.fold.setAttribute("aria-expanded", false);
    fold.append(this.fold);
    // On a narrow screen the row is a line, and a tap anywhere in it shows the rest.
    this.node.addEventListener("click", ({ target }) => {
      if (target.closest("button") && target !== this.fold) return;
      this.fold.setAttribute("aria-expanded", this.node.classList.toggle("open"));
    });
  }

  button(text, action) {
    return element("button", {
      type: "button", className: "small", textContent: text, onclick: () => action(this.item),
    });
  }

  show(item) {
    this.item = item;
    const [rule, , plan, , since, until, denials, rate] = this.cells;
    say(rule, visible(item.rule));
    sayKey(this.key, item);
    say(since, `${roughly(item.since_ago_s)} ago`);
    // What an operator has said comes before what the quotas say.
    say(until, operatorWords(item) || untilWords(item));
    say(denials, grouped(item.denials));
    say(rate, perSecond(item.denials_per_s));
    say(plan, item.plan === null ? "–" : visible(item.plan));
    rule.title = rule.textContent;
    plan.title = plan.textContent;
    this.node.classList.toggle("over", hasEnded(item));
    this.node.classList.toggle("operated", operatorWords(item) !== "");
    for (const button of this.buttons.slice(0, -1)) button.hidden = !item.canChange;
    const of = `${keyWords(item)}, rule ${visible(item.rule)}`;
    for (const button of this.buttons) {
      button.setAttribute("aria-label", `${button.textContent} ${of}`);
    }
    this.fold.setAttribute("aria-label", `details of ${of}`);
  }

  /** A plan from code has a name that its rule does not have. */
  async lookUsed(rules) {
    this.askedAt = performance.now();
    const { item } = this;
    const plan = rules.get(item.rule)?.plans.includes(item.plan) ? item.plan : null;
    const { quotas, on_hold_s: held, locked_out_s: locked } =
      await send("key", target({ ...item, plan }));
    const [most] = quotas.map((quota) => ({ ...quota, used: usedOf(quota) }))
      .sort((a, b) => b.used / b.max - a.used / a.max);
    const used = this.cells[3];
    if (quotas.some(({ remaining }) => remaining === null)) {
      say(used, "unknown in an outage");
      used.title = "";
      return;
    }
    const ofMost = most ? `${grouped(most.used)} of ${grouped(most.max)}` : "–";
    // What it has used is not why it is held, and the store does not say it then.
    say(used, locked === null && held === null ? ofMost : "–");
    used.title = quotas.map((it) => `${grouped(usedOf(it))} of ${quotaWords(it)}`).join("\n");
  }
}

const usedOf = ({ max, remaining, in_flight: inFlight }) =>
  inFlight ?? Math.max(max - remaining, 0);

function untilWords({ until_in_s: until, never, busy, on_hold: held, locked_out: locked }) {
  if (never) return "never: costs more than the limit";
  if (until === null) return "–";
  // Nobody knows when that is.
  if (busy && until > 0) return "busy: until a request ends";
  if (until <= 0) return `ended ${ago(-until)}`;
  return `${locked ? "locked out, " : held ? "on hold, " : "in "}${soon(until)}`;
}

function operatorWords({
  let_through_in_s: through, blocked_in_s: blocked, raised_in_s: raised, factor,
}) {
  if (blocked !== null) return `blocked for ${roughly(blocked)}`;
  if (through !== null) return `let through for ${roughly(through)}`;
  return raised === null ? "" : `× ${factor} for ${roughly(raised)}`;
}

/** Those that wait in the turn of a key of `fair-by`. */
class WaitingRow {
  constructor() {
    this.cells = cells(["Rule", "Key", "Waiting", "Since"]);
    this.node = tableRow(this.cells);
    this.key = element("bdi");
    this.cells[1].append(this.key);
    this.cells[2].className = "number";
  }

  show(item) {
    const [rule, , waiting, since] = this.cells;
    say(rule, visible(item.rule));
    rule.title = rule.textContent;
    sayKey(this.key, item.key === "" ? { key: "without a value" } : item);
    say(waiting, grouped(item.waiting));
    say(since, `${soon(item.since_ago_s)} ago`);
  }
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
    sayKey(this.key, item);
    rule.title = rule.textContent;
    const only = item.only.length ? ` (${item.only.map(visible).join(", ")})` : "";
    const factor = item.factor === null ? "" : `× ${item.factor}${only}, `;
    say(ends, `${factor}in ${duration(item.ends_in_s)}`);
    const said = [item.by, item.note].filter((it) => it !== null).map(visible);
    say(by, said.join(": ") || "–");
    this.button.hidden = !item.canChange;
    this.button.setAttribute("aria-label",
      `end… ${keyWords(item)}, rule ${visible(item.rule)}`);
  }
}
