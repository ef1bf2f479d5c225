// The answers to this page, as marks on a line of time.

import { grouped, now, shortly } from "./words.js";

export const KINDS = ["allowed", "degraded", "failed"];

const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const others = ["pending", "text", "soft", "line", "window", "window-edge", "sunk"];
  for (const name of [...KINDS, ...others]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);
readColours();

const shapes = {
  allowed(c, x, y, r) { c.beginPath(); c.arc(x, y, r, 0, 7); c.fill(); },
  degraded(c, x, y, r) {
    const d = r * 1.22;
    c.beginPath(); c.moveTo(x, y - d);
    c.lineTo(x + d, y); c.lineTo(x, y + d); c.lineTo(x - d, y); c.fill();
  },
  failed(c, x, y, r) {
    const d = r * .8;
    c.lineWidth = r * .55; c.lineCap = "round";
    c.beginPath();
    c.moveTo(x - d, y - d); c.lineTo(x + d, y + d);
    c.moveTo(x + d, y - d); c.lineTo(x - d, y + d); c.stroke();
  },
  pending(c, x, y, r) {
    c.lineWidth = 1.8; c.setLineDash([3, 2.4]); c.lineDashOffset = -now() / 60;
    c.beginPath(); c.arc(x, y, r - 1, 0, 7); c.stroke(); c.setLineDash([]);
  },
};

/** Marks scroll to the left; those that would cover each other are stacked. */
export class TimeLine {
  static LEVELS = 6;
  static STEP = 13;
  static ROW = 17;

  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.marks = [];
  }

  setQuotas(quotas) {
    this.quotas = [...quotas].sort((a, b) => a.window - b.window).slice(0, 3);
    const shortest = this.quotas[0]?.window ?? 10_000;
    this.span = Math.min(Math.max(shortest * 1.45, 8_000), 120_000);
    this.height = 42 + TimeLine.ROW * this.quotas.length + TimeLine.STEP * (TimeLine.LEVELS + 1);
    this.canvas.style.height = `${this.height}px`;
    this.observer ??= new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    this.resize();
  }

  end() {
    this.observer.disconnect();
  }

  resize() {
    const scale = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth || 300;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.end = this.width - 30;
    this.perMs = (this.end - 6) / this.span;
  }

  add(mark) {
    const gap = 12 / this.perMs;
    const last = Array(TimeLine.LEVELS).fill(-Infinity);
    for (const { level, at } of this.marks) {
      if (level < TimeLine.LEVELS) last[level] = Math.max(last[level], at);
    }
    const free = last.findIndex((at) => mark.at - at >= gap);
    mark.level = free < 0 ? TimeLine.LEVELS : free;
    // Too many for one stack: counted together on top of it.
    const heap = this.heap;
    const joins = heap && (mark.at - heap.at) * this.perMs < 34;
    if (free < 0 && !joins) this.heap = { at: mark.at };
    if (free < 0) mark.heap = this.heap;
    this.marks.push(mark);
  }

  draw(at) {
    const c = this.context;
    c.clearRect(0, 0, this.width, this.height);
    const isShown = (mark) => mark.kind === "pending" || at - mark.at < this.span * 1.1;
    this.marks = this.marks.filter(isShown);
    this.floor = this.height - 22;
    this.drawWindows(c, at);
    this.drawAxis(c);
    this.drawMarks(c, at);
  }

  x(at, time) {
    return this.end - (at - time) * this.perMs;
  }

  drawWindows(c, at) {
    c.font = "11px system-ui, 'Liberation Sans', sans-serif";
    this.quotas.forEach((quota, row) => {
      const beyond = quota.window > this.span;
      const left = beyond ? 0 : this.end - quota.window * this.perMs;
      const y = 4 + row * TimeLine.ROW;
      const top = y + TimeLine.ROW / 2;
      c.fillStyle = colours.window;
      c.fillRect(left, top, this.end - left, this.floor - top);
      c.strokeStyle = c.fillStyle = colours["window-edge"];
      c.lineWidth = 1.5;
      c.beginPath();
      if (!beyond) { c.moveTo(left, this.floor); c.lineTo(left, top); } else c.moveTo(5, top);
      c.lineTo(this.end, top);
      c.stroke();
      if (beyond) {
        c.beginPath(); c.moveTo(1, top); c.lineTo(8, top - 4); c.lineTo(8, top + 4); c.fill();
      }
      const text = `${shortly(quota.window)} window${this.taken(quota)}`;
      this.label(c, text, left + (beyond ? 14 : 9), top, left - 9);
    });
    c.strokeStyle = colours.text;
    c.lineWidth = 1.5;
    c.beginPath(); c.moveTo(this.end, 6); c.lineTo(this.end, this.floor); c.stroke();
  }

  taken(quota) {
    return quota.heard > -Infinity ? `: ${grouped(quota.used())} taken` : "";
  }

  /** In the window, or on its left where it is too narrow. */
  label(c, text, x, y, right) {
    const width = c.measureText(text).width;
    if (x + width > this.end - 8) x = right - width;
    c.fillStyle = colours.sunk;
    c.fillRect(x - 4, y - 7, width + 8, 14);
    c.fillStyle = colours.text;
    c.textAlign = "left"; c.textBaseline = "middle";
    c.fillText(text, x, y + .5);
  }

  drawAxis(c) {
    c.strokeStyle = colours.line; c.lineWidth = 1;
    c.beginPath(); c.moveTo(0, this.floor + .5); c.lineTo(this.width, this.floor + .5); c.stroke();
    const steps = [1, 2, 5, 10, 15, 30, 60].map((s) => s * 1000);
    const step = steps.find((step) => step * this.perMs > 52) ?? 60_000;
    c.fillStyle = colours.soft; c.textBaseline = "top"; c.textAlign = "center";
    for (let back = step; back * this.perMs < this.end - 18; back += step) {
      const x = this.end - back * this.perMs;
      c.fillRect(x, this.floor, 1, 4);
      c.fillText(`−${back / 1000} s`, x, this.floor + 6);
    }
    c.fillStyle = colours.text;
    c.fillText("now", this.end, this.floor + 6);
  }

  drawMarks(c, at) {
    const window = this.quotas[0]?.window ?? Infinity;
    const heaps = new Map();
    for (const mark of this.marks) {
      if (mark.heap) {
        heaps.set(mark.heap, [...(heaps.get(mark.heap) ?? []), mark]);
        continue;
      }
      c.globalAlpha = at - mark.at > window ? .4 : 1;
      this.shape(c, mark.kind, this.x(at, mark.at), this.y(mark.level));
    }
    for (const [heap, marks] of heaps) {
      const count = (kind) => marks.filter((mark) => mark.kind === kind).length;
      const kinds = ["pending", ...KINDS].map((kind) => [kind, count(kind)]);
      const [kind] = kinds.reduce((most, next) => (next[1] > most[1] ? next : most));
      const x = this.x(at, heap.at), y = this.y(TimeLine.LEVELS);
      c.globalAlpha = at - heap.at > window ? .4 : 1;
      this.shape(c, kind, x, y);
      if (marks.length === 1) continue;
      c.font = "600 11px system-ui, 'Liberation Sans', sans-serif";
      c.textAlign = "center"; c.textBaseline = "middle";
      c.fillText(`×${marks.length}`, x, y - 12);
    }
    c.globalAlpha = 1;
  }

  y(level) {
    return this.floor - 9 - level * TimeLine.STEP;
  }

  shape(c, kind, x, y) {
    c.fillStyle = c.strokeStyle = colours[kind];
    shapes[kind](c, x, y, 5);
  }
}
