// How many requests were allowed and denied in each second of the last minute.

const SPAN = 60_000, WIDTH = 300, HEIGHT = 56;
const SVG = "http://www.w3.org/2000/svg";

/** A graph of bars, each from one look at the counters to the next. */
export class Minute {
  constructor(svg) {
    this.svg = svg;
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    this.bars = [];
    this.last = undefined;
  }

  /** The counters at a time, in milliseconds since the server's start. */
  add(at, allowed, denied) {
    const last = this.last;
    this.last = { at, allowed, denied };
    // A server that was started again counts from zero.
    if (!last || at < last.at || allowed < last.allowed || denied < last.denied) this.bars = [];
    else if (at > last.at) {
      const seconds = (at - last.at) / 1000;
      const bar = { from: last.at, to: at };
      bar.allowed = (allowed - last.allowed) / seconds;
      bar.denied = (denied - last.denied) / seconds;
      this.bars.push(bar);
    }
    this.bars = this.bars.filter((bar) => bar.to > at - SPAN);
    this.draw(at);
  }

  /** The highest bar. */
  highest() {
    return Math.max(0, ...this.bars.map((bar) => bar.allowed + bar.denied));
  }

  draw(at) {
    // The scale changes in steps, so that bars do not shrink at each look.
    const steps = [6, 12, 25, 60, 120, 250, 600];
    const highest = this.highest();
    const top = steps.find((step) => step >= highest) ?? highest;
    const rectangles = this.bars.flatMap((bar) => {
      const x = ((bar.from - at) / SPAN + 1) * WIDTH;
      const width = ((bar.to - bar.from) / SPAN) * WIDTH - .6;
      const allowed = (bar.allowed / top) * HEIGHT, denied = (bar.denied / top) * HEIGHT;
      return [
        rectangle("allowed", x, HEIGHT - allowed, width, allowed),
        rectangle("degraded", x, HEIGHT - allowed - denied, width, denied),
      ];
    });
    this.svg.replaceChildren(...rectangles.filter((it) => it !== undefined));
  }
}

function rectangle(kind, x, y, width, height) {
  if (height <= 0) return undefined;
  const made = document.createElementNS(SVG, "rect");
  made.setAttribute("class", kind);
  for (const [name, value] of Object.entries({ x, y, width, height })) {
    made.setAttribute(name, Math.max(value, 0).toFixed(2));
  }
  return made;
}
