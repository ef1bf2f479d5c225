// The document, and how numbers and times are put into words.

export const byId = (id) => document.getElementById(id);
export const now = () => performance.now();
export const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** A symbol of the page, by its name. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.classList.add(name);
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#${name}`);
  svg.append(use);
  return svg;
}

/** Touches the document only when something changed: this runs at every frame. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const grouped = (number) => number.toLocaleString("en");

/** In milliseconds, with a name and a short one. */
const UNITS = [
  [86_400_000, "day", "days"], [3_600_000, "hour", "h"], [60_000, "minute", "min"],
  [1_000, "second", "s"], [1, "millisecond", "ms"],
];

export function inWords(ms) {
  const [unit, name] = UNITS.find(([unit]) => ms % unit === 0);
  return ms === unit ? name : `${grouped(ms / unit)} ${name}s`;
}

export function shortly(ms) {
  const [unit, name, short] = UNITS.find(([unit]) => ms % unit === 0);
  return `${grouped(ms / unit)} ${ms === unit && name === "day" ? name : short}`;
}

export function wait(ms) {
  const s = Math.max(ms, 0) / 1000;
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${two((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${two((s % 86_400) / 3600)} h`;
}
