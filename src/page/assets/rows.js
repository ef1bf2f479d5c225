// A list whose elements stay while what they show changes.

import { grouped, say } from "./words.js";

/**
 * Shows items in elements, one for each name. While somebody points at the list or has its focus,
 * nothing moves: what is gone stays, marked, and what is new comes last.
 */
export class Rows {
  /** `make(item)` gives an object with a `node` and a method `show(item)`. */
  constructor(node, make) {
    this.node = node;
    this.make = make;
    this.made = new Map();
  }

  /** Shows at most `limit` of the items. */
  show(items, nameOf, limit = Infinity) {
    if (this.isHeld()) return this.showHeld(items, nameOf, limit);
    const shown = new Map(items.slice(0, limit).map((item) => [nameOf(item), item]));
    this.made.forEach((row, name) => shown.has(name) || this.remove(name));
    let next = this.node.firstElementChild;
    shown.forEach((item, name) => {
      const { node } = this.update(name, item);
      if (node === next) next = next.nextElementSibling;
      else this.node.insertBefore(node, next);
    });
  }

  showHeld(items, nameOf, limit) {
    const there = new Map(items.map((item) => [nameOf(item), item]));
    this.made.forEach((row, name) => row.node.classList.toggle("gone", !there.has(name)));
    there.forEach((item, name) => {
      if (!this.made.has(name) && this.made.size >= limit) return;
      const { node } = this.update(name, item);
      if (!node.isConnected) this.node.append(node);
    });
  }

  update(name, item) {
    let row = this.made.get(name);
    if (!row) this.made.set(name, (row = this.make(item)));
    row.node.classList.remove("gone");
    row.show(item);
    return row;
  }

  clear() {
    this.made.forEach((row, name) => this.remove(name));
  }

  remove(name) {
    this.made.get(name).node.remove();
    this.made.delete(name);
  }

  isHeld() {
    // A finger does not hover: what it touched last would be held until it touches something else.
    const isPointedAt = matchMedia("(hover: hover)").matches && this.node.matches(":hover");
    return isPointedAt || this.node.contains(document.activeElement);
  }
}

/** The cells of a row of a table, named for screens on which each is a line of its own. */
export function cells(labels) {
  return labels.map((label) => {
    const cell = document.createElement("td");
    cell.setAttribute("role", "cell");
    cell.dataset.label = label;
    return cell;
  });
}

export function tableRow(made) {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  row.append(...made);
  return row;
}

/** A button that shows all of them, or few again. */
export function showFold(button, count, few, isOpen, what) {
  button.hidden = count <= few;
  button.setAttribute("aria-expanded", Boolean(isOpen));
  say(button, isOpen ? `show ${few} ${what}` : `show all ${grouped(count)} ${what}`);
}
