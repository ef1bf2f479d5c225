//! The pure functions alone, against the oracle and the laws, without a server.

use kit::steps::{Seen, Theme, any_start, check_each, history, history_of, number_of_histories};
use tidegate::Algorithm;

use crate::reference::play;

kit::for_each_algorithm!(
    plain, long, owed, reloads, plans, given, raised, clock, longer, mixed, holds,
);

/// Without a server: also at the beginning of time, and far from it.
fn pure(algorithm: Algorithm, theme: Theme) -> Seen {
    let histories = history(algorithm, theme, any_start());
    let number = number_of_histories(800);
    check_each(number, &histories, |history, seen| {
        play(history, seen).result
    })
}

fn plain(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Plain);
    seen.expect(1_700, "admitted");
    seen.expect(1_400, "denied");
    seen.expect(300, "denied more than one unit");
    seen.expect(500, "admitted at no cost");
    seen.expect(230, "refunds");
    seen.expect(20, "refunds of a part");
    seen.expect(330, "refunds of what has ceased to count");
    seen.expect(4_400, "not whole");
    seen.expect(1_300, "left alone");
    seen.expect(70, "undone");
}

/// A few, but long enough to outlive many windows.
fn long(algorithm: Algorithm) {
    let histories = history_of(300, algorithm, Theme::Plain, any_start());
    let number = number_of_histories(8);
    let seen = check_each(number, &histories, |history, seen| {
        play(history, seen).result
    });
    seen.expect(100, "admitted");
}

/// What was used beyond a reservation is charged above the limit, as far as may be owed, and denies
/// takes until it has left.
fn owed(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Owed);
    seen.expect(800, "charged as owed");
    seen.expect(1_100, "above a limit");
    seen.expect(400, "forgiven");
    seen.expect(3_000, "denied");
}

/// The quotas change while something counts: nothing is refilled, nothing is held for longer than a
/// window, and what is given back is free again.
fn reloads(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Reloads);
    seen.expect(850, "reloads");
    seen.expect(550, "counted after a change");
    seen.expect(350, "denied after a change");
    seen.expect(140, "refunds");
    match algorithm {
        Algorithm::FixedWindow => seen.expect(900, "not whole, had nobody asked"),
        Algorithm::Gcra => {}
        _ => seen.expect(40, "counted at a switch"),
    }
}

/// What was charged in a window counts under every plan that has it, so that an upgrade keeps what
/// was used. Also while the rule loses plans and has them again.
fn plans(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Plans);
    seen.expect(1_500, "changes of the plan");
    seen.expect(1_800, "admitted");
    seen.expect(1_800, "denied");
    seen.expect(180, "reloads");
    seen.expect(230, "refunds");
}

/// Of what was charged under a window, no quota of it admits more than its max.
fn given(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Given);
    seen.expect(3_000, "changes of the plan");
    seen.expect(3_000, "admitted");
    seen.expect(4_000, "denied");
}

/// An operator raises a key's quotas, or lowers them, and ends that: none in force admits more than
/// its max, and what was used counts on.
fn raised(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Raised);
    seen.expect(3_000, "raised");
    seen.expect(3_000, "admitted");
    seen.expect(3_000, "denied");
}

/// A clock that goes back or ahead: admissions resume within a window, and no more than one extra
/// quota is admitted for each step ahead; none where it only goes back. Until it has caught up with
/// the last charge, all that counted then goes on counting, and a bucket is as full as it was.
fn clock(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Clock);
    seen.expect(280, "clocks ahead");
    seen.expect(280, "clocks that went back");
    seen.expect(900, "asked after a step");
    seen.expect(250, "asked behind the last charge");
    seen.expect(2, "above a quota after a step ahead");
    seen.expect(150, "refunds");
    seen.expect(280, "admitted at no cost");
    if algorithm != Algorithm::FixedWindow {
        seen.expect(100, "above a quota by the stamps");
    }
}

fn longer(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Longer);
    seen.expect(1_200, "reloads");
    seen.expect(2_500, "counted after a change");
    seen.expect(150, "refunds");
}

fn mixed(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Mixed);
    seen.expect(500, "reloads");
    seen.expect(500, "batches");
    seen.expect(250, "resets");
    seen.expect(130, "clocks that went back");
    seen.expect(290, "changes of the plan");
    seen.expect(170, "refunds");
    seen.expect(290, "charged as owed");
}

fn holds(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Holds);
    seen.expect(1_400, "held");
    seen.expect(700, "held beside others");
    seen.expect(1_300, "admitted");
    seen.expect(320, "resets");
}
