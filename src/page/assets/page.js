// Looks once a second, while somebody can see it, and says what this process says.

import { actions } from "./actions.js";
import { NoAnswer, Refusal } from "./api.js";
import { Fleet } from "./fleet.js";
import { Limited } from "./limited.js";
import { Now } from "./now.js";
import { OneKey } from "./one_key.js";
import { byId, processWords, say, sayAll, shortly, visible } from "./words.js";

const BETWEEN_LOOKS = 1_000;

const now = new Now(), fleet = new Fleet();
const changes = actions(() => look(), () => fleet.view?.shared ?? false);
const oneKey = new OneKey(changes);
const limited = new Limited({ ...changes, look: (item) => oneKey.open(item) });

async function look() {
  try {
    const view = await now.look();
    oneKey.know(view);
    await Promise.all([limited.look(view), fleet.look(), oneKey.look()]);
    showServer("up", `process ${shortly(view.process)} answers`);
    showFacts(view);
    showBanners(banners(view));
  } catch (error) {
    const isKnown = error instanceof NoAnswer || error instanceof Refusal;
    if (!isKnown) console.error(error);
    showServer("down", error instanceof NoAnswer ? "no answer" : "an error");
    showBanners([error.message]);
  }
}

function showServer(state, text) {
  const pill = byId("server");
  pill.className = `pill ${state}`;
  say(pill, text);
  document.body.classList.toggle("stale", state === "down");
}

const STORES = { redis: "Redis", memory: "the memory of this process", other: "another store" };

function showFacts(view) {
  const facts = [
    `Shown by process ${processWords(view.process, view.process_name)}`,
    `decided by ${view.store_name ? visible(view.store_name) : STORES[view.store]}`,
    `rules of version ${view.version}`
      + (view.content_hash ? ` (${view.content_hash.slice(0, 8)})` : "")
      + (view.file ? ` from ${visible(view.file.split(/[\\/]/).at(-1))}` : ""),
  ];
  say(byId("facts"), facts.join(" · "));
  byId("facts").title = view.file ? visible(view.file) : "";
  const rights = [
    view.keys_shown ? "" : "Keys are hidden: a row is named by a hash. .show_keys() shows them.",
    view.changes_allowed ? "" : "This page only shows. .allow_changes() lets it reset keys, let "
      + "them through, and block them.",
  ];
  say(byId("rights"), rights.join(" ").trim());
}

/** What somebody on call has to know before anything else. */
function banners(view) {
  const found = [];
  if ([fleet.view, limited.view].some((it) => it.redis_answers === false)) {
    found.push("Redis does not answer. Only this process is shown, and what it knows by itself.");
  }
  if (!view.enabled) found.push("Limiting is switched off: every request passes.");
  if (view.reload_failing) {
    const why = view.reload_error ? ` ${visible(view.reload_error)}` : "";
    found.push(`The last version of the rules was refused, and the old rules stay.${why}`);
  }
  const hashes = new Set(fleet.view.processes.map((it) => it.content_hash));
  if (hashes.size > 1) found.push("The processes of the fleet have different rules.");
  return found;
}

function showBanners(texts) {
  sayAll(byId("banners"), "p", texts);
}

async function watch() {
  for (;;) {
    const started = performance.now();
    await look();
    const rest = Math.max(BETWEEN_LOOKS - (performance.now() - started), 100);
    await new Promise((go) => setTimeout(go, rest));
    while (document.hidden) {
      await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true }));
    }
  }
}

// With a `<base>`, a link to a part of the page would load the page again.
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const section = byId(new URL(link.href).hash.slice(1));
    history.replaceState(null, "", `${location.pathname}${location.search}#${section.id}`);
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  });
}

watch();
