// One key: what is left of each quota, and what can be done about it.

import { Refusal, send } from "./api.js";
import { target } from "./confirm.js";
import { Rows } from "./rows.js";
import {
  byId, duration, element, grouped, instant, isWhole, keyWords, quotaWords, say, sayAll, soon, visible,
} from "./words.js";

const form = byId("key-form"), { rule, subject, key, plan } = form.elements;
const ofRow = byId("key-of-row");

export class OneKey {
  constructor({ letThrough, end, block, unblock, raise, endRaise, reset }) {
    this.quotas = new Rows(byId("key-quotas"), () => new QuotaBar());
    this.rules = new Map();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    rule.addEventListener("input", () => this.showChoices());
    ofRow.querySelector("button").addEventListener("click", () => {
      this.setRow(undefined);
      key.focus();
    });
    const on = (name, act) => {
      const button = document.querySelector(`#key-answer [data-do=${name}]`);
      button.addEventListener("click", () => act(this.item()));
    };
    on("reset", reset);
    on("let-through", (item) => (this.answer.let_through_in_s === null ? letThrough : end)(item));
    on("block", (item) => (this.answer.blocked_in_s === null ? block : unblock)(item));
    on("raise", (item) => (this.answer.raised_in_s === null ? raise : endRaise)(item));
  }

  /** The names of the rules, of their plans and subjects, and whether something may be changed. */
  know({ rules, changes_allowed: canChange }) {
    this.rules = new Map(rules.map((it) => [it.rule, it]));
    const names = [...this.rules.keys()].sort();
    if (names.join("\n") !== this.names) {
      this.names = names.join("\n");
      byId("rule-names").replaceChildren(...names.map((value) => element("option", { value })));
    }
    if (names.length === 1 && rule.value === "") rule.value = names[0];
    document.querySelector("#key-answer .actions").hidden = !canChange;
    this.showChoices();
  }

  /** The choices among the plans and the subjects of the rule, if it has some. */
  showChoices() {
    const { plans = [], subjects = [] } = this.rules.get(rule.value) ?? {};
    byId("plan-field").hidden = plans.length === 0;
    showOptions(plan, ["", ...plans]);
    byId("subject-field").hidden = subjects.length === 0 || this.row !== undefined;
    showOptions(subject, subjects);
  }

  /** The key of a row may be hidden; its hash finds it. */
  setRow(row) {
    this.row = row;
    ofRow.hidden = row === undefined;
    key.parentElement.hidden = row !== undefined;
    this.showChoices();
    if (row) say(ofRow.querySelector("code"), keyWords({ row }));
  }

  /** From a row of a table. */
  open(item) {
    rule.value = item.rule;
    key.value = isWhole(item.key) ? item.key : "";
    this.setRow(isWhole(item.key) ? undefined : item.row);
    if (item.subject !== null) subject.value = item.subject;
    // A plan that the rule no longer has leaves the choice empty.
    plan.value = item.plan ?? "";
    this.ask(item);
  }

  /** What the buttons are about: a key that was typed here is known, whatever the page shows. */
  item() {
    const { subject, key, row, quotas, everyone } = this.answer;
    const isUnused = quotas.every(({ remaining, max }) => remaining >= max);
    const whole = isWhole(key) ? key : this.asked.key ?? key;
    return { ...this.asked, subject, key: whole, row, isUnused, everyone, quotas };
  }

  async ask(item) {
    const of = this.row ? { row: this.row }
      : { key: key.value, ...(subject.value ? { subject: subject.value } : {}) };
    // An input holds no line feed; the name of a rule may.
    this.asked = { rule: item?.rule ?? rule.value, plan: plan.value, ...of };
    const isThere = await this.look();
    byId(isThere ? "key-answer" : "key").scrollIntoView({ block: "nearest" });
    if (isThere && item) byId("key-name").focus({ preventScroll: true });
  }

  /** Asks again about the key that is shown. */
  async look() {
    const { asked } = this;
    if (!asked) return false;
    try {
      const answer = await send("key", target(asked));
      if (asked !== this.asked) return false;
      this.answer = answer;
      say(byId("key-error"), "");
    } catch (error) {
      if (asked !== this.asked) return false;
      say(byId("key-error"), error.message);
      // A mistake stays one; a process that does not answer may do so later.
      if (error instanceof Refusal) this.asked = undefined;
      byId("key-answer").hidden = true;
      return false;
    }
    this.showAnswer();
    return true;
  }

