// What somebody on call can do to a key. Each asks first.

import { send } from "./api.js";
import { confirm, named, target } from "./confirm.js";
import { byId, duration, keyWords, quotaWords, say, visible } from "./words.js";

const UNUSED = " No request of this key counts now: is it the one?";

/** How long it is said what was done. */
const SAID = 10_000;

/** `changed` is called when something was changed. */
export function actions(changed, isShared) {
  const everywhere = () => (isShared() ? "in every process" : "in this process");
  let timer;
  const tell = (text) => {
    say(byId("said"), text);
    // Where it is longer than its place.
    byId("said").title = text;
  };
  const done = (text) => {
    tell(text);
    clearTimeout(timer);
    timer = setTimeout(() => tell(""), SAID);
    changed();
  };
  const whom = (item) => `${keyWords(item)}, rule ${visible(item.rule)}`;
  /** What limits nobody any more while everybody is let through. */
  const lifted = ({ rule, quotas = [] }) =>
    quotas.map((quota) => `${visible(quota.name)} (${quotaWords(quota)})`).join(" and ")
      || `what the rule ${visible(rule)} says`;
  /** For a time: `what` is the path of the API, `said` what was done. */
  const begin = (item, what, said, { title, effect, button, note = "", ...asked }) => confirm({
    ...named(item), title, button, hasSpan: true, ...asked,
    effect: `For this time its requests are ${effect}, ${everywhere()}. Somebody can end it `
      + `before.${note}${item.isUnused ? UNUSED : ""}`,
    async act(chosen) {
      const answer = await send(what, { ...target(item), ...chosen });
      const hint = answer.hint ? ` But ${visible(answer.hint)}.` : "";
      done(`${said} for ${duration(answer.ends_in_s ?? 0)}: ${whom(item)}.${hint}`);
    },
  });
  const end = (item, what, said, { title, button, ...body }) => confirm({
    ...named(item), title, button,
    effect: `The rule limits it as before within two seconds, ${everywhere()}.`,
    async act() {
      await send(what, { ...target(item), seconds: 0, ...body });
      done(`${said}: ${whom(item)}.`);
    },
  });

  return {
    letThrough: (item) => begin(item, "let-through", "Let through", {
      title: item.everyone ? "Let everybody through?" : "Let this key through?",
      effect: item.subject ? "limited and charged by the other subjects alone"
        : "neither limited nor charged by this rule",
      note: item.everyone ? ` It lifts ${lifted(item)} for everybody: all that wait pass.` : "",
      button: "Let through", isForAll: item.everyone,
    }),

    end: (item) => end(item, "let-through", "Limited again", {
      title: "Limit this key again?", button: "Limit again",
    }),

    block: (item) => begin(item, "block", "Blocked", {
      title: "Block this key?",
      effect: "denied by this rule and charged nothing",
      note: " Under a shadow rule it denies nothing.",
      button: "Block",
    }),

    raise: (item) => begin(item, "raise", "Raised", {
      title: "Raise the limits of this key?",
      effect: "limited by more: each max of the plan that they have is multiplied, also of bursts "
        + "and of requests at a time",
      note: " Afterwards a key that used more is denied until that has left its windows.",
      button: "Raise", isRaise: true,
    }),

    endRaise: (item) => end(item, "raise", "Raise ended", {
      title: "End the raise of this key?", button: "End the raise", factor: 1,
    }),

    unblock: (item) => end(item, "block", "Block ended", {
      title: "End the block of this key?", button: "End the block",
    }),

    reset: (item) => confirm({
      ...named(item),
      title: "Reset this key?",
      effect: "What it used is forgotten: its quotas are full again immediately, "
        + `${everywhere()}. The rule goes on limiting it.`,
      button: "Reset",
      async act() {
        const { found } = await send("reset", target(item));
        done(found ? `Reset: ${whom(item)}.` : `Nothing was counted for ${whom(item)}.`);
      },
    }),
  };
}
