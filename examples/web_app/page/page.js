// Looks at /status each second, and shows what it says.

import { Card } from "./card.js";
import { ask } from "./requests.js";
import { byId, element, icon, now, pause, say, wait } from "./words.js";

const BETWEEN_LOOKS = 1_000;

/** The cards by the paths of their rules. */
let cards = new Map();

function show(status) {
  showCards(status);
  showStore(status.store);
  showFile(status.reload);
  showNotes(status);
}

/** A card stays as long as its rule, whatever its limits become. */
function showCards({ rules, uptime_ms: at }) {
  const before = cards;
  cards = new Map();
  for (const rule of rules) {
    const card = before.get(rule.path) ?? new Card(rule.path, () => server.isDown());
    card.update(rule, at);
    cards.set(rule.path, card);
  }
  const gone = [...before].filter(([path]) => !cards.has(path));
  const isNew = [...cards].filter(([path]) => !before.has(path));
  gone.forEach(([, card]) => card.end());
  if (isNew.length === 0) return;
  byId("cards").replaceChildren(...[...cards.values()].map((card) => card.node));
  isNew.forEach(([, card]) => card.begin());
}

let shownStore;
function showStore(store) {
  if (store === shownStore) return;
  shownStore = store;
  const memory = store === "memory";
  const host = memory ? "127.0.0.1:6379" : store.replace(/^redis at /, "");
  const url = host.startsWith("/") ? `unix://${host}` : `redis://${host}`;
  const port = (Number(location.port) || 3000) + 1;
  const command = `PORT=${port} REDIS_URL=${url} cargo run --example web_app`;
  byId("store").textContent = memory ? "the memory of this process" : store;
  byId("how").replaceChildren(
    memory
      ? "The limits hold for this process alone. Processes that use one Redis share them:"
      : "All processes that use this Redis share the limits. Start another one:",
    element("code", { textContent: command }),
  );
}

function showFile({ file, version, applied_ms_ago: ago }) {
  say(byId("file"), file ?? "no file is watched");
  say(byId("version"), `version ${version}, applied ${inSeconds(ago)} ago`);
}

const inSeconds = (ms) => (ms < 60_000 ? `${Math.floor(ms / 1000)} s` : wait(ms));

function showNotes({ enabled, rules, reload }) {
  const notes = [];
  if (reload.error !== null) {
    const since = inSeconds(reload.failing_ms_ago);
    notes.push(["bad", `The file with the rules was refused ${since} ago, and the old rules stay: `
      + reload.error]);
  }
  if (reload.kept_rules.length > 0) {
    const kept = reload.kept_rules.join(", ");
    notes.push(["", `Not in the file any more, but kept, because routes use them: ${kept}. `
      + "To switch one off, write enabled = false into its table."]);
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

  async look() {
    let status;
    try {
      const { response, body } = await ask("/status", {});
      if (!response.ok) throw new Error(response.statusText);
      status = JSON.parse(body);
    } catch {
      this.isDown();
      return;
    }
    this.isUp();
    show(status);
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
