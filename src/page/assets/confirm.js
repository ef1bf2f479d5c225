// The question before something is changed: which rule, which key, and what it does.

import { byId, isWhole, keyWords, say, visible } from "./words.js";

const dialog = byId("confirm"), form = byId("confirm-form"), span = byId("confirm-span");
let action;

/**
 * Asks, and does it when the answer is yes. While `act` fails, the dialog stays open and shows why.
 * `act` gets the seconds that were chosen, if `hasSpan`.
 */
export function confirm({ title, rule, key, effect, button, hasSpan = false, act }) {
  action = act;
  say(byId("confirm-title"), title);
  say(byId("confirm-rule"), visible(rule));
  say(byId("confirm-key"), key);
  say(byId("confirm-effect"), effect);
  say(byId("confirm-do"), button);
  say(byId("confirm-error"), "");
  span.hidden = span.disabled = !hasSpan;
  dialog.showModal();
  // Not the button that does it: a key that was pressed too often does nothing.
  byId("confirm-cancel").focus();
}

export const target = ({ rule, subject, key, row, plan }) => ({
  rule, ...(isWhole(key) ? { key, subject } : { row }), ...(plan ? { plan } : {}),
});

export const named = (item) => ({ rule: item.rule, key: keyWords(item) });

function seconds() {
  const { value } = form.elements.seconds;
  const chosen = value === "own" ? Math.round(form.elements.own.value * 60) : Number(value);
  // Zero seconds would end it.
  if (!(chosen >= 1 && chosen <= 86_400)) throw new Error("Say for how many minutes: 1 to 1,440.");
  return chosen;
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
    await action(span.disabled ? undefined : seconds());
    dialog.close();
  } catch (error) {
    say(byId("confirm-error"), error.message);
  } finally {
    button.disabled = false;
  }
});
