// How many requests there were in each second or minute, stacked by what became of them.

import { duration, grouped, perSecond, say } from "./words.js";

const WIDTH = 300, HEIGHT = 60;
/** From below. */
const KINDS = ["allowed", "denied", "shadow", "errors"];

export class Chart {
  constructor(card) {
    this.svg = card.querySelector("svg");
    this.paths = KINDS.map((kind) => this.svg.querySelector(`.${kind}`));
    this.from = card.querySelector(".from");
    this.most = card.querySelector(".most");
  }

  /** Draws `count` steps of `step` seconds, the last of them at the right. */
  draw(rule, step, count) {
    const series = KINDS.map((kind) => rule[kind].slice(-count));
    const sums = series[0].map((_, at) => series.reduce((sum, values) => sum + values[at], 0));
    const highest = Math.max(0, ...sums);
    const scale = HEIGHT / top(highest / step) / step;
    const width = WIDTH / count;
    const below = sums.map(() => 0);
    series.forEach((values, kind) => {
      const bars = values.map((value, at) => {
        if (value === 0) return "";
        const x = WIDTH - (values.length - at) * width;
        // One denial among thousands of requests is seen, too.
        const height = Math.max(value * scale, kind === 0 ? 0.5 : 1.5);
        const y = Math.max(HEIGHT - below[at] - height, 0);
        below[at] += height;
        return `M${x.toFixed(2)} ${y.toFixed(2)}h${width.toFixed(2)}v${height.toFixed(2)}`
          + `h-${width.toFixed(2)}z`;
      });
      this.paths[kind].setAttribute("d", bars.join(""));
    });
    const span = duration(step * count);
    say(this.from, `−${span}`);
    say(this.most, `at most ${perSecond(highest / step)} a second`);
    const totals = series.map((values, kind) =>
      `${grouped(values.reduce((sum, value) => sum + value, 0))} ${KINDS[kind]}`);
    this.svg.setAttribute("aria-label", `The last ${span}: ${totals.join(", ")}; at most `
      + `${perSecond(highest / step)} requests a second.`);
  }
}

/** A round number above: the scale changes in steps, so that bars do not shrink at each look. */
function top(highest) {
  const power = 10 ** Math.floor(Math.log10(Math.max(highest, 1)));
  const steps = [1, 2, 5, 10].map((step) => step * power);
  return Math.max(steps.find((step) => step >= highest), 5);
}
