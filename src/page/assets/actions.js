// What somebody on call can do to a key. Each asks first.

import { send } from "./api.js";
import { confirm, named, target } from "./confirm.js";
import { byId, duration, keyWords, say, visible } from "./words.js";

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

  return {
    letThrough: (item) => confirm({
      ...named(item),
      title: "Let this key through?",
      effect: (item.subject
        ? "For this time its requests are limited and charged by the other subjects alone, "
        : "For this time its requests are neither limited nor charged by this rule, ")
        + `${everywhere()}. Somebody can end it before.`,
      button: "Let through",
      hasSpan: true,
      async act(seconds) {
        const answer = await send("let-through", { ...target(item), seconds });
        done(`Let through for ${duration(answer.ends_in_s ?? 0)}: ${whom(item)}.`);
      },
    }),

    end: (item) => confirm({
      ...named(item),
      title: "Limit this key again?",
      effect: `The rule limits it again within two seconds, ${everywhere()}.`,
      button: "Limit again",
      async act() {
        await send("let-through", { ...target(item), seconds: 0 });
        done(`Limited again: ${whom(item)}.`);
      },
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