  showAnswer() {
    const { answer } = this;
    // Without a choice it is the plan of the key's last request.
    const planned = answer.plan === null ? "" : `, plan ${visible(answer.plan)}`;
    say(byId("key-name"), `${keyWords(this.item())}, rule ${visible(answer.rule)}${planned}`);
    // The other subjects may still deny it.
    const by = answer.subject === null ? "" : ` by ${visible(answer.subject)}`;
    const verdict = `A request would be ${answer.allowed ? "allowed" : "denied"}${by} now.`;
    // Without its mark, a key is another key.
    say(byId("key-verdict"), answer.hint ? `${verdict} But ${visible(answer.hint)}.` : verdict);
    byId("key-verdict").className = answer.allowed ? "" : "bad";
    this.quotas.show(answer.quotas, (quota) => quota.name);
    const { let_through_in_s: through, blocked_in_s: blocked, on_hold_s: held } = answer;
    const { raised_in_s: raised, factor } = answer;
    const { locked_out_s: locked, locked_out_times: times } = answer;
    say(byId("key-held"), [
      held === null ? "" : `On hold for ${duration(held)}: the partner wants no calls.`,
      locked === null ? "" : `Locked out for ${duration(locked)} after failures`
        + `${times > 1 ? `, ${times} times in a row` : ""}: a reset ends it.`,
    ].join(""));
    say(byId("key-through"), through === null ? ""
      : `Let through for ${duration(through)}: ${by ? "these" : "the"} quotas do not apply.`);
    say(byId("key-blocked"), blocked === null ? "" : `Blocked for ${duration(blocked)}.`);
    say(byId("key-raised"), raised === null ? ""
      : `Raised for ${duration(raised)}: × ${factor}, of all quotas or those that were named.`);
    const label = (name, text) =>
      say(document.querySelector(`#key-answer [data-do=${name}]`), text);
    label("let-through", through === null ? "let through…" : "limit again…");
    label("block", blocked === null ? "block…" : "end the block…");
    label("raise", raised === null ? "raise…" : "end the raise…");
    byId("key-answer").hidden = false;
  }
}

/** The options of a choice; what is chosen stays while it is one of them. */
function showOptions(choice, names) {
  if (names.join("\n") === [...choice.options].map((it) => it.value).join("\n")) return;
  const chosen = choice.value;
  choice.replaceChildren(...names.map((value) =>
    element("option", { value, textContent: value === "" ? "none" : visible(value) })));
  if (names.includes(chosen)) choice.value = chosen;
}

function leftWords(quota) {
  const { max, remaining, reset_in_s: reset, in_flight: inFlight, concurrent, zone } = quota;
  // A fallback decides now.
  if (remaining === null) return "what is left is unknown in an outage";
  if (concurrent) return `${grouped(inFlight)} of ${grouped(max)} in flight`;
  if (zone && reset > 0) return `${grouped(remaining)} left until ${instant(reset, zone)}`;
  const full = remaining >= max ? "full" : `full again in ${soon(reset)}`;
  return `${grouped(remaining)} of ${grouped(max)} left, ${full}`;
}

/** What is left of a quota. */
class QuotaBar {
  constructor() {
    this.words = element("p");
    this.full = element("i");
    this.bar = element("div", { className: "bar" }, this.full);
    this.bar.setAttribute("role", "meter");
    this.node = element("div", { className: "quota" }, this.words, this.bar);
  }

  show(quota) {
    const { name, max, remaining } = quota;
    sayAll(this.words, "span", [`${visible(name)}: ${quotaWords(quota)}`, leftWords(quota)]);
    this.bar.setAttribute("aria-label", `left of ${visible(name)}`);
    this.bar.setAttribute("aria-valuemin", 0);
    this.bar.setAttribute("aria-valuemax", max);
    this.bar.setAttribute("aria-valuenow", remaining);
    this.full.style.width = `${max > 0 ? Math.min(remaining / max, 1) * 100 : 0}%`;
    this.bar.classList.toggle("used", remaining === 0);
  }
}
