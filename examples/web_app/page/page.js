// Looks each second at what the limits have decided, and shows it.

import { Card } from "./card.js";
import { ask } from "./requests.js";
import { Try } from "./try.js";
import { byId, element, icon, now, pause, say } from "./words.js";

const BETWEEN_LOOKS = 1_000;

/** The cards by the paths of their rules. */
let cards = new Map();
/** The last second that was shown. */
let tick = 0;
const steps = new Try();

async function load(url) {
  const { response, body } = await ask(url, {});
  if (!response.ok) throw new Error(response.statusText);
  return JSON.parse(body);
}

function show(counted, app, demo, { redis_answers: redisAnswers }) {
  tick = counted.tick;
  showCards(counted.rules, new Map(app.rules.map((rule) => [rule.path, rule])));
  steps.show(cards, demo);
  showStore(counted, redisAnswers === false);
  say(byId("file"), counted.file ?? "no file is watched");
  say(byId("version"), `version ${counted.version}`);
  showNotes(counted, app.kept_rules);
}

/** A card stays as long as its rule, whatever its limits become. */
function showCards(counted, routes) {
  const before = cards;
  const isRouted = ({ rule }) => routes.has(rule);
  const rules = counted.filter(isRouted).sort((a, b) => (a.rule < b.rule ? -1 : 1));
  cards = new Map();
  for (const rule of rules) {
    const card = before.get(rule.rule) ?? new Card(rule.rule, () => server.isDown());
    card.update({ ...rule, ...routes.get(rule.rule) });
    cards.set(rule.rule, card);
  }
  const gone = [...before].filter(([path]) => !cards.has(path));
  const isNew = [...cards].filter(([path]) => !before.has(path));
  gone.forEach(([, card]) => card.end());
  if (isNew.length === 0) return;
  byId("cards").replaceChildren(...[...cards.values()].map((card) => card.node));
  isNew.forEach(([, card]) => card.begin());
}

let shownStore;
function showStore({ store, store_name: name }, isAway) {
  const memory = store === "memory";
  say(byId("store"), memory ? "the memory of this process"
    : `${name}${isAway ? ", which does not answer now" : ""}`);
  if (name === shownStore) return;
  shownStore = name;
  const host = memory ? "127.0.0.1:6379" : name.replace(/^redis (at )?/, "");
  const url = host.startsWith("/") ? `unix://${host}` : `redis://${host}`;
  const port = (Number(location.port) || 3000) + 1;
  const command = `PORT=${port} REDIS_URL=${url} cargo run --example web_app`;
  byId("how").replaceChildren(
    memory
      ? "The limits hold for this process alone. Processes that use one Redis share them:"
      : "All processes that use this Redis share the limits. Start another one:",
    element("code", { textContent: command }),
  );
}

function showNotes({ enabled, rules, reload_error: error }, kept) {
  const notes = [];
  if (error) notes.push(["bad", `The file was refused, and the old rules stay: ${error}`]);
  if (kept.length > 0) {
    notes.push(["", `Not in the file any more, but kept, because routes use them: `
      + `${kept.join(", ")}. To switch one off, write enabled = false into its table.`]);
  }
  if (!enabled) {
    notes.push(["", "Limiting is disabled in the file with the rules: every request passes."]);
  } else if (rules.length === 0) {
    notes.push(["", "There are no rules: nothing is limited."]);
  }
  showNoteTexts(notes);
}

/** Each note keeps its element while only its text changes. */
function showNoteTexts(notes) {
  const list = byId("notes");
  while (list.children.length > notes.length) list.lastElementChild.remove();
  while (list.children.length < notes.length) list.append(element("p"));
  notes.forEach(([kind, text], index) => {
    const node = list.children[index];
    node.className = `note ${kind}`;
    say(node, text);
  });
}

const server = {
  wasUp: false,

  isUp() {
    this.wasUp = true;
    this.pill("up", "allowed", "server answers");
  },

  isDown() {
    this.pill("down", "failed", "no answer");
    if (this.wasUp) return;
    byId("store").textContent = "no answer";
    const text = "The server does not answer. This page shows the limits once it does.";
    showNoteTexts([["bad", text]]);
  },

  pill(state, shape, text) {
    const pill = byId("server");
    if (pill.dataset.state === state) return;
    pill.dataset.state = state;
    pill.className = `pill ${state}`;
    pill.replaceChildren(icon(shape), text);
  },

  /** The counters are those of the page at /limits; the app itself knows the URLs. */
  async look() {
    let views;
    try {
      views = await Promise.all([load(`/limits/api/now?after=${tick}`), load("/status"),
        load("/demo"), load("/limits/api/fleet")]);
    } catch {
      this.isDown();
      return;
    }
    this.isUp();
    show(...views);
  },

  async watch() {
    for (;;) {
      const started = now();
      await this.look();
      await pause(Math.max(BETWEEN_LOOKS - (now() - started), 100));
    }
  },
};

function frame() {
  const at = now();
  cards.forEach((card) => card.draw(at));
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (calm) setTimeout(frame, 500);
  else requestAnimationFrame(frame);
}

server.watch();
frame();
