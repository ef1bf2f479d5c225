//! What leaves no trace: a denied take, a peek, and what was given back at once.

use tidegate::decision::{QuotaState, Verdict};
use tidegate::{Algorithm, Decision};

use crate::check::{Broken, check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, Step, history};

for_each_algorithm!(
    denials_and_peeks_leave_no_trace,
    refunds_at_once_leave_no_trace,
);

/// What a client may see of a decision; how a store tells takes apart is its own affair.
fn visible(decision: &Decision) -> (Verdict, Vec<QuotaState>) {
    (decision.verdict(), decision.quotas().to_vec())
}

fn denials_and_peeks_leave_no_trace(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        // Asked only for what is charged.
        let mut quiet = player.count.clone();
        for step in steps {
            player.wait(step.wait);
            match player.act(step) {
                Act::Take(cost) => {
                    let decision = player.take(cost);
                    if decision.receipt().is_some() {
                        let alike = quiet.take(player.way, player.now, &player.quotas, cost);
                        ensure!(
                            alike == decision,
                            "{alike:?}, had nobody asked: {:?}{}",
                            player.quotas,
                            story(&player.events)
                        );
                        seen.note("charged");
                    } else {
                        seen.note(if cost == 0 { "peeks" } else { "denied" });
                    }
                }
                Act::Refund { index, units } => {
                    let back = player.refund(index, units);
                    let receipt = player.taken[index].receipt.clone();
                    let alike = quiet.refund(player.now, &receipt, units);
                    ensure!(
                        alike == back,
                        "{alike} given back, had nobody asked: {:?}{}",
                        player.quotas,
                        story(&player.events)
                    );
                }
            }
        }
        let forgotten = (player.count.forgotten_at(), quiet.forgotten_at());
        ensure!(
            forgotten.0 == forgotten.1,
            "forgotten {forgotten:?}: {:?}{}",
            player.quotas,
            story(&player.events)
        );
        Ok(())
    });
    seen.expect("charged", 200);
    seen.expect("denied", 100);
    seen.expect("peeks", 50);
}

fn refunds_at_once_leave_no_trace(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        let (undo, rest) = steps.split_at(steps.len() / 2);
        for step in undo {
            player.wait(step.wait);
            play(&mut player, *step);
        }
        // An entry that was there keeps the stamp of the last take it was shared by, even if that
        // one is undone: its units come back late, as sharing allows.
        if player.books.iter().any(|book| book.would_share(player.now)) {
            seen.note("shared");
            return Ok(());
        }
        // The second half once as it is, and once after takes that were undone.
        let mut undone = player.clone();
        let before = player.taken.len();
        let takes = take_and_undo(&mut undone, undo)?;
        for step in rest {
            player.wait(step.wait);
            undone.now = player.now;
            let act = player.act(*step);
            let expected = play_act(&mut player, act);
            let got = play_act(&mut undone, behind(act, before, takes));
            ensure!(
                expected == got,
                "{expected:?} without {takes} takes that were undone, {got:?} with them: {:?}{}",
                player.quotas,
                story(&undone.events)
            );
        }
        seen.note_if(takes > 0, "undone");
        seen.note_if(takes > 1, "several undone");
        Ok(())
    });
    seen.expect("undone", 30);
    seen.expect("several undone", 10);
}

/// Several takes at this instant, all given back, the order is drawn.
fn take_and_undo(player: &mut Player, steps: &[Step]) -> Result<usize, Broken> {
    let before = player.taken.len();
    let steps = &steps[..steps.len().min(4)];
    for step in steps {
        if let Act::Take(cost) = player.act_without_refunds(*step) {
            player.take(cost);
        }
    }
    let mut indices: Vec<usize> = (before..player.taken.len()).collect();
    let takes = indices.len();
    for step in steps.iter().take(takes) {
        let index = indices.remove(usize::from(step.size / 16) % indices.len());
        let units = player.taken[index].receipt.units();
        let back = player.refund(index, units);
        ensure!(
            back == units,
            "{back} of {units} given back at once: {:?}{}",
            player.quotas,
            story(&player.events)
        );
    }
    Ok(takes)
}

/// The same act for a player who took more often in between.
fn behind(act: Act, before: usize, takes: usize) -> Act {
    match act {
        Act::Refund { index, units } if index >= before => Act::Refund {
            index: index + takes,
            units,
        },
        _ => act,
    }
}

type Seen = (Option<(Verdict, Vec<QuotaState>)>, u64);

fn play(player: &mut Player, step: Step) -> Seen {
    play_act(player, player.act(step))
}

/// What a client sees; of what is given back, what still counts.
fn play_act(player: &mut Player, act: Act) -> Seen {
    match act {
        Act::Take(cost) => (Some(visible(&player.take(cost))), 0),
        Act::Refund { index, units } => {
            let counted = player
                .books
                .iter()
                .map(|book| book.counted_of(player.now, index).most);
            let most = counted.max().unwrap_or(0);
            (None, player.refund(index, units).min(most))
        }
    }
}
