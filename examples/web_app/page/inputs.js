// What the requests of a card say beside their path: what a person chooses on the page.

import { element } from "./words.js";

/** The statuses that `/answer` can be asked for. */
const STATUSES = ["200", "401", "500"];

export class Inputs {
  constructor(node, path, { onTenant, onPlan }) {
    this.node = node;
    this.onPlan = onPlan;
    if (path === "login") this.tenant = this.addText("x-tenant", onTenant);
    if (path === "answer") this.status = this.addSelect("status", STATUSES);
  }

  /** The choice among the plans of the rule, if it has some; it stays if the plan does. */
  showPlans(names) {
    const chosen = this.planName();
    this.plan?.parentElement.remove();
    this.plan = undefined;
    // A field holds no other names.
    const sendable = names.filter((name) => /^[!-~]+$/.test(name));
    if (sendable.length === 0) return;
    this.plan = this.addSelect("x-plan", ["", ...sendable], this.onPlan);
    this.plan.parentElement.append(
      element("small", { className: "soft", textContent: "stands in for authentication" }));
    if (sendable.includes(chosen)) this.plan.value = chosen;
  }

  planName() {
    return this.plan?.value ?? "";
  }

  headers() {
    const headers = {};
    if (this.tenant?.value && this.tenant.validity.valid) headers["x-tenant"] = this.tenant.value;
    if (this.planName()) headers["x-plan"] = this.planName();
    return headers;
  }

  query() {
    return this.status ? `?status=${this.status.value}` : "";
  }

  addText(name, onInput) {
    const input = element("input", {
      type: "text", autocomplete: "off", spellcheck: false, pattern: "[ -~]*",
      placeholder: "nobody", maxLength: 60,
    });
    return this.add(name, input, onInput);
  }

  addSelect(name, values, onInput) {
    const options = values.map((value) =>
      element("option", { value, textContent: value === "" ? "none" : value }));
    return this.add(name, element("select", {}, ...options), onInput);
  }

  add(name, input, onInput = () => {}) {
    input.addEventListener("input", onInput);
    const label = element("span", { textContent: `${name}:` });
    this.node.append(element("label", { className: "field" }, label, input));
    return input;
  }
}
