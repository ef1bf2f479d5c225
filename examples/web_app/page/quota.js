// What remains of a quota, as far as the answers to this page tell.

import { now } from "./words.js";

/** The items of a RateLimit field, by name: {r, t}. */
export function items(field) {
  const found = new Map();
  for (const [, name, parameters] of (field ?? "").matchAll(/"([^"]*)"((?:;[^,;]*)*)/g)) {
    const item = {};
    for (const [, key, value] of parameters.matchAll(/;\s*([a-z]+)=(\d+)/g)) {
      item[key] = Number(value);
    }
    found.set(name, item);
  }
  return found;
}

/** One quota as this page knows it: the takes in its window, and when each of them leaves. */
export class Quota {
  constructor({ name, max, window_s }) {
    Object.assign(this, { name, max, window: window_s * 1_000 });
    this.forget();
  }

  /** A quota that goes on with the takes of the one that it replaces. */
  static after(before, policy) {
    const quota = new Quota(policy);
    const same = before.find((it) => it.name === quota.name && it.window === quota.window);
    if (same) Object.assign(quota, { takes: same.takes, heard: same.heard });
    return quota;
  }

  forget() {
    this.takes = [];
    this.heard = -Infinity;
  }

  prune(at) {
    this.takes = this.takes.filter((take) => take.leaves > at);
  }

  used() {
    return this.takes.reduce((sum, take) => sum + take.units, 0);
  }

  remaining() {
    return Math.max(this.max - this.used(), 0);
  }

  /** Units that others took, or this page before it was loaded. */
  others() {
    return this.takes.reduce((sum, take) => sum + (take.ours ? 0 : take.units), 0);
  }

  /** An answer to a request of this cost; `item` is what it says of this quota. */
  hear(sent, cost, item, isCharged) {
    const at = now();
    this.prune(at);
    const late = sent < this.heard;
    if (item && isCharged) {
      this.takes.push({ leaves: sent + this.window, units: cost, ours: true });
      // A later request's answer came first: there it was counted as somebody else's.
      if (late) this.drop(Math.min(cost, this.others()));
    }
    if (late || item?.r === undefined) return;
    this.heard = sent;
    const more = this.max - item.r - this.used();
    if (more > 0) this.takes.push({ leaves: at + this.window, units: more, ours: false });
    if (more < 0) this.drop(-more);
    this.sort();
    if (isCharged || item.r >= cost || item.t === undefined) return;
    this.expect(cost - item.r, at + item.t * 1000);
  }

  sort() {
    this.takes.sort((a, b) => a.leaves - b.leaves);
  }

  /** A denial says when the next units come back, and nothing of those behind them. */
  expect(units, leaves) {
    const first = this.takes.find((take) => !take.ours);
    if (!first || this.takes[0].leaves <= leaves) return;
    const next = Math.min(units, first.units);
    first.units -= next;
    this.takes = this.takes.filter((take) => take.units > 0);
    this.takes.push({ leaves, units: next, ours: false });
    this.sort();
  }

  /** The store counts less than we do: others' units first, then the oldest of ours. */
  drop(units) {
    for (const take of [...this.takes].sort((a, b) => a.ours - b.ours || a.leaves - b.leaves)) {
      const gone = Math.min(units, take.units);
      take.units -= gone;
      units -= gone;
    }
    this.takes = this.takes.filter((take) => take.units > 0);
  }
}
