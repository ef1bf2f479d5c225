// The question before something is changed: which rule, which key, and what it does.

import { byId, grouped, isWhole, keyWords, say, visible } from "./words.js";

const dialog = byId("confirm"), form = byId("confirm-form"), span = byId("confirm-span");
const raise = byId("confirm-raise");
let action, replaces;

/**
 * Asks, and does it when the answer is yes. While `act` fails, the dialog stays open and shows why.
 * `act` gets the seconds that were chosen and the note, if `hasSpan`, and the factor, if it
 * `isRaise`. What `isForAll` has a box to be ticked.
 */
export function confirm({
  title, rule, key, effect, button, hasSpan = false, isRaise = false, isForAll = false, act,
}) {
  action = act;
  replaces = false;
  say(byId("confirm-title"), title);
  say(byId("confirm-rule"), visible(rule));
  say(byId("confirm-key"), key);
  say(byId("confirm-effect"), effect);
  say(byId("confirm-do"), button);
  say(byId("confirm-error"), "");
  span.hidden = span.disabled = !hasSpan;
  form.elements.note.value = form.elements.only.value = "";
  byId("confirm-note").hidden = !hasSpan;
  raise.hidden = raise.disabled = !isRaise;
  byId("confirm-all").hidden = form.elements.all.disabled = !isForAll;
  form.elements.all.checked = false;
  for (const choice of span.querySelectorAll("[data-of]")) {
    choice.hidden = (choice.dataset.of === "raise") !== isRaise;
  }
  form.elements.own.max = isRaise ? 129_600 : 1_440;
  form.elements.seconds.value = "3600";
  dialog.showModal();
  // Not the button that does it: a key that was pressed too often does nothing.
  byId("confirm-cancel").focus();
}

export const target = ({ rule, subject, key, row, plan }) => ({
  rule, ...(isWhole(key) ? { key, subject } : { row }), ...(plan ? { plan } : {}),
});

export const named = (item) => ({ rule: item.rule, key: keyWords(item) });

function chosen() {
  const { seconds: { value }, own, factor, only, note } = form.elements;
  const names = only.value.split(",").map((it) => it.trim()).filter((it) => it);
  const seconds = value === "own" ? Math.round(own.value * 60) : Number(value);
  // Zero seconds would end it.
  if (!(seconds >= 1 && seconds <= own.max * 60)) {
    throw new Error(`Say for how many minutes: 1 to ${grouped(Number(own.max))}.`);
  }
  return {
    seconds,
    ...(note.value.trim() ? { note: note.value.trim() } : {}),
    ...(raise.disabled ? {} : { factor: Number(factor.value), only: names, replace: replaces }),
  };
}

byId("confirm-cancel").addEventListener("click", () => dialog.close());
form.elements.own.addEventListener("focus", () => {
  form.elements.seconds.value = "own";
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = byId("confirm-do");
  if (button.disabled) return;
  button.disabled = true;
  try {
    await action(span.disabled ? undefined : chosen());
    dialog.close();
  } catch (error) {
    say(byId("confirm-error"), error.message);
    // This click has shown which raise stands; the next one ends it.
    if (error.status === 428) {
      replaces = true;
      say(byId("confirm-do"), "Replace that raise");
    }
  } finally {
    button.disabled = false;
  }
});
