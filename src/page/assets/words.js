// The document, and how numbers, times and names are put into words.

export const byId = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function fromTemplate(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

/** Touches the document only when something changed: most of what is polled did not. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows these texts as children with this name; those that are there are used again. */
export function sayAll(node, name, texts) {
  while (node.children.length > texts.length) node.lastElementChild.remove();
  while (node.children.length < texts.length) node.append(element(name));
  texts.forEach((text, index) => say(node.children[index], text));
}

export const grouped = (number) => number.toLocaleString("en");

export const perSecond = (number) =>
  (number > 0 && number < 10 && number % 1 ? number.toFixed(1) : grouped(Math.round(number)));

/** How long something takes or lasts: "31 s", "4 min 10 s", "1 h 5 min". */
export function duration(seconds) {
  const s = Math.max(Math.round(seconds), 0);
  const two = (whole, unit, rest, small) =>
    `${grouped(whole)} ${unit}${rest > 0 ? ` ${rest} ${small}` : ""}`;
  if (s < 60) return `${s} s`;
  if (s < 3_600) return two(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return two(Math.floor(s / 3_600), "h", Math.floor((s % 3_600) / 60), "min");
  return two(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3_600), "h");
}

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];

/** The same in one unit, for tables: "30 d" also a minute later. */
export function roughly(seconds) {
  const [unit, name] = UNITS.find(([unit]) => seconds >= 0.98 * unit) ?? [1, "s"];
  return `${grouped(Math.max(Math.round(seconds / unit), 0))} ${name}`;
}

export const ago = (seconds) => (seconds < 1 ? "now" : `${duration(seconds)} ago`);

/** For waits that end soon, where a tenth of a second matters. */
export const soon = (seconds) =>
  (seconds < 9.95 ? `${Math.max(seconds, 0).toFixed(1)} s` : duration(seconds));

const WINDOWS = [[86_400, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];

const cityOf = (zone) => zone.split("/").at(-1).replaceAll("_", " ");

/** An instant by the clocks of a time zone: "1 Dec 00:00". */
export function instant(inSeconds, timeZone) {
  // The end of a period is a whole minute, which the answer's way has moved.
  const at = new Date(Math.round((Date.now() + inSeconds * 1_000) / 60_000) * 60_000);
  const day = at.toLocaleDateString("en-GB", { timeZone, day: "numeric", month: "short" });
  const time = at.toLocaleTimeString("en-GB", { timeZone, hour: "2-digit", minute: "2-digit" });
  return `${day} ${time}`;
}

export function quotaWords({ max, window_s: seconds, concurrent, per, from, zone }) {
  if (concurrent) return `${grouped(max)} at a time`;
  const since = from ? ` from ${per === "month" ? `day ${from}` : from}` : "";
  if (per) return `${grouped(max)} a ${per}${since}, ${cityOf(zone)}`;
  const [unit, name] = WINDOWS.find(([unit]) => seconds % unit === 0) ?? [0.001, "millisecond"];
  const many = Math.round(seconds / unit);
  return `${grouped(max)} in any ${many === 1 ? name : `${grouped(many)} ${name}s`}`;
}

export function latency(microseconds) {
  if (microseconds === 0) return "–";
  const ms = microseconds / 1_000;
  return `${ms < 10 ? ms.toFixed(1) : grouped(Math.round(ms))} ms`;
}

/**
 * A name that somebody else chose. What is not seen, or turns the direction of what is, is written
 * as its number: two names that differ look different.
 */
export function visible(name) {
  const hidden = /[\p{C}\p{Zl}\p{Zp}]|^\p{Z}|\p{Z}$/gu;
  return name.replace(hidden, (it) => `\\u{${it.codePointAt(0).toString(16)}}`);
}

/** Whether a key is shown, and no part of it is masked. */
export const isWhole = (key) => key != null && !key.includes("…");

/** A key, or the beginning of its hash where keys are not shown; behind its subject, if it has one. */
export function keyWords({ subject, key, row }) {
  const words = key == null ? `#${row.slice(0, 8)}` : visible(key) || "all requests together";
  return subject ? `${visible(subject)} ${words}` : words;
}

/**
 * Shows a key in one line. Where it is longer than its place, its last letters are shown: keys
 * often differ by these.
 */
export function sayKey(node, item) {
  const words = keyWords(item);
  if (node.textContent === words) return;
  const letters = [...words];
  node.replaceChildren(
    element("span", { textContent: letters.slice(0, -8).join("") }),
    element("span", { textContent: letters.slice(-8).join("") }),
  );
  node.title = words;
}

export const shortly = (process) => visible(process.slice(0, 8));

/** The name of a process, if it has one, and its number. */
export const processWords = (process, name) =>
  (name ? `${visible(name)} (${shortly(process)})` : shortly(process));
