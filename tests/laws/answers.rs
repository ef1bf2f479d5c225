//! What an answer says is so: what remains, when to come back, when all is whole again.
//!
//! Each claim is put to the test on a clone, at the instant it speaks of and a microsecond before.

use tidegate::{Algorithm, Decision};

use crate::check::{Broken, check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, history, micros};

for_each_algorithm!(
    remaining_is_what_fits,
    retry_after_is_exact,
    reset_after_is_exact,
);

/// Plays a history, refunds and all, and looks at every decision.
fn every_decision(
    player: &mut Player,
    steps: Vec<crate::history::Step>,
    claim: impl Fn(&Player, u64, &Decision) -> Result<(), Broken>,
) -> Result<(), Broken> {
    for step in steps {
        player.wait(step.wait);
        match player.act(step) {
            Act::Take(cost) => {
                let decision = player.take(cost);
                claim(player, cost, &decision).map_err(|broken| {
                    format!("{broken}: {:?}{}", player.quotas, story(&player.events))
                })?;
            }
            Act::Refund { index, units } => {
                player.refund(index, units);
            }
        }
    }
    Ok(())
}

fn remaining_is_what_fits(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        every_decision(&mut player, steps, |player, _, decision| {
            let remaining = decision.remaining();
            ensure!(
                remaining <= player.least_limit(),
                "more than the limit remains"
            );
            let fits = player.would(player.now, remaining);
            ensure!(fits.is_allowed(), "{remaining} do not fit: {fits:?}");
            let more = player.would(player.now, remaining + 1);
            ensure!(!more.is_allowed(), "{} fit: {more:?}", remaining + 1);
            seen.note_if(remaining > 0, "something remains");
            seen.note_if(remaining == 0, "nothing remains");
            Ok(())
        })
    });
    seen.expect("something remains", 200);
    seen.expect("nothing remains", 200);
}

fn retry_after_is_exact(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        every_decision(&mut player, steps, |player, cost, decision| {
            let Some(wait) = decision.retry_after() else {
                return Ok(());
            };
            let wait = micros(Some(wait));
            ensure!(wait > 0, "denied, but not for any time");
            let then = player.would(player.now + wait, cost);
            ensure!(then.is_allowed(), "denied after the wait: {then:?}");
            let before = player.would(player.now + wait - 1, cost);
            ensure!(
                !before.is_allowed(),
                "allowed before the wait ends: {before:?}"
            );
            seen.note("denied");
            seen.note_if(cost > 1, "denied more than one unit");
            Ok(())
        })
    });
    seen.expect("denied", 100);
    seen.expect("denied more than one unit", 50);
}

fn reset_after_is_exact(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        every_decision(&mut player, steps, |player, _, decision| {
            for (index, (state, book)) in decision.quotas().iter().zip(&player.books).enumerate() {
                let wait = micros(Some(state.reset_after()));
                let is_whole =
                    |now| player.would(now, 0).quotas()[index].remaining() == book.limit();
                ensure!(
                    is_whole(player.now + wait),
                    "quota {index} is not whole again"
                );
                ensure!(
                    wait == 0 || !is_whole(player.now + wait - 1),
                    "quota {index} was whole earlier"
                );
                seen.note_if(wait > 0, "not whole");
                seen.note_if(wait == 0, "whole");
            }
            Ok(())
        })
    });
    seen.expect("not whole", 200);
    seen.expect("whole", 20);
}
