// The fleet: each process that shares the limits through Redis.

import { read } from "./api.js";
import { Rows, showFold } from "./rows.js";
import {
  ago, byId, duration, element, fromTemplate, grouped, processWords, say, sayAll, shortly, visible,
} from "./words.js";

/** So many processes are shown before somebody asks for more. */
const FEW = 6;

const FACTS = [
  ["allowed", "Allowed"], ["denied", "Denied"], ["rules", "Rules"], ["hash", "Hash"],
  ["breaker", "Breaker"], ["fallback", "Fallback"], ["error", "Last error"],
  ["started", "Started"],
];

export class Fleet {
  constructor() {
    this.rows = new Rows(byId("processes"), ({ process }) => new ProcessCard(process));
    this.all = byId("more-processes");
    this.all.addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      this.show();
    });
  }

  async look() {
    this.view = await read("fleet");
    this.show();
    return this.view;
  }

  show() {
    const { processes, shared } = this.view;
    const common = mostCommon(processes.map((it) => it.content_hash));
    const items = processes.map((it) => ({ ...it, differs: it.content_hash !== common }));
    // This one first, and then those that somebody has to look at.
    const rank = (it) => (it.this ? 0 : isWell(it) ? 2 : 1);
    items.sort((a, b) => rank(a) - rank(b) || (a.process < b.process ? -1 : 1));
    // What all have, such as a warning about a rule, is said once.
    const [first, ...others] = items.map((it) => it.warnings);
    const isShared = (text) => first.includes(text) && others.every((it) => it.includes(text));
    items.slice(1).forEach((it) => (it.warnings = it.warnings.filter((text) => !isShared(text))));
    this.rows.show(items, (it) => it.process, this.isOpen ? Infinity : FEW);
    showFold(this.all, processes.length, FEW, this.isOpen, "processes");
    say(byId("fleet-count"), shared ? grouped(processes.length) : "");
    const sum = (name) => grouped(processes.reduce((sum, it) => sum + it[name], 0));
    const rates = `${sum("allowed_per_s")}/s allowed, ${sum("denied_per_s")}/s denied`;
    const many = processes.length === 1 ? "one process" : `${grouped(processes.length)} processes`;
    say(byId("fleet-sum"), shared ? `${many}: ${rates}`
      : "No Redis: this process limits by itself.");
  }
}

const isWell = (it) =>
  !it.differs && !it.reload_failing && !it.fallback && it.breaker !== "open" && !it.warnings.length;

function mostCommon(hashes) {
  const counts = new Map();
  hashes.forEach((hash) => counts.set(hash, (counts.get(hash) ?? 0) + 1));
  return [...counts].reduce((most, next) => (next[1] > most[1] ? next : most), [null, 0])[0];
}

class ProcessCard {
  constructor(process) {
    this.node = fromTemplate("process-card");
    this.name = element("span");
    const number = element("code", { textContent: shortly(process) });
    this.node.querySelector("h3").append(this.name, number);
    this.values = new Map();
    for (const [name, label] of FACTS) {
      const value = element("dd");
      this.values.set(name, value);
      value.dataset.fact = name;
      this.node.querySelector("dl").append(
        element("div", {}, element("dt", { textContent: label }), value));
    }
  }

  show(it) {
    this.node.setAttribute("aria-label", `process ${processWords(it.process, it.name)}`);
    this.node.classList.toggle("this", it.this);
    say(this.name, visible(it.name));
    const late = it.seen_ago_s > 3 ? [`not seen for ${duration(it.seen_ago_s)}`] : [];
    const flags = [...(it.this ? ["this one"] : []), ...late];
    sayAll(this.node.querySelector(".flags"), "span", flags);
    this.set("allowed", `${grouped(it.allowed_per_s)}/s`, false);
    this.set("denied", `${grouped(it.denied_per_s)}/s`, false);
    const refused = it.reload_failing ? "; the last reload was refused" : "";
    this.set("rules", `${grouped(it.rules)}, version ${grouped(it.version)}${refused}`, refused);
    const differs = it.differs ? "; most processes have other rules" : "";
    this.set("hash", (it.content_hash?.slice(0, 8) ?? "none") + differs, differs);
    this.set("breaker", it.breaker, it.breaker === "open");
    this.set("fallback", it.fallback ? "decides now" : "not in use", it.fallback);
    const error = it.last_error;
    this.set("error", error ? `${visible(error.kind)}, ${ago(error.ago_s)}` : "none",
      error !== null && error.ago_s < 60);
    this.set("started", ago(it.started_ago_s), false);
    sayAll(this.node.querySelector(".warnings"), "li", it.warnings.map(visible));
  }

  set(name, text, isBad) {
    const value = this.values.get(name);
    say(value, text);
    value.classList.toggle("bad", Boolean(isBad));
  }
}
