//! When nothing counts any more, a count is as good as new: a store may drop it.

use proptest::prelude::*;
use tidegate::Algorithm;
use tidegate::algorithm::Count;

use crate::check::{check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, Setup, history, quotas, steps, way};
use crate::oracle::{span_of_memory, window};

for_each_algorithm!(
    what_is_forgotten_is_as_good_as_new,
    nothing_is_remembered_for_too_long,
);

fn what_is_forgotten_is_as_good_as_new(algorithm: Algorithm) {
    let next = (
        prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(way),
        quotas(),
    );
    let histories = (history(algorithm), next, any::<bool>(), 0..3_u64, steps(8));
    let seen = check(
        histories,
        |((setup, steps), (way, quotas), is_same, later, after), seen| {
            let mut old = Player::new(&setup);
            play(&mut old, steps);
            // The same rule, or any other.
            let start = old.now.max(old.count.forgotten_at()) + later * later * 500;
            let (way, quotas) = if is_same {
                (setup.way, setup.quotas)
            } else {
                (way, quotas)
            };
            let mut new = Player::new(&Setup { way, quotas, start });
            let mut count = old.count.clone();
            // A log tells takes of one millisecond apart only while it lives.
            let earlier =
                |taken: &&crate::history::Taken| taken.receipt.stamp() / 1_000 < start / 1_000;
            for taken in old.taken.iter().filter(earlier) {
                let back = count.clone().refund(start, &taken.receipt, u64::MAX);
                ensure!(
                    back == 0,
                    "{back} given back of what is forgotten: {:?}{}",
                    old.quotas,
                    story(&old.events)
                );
            }
            for step in after {
                new.wait(step.wait);
                let Act::Take(cost) = new.act_without_refunds(step) else {
                    continue;
                };
                let expected = new.take(cost);
                let got = count.take(new.way, new.now, &new.quotas, cost);
                let alike =
                    (expected.verdict(), expected.quotas()) == (got.verdict(), got.quotas());
                ensure!(
                    alike,
                    "{got:?} instead of {:?}, after {start}:{}",
                    new.quotas,
                    story(&old.events) + &story(&new.events)
                );
                seen.note_if(expected.receipt().is_some(), "charged");
                seen.note_if(!is_same, "by another rule");
            }
            // A store may have dropped it: an old receipt is none for what came since.
            // A log tells takes of one millisecond apart only while it lives.
            let earlier =
                |taken: &&crate::history::Taken| taken.receipt.stamp() / 1_000 < start / 1_000;
            for taken in old.taken.iter().filter(earlier) {
                let back = new.count.refund(new.now, &taken.receipt, u64::MAX);
                ensure!(
                    back == 0,
                    "{back} given back of something else: {:?}{}",
                    old.quotas,
                    story(&old.events) + &story(&new.events)
                );
            }
            seen.note_if(!old.taken.is_empty(), "forgotten");
            Ok(())
        },
    );
    seen.expect("charged", 50);
    seen.expect("by another rule", 50);
    seen.expect("forgotten", 50);
}

fn play(player: &mut Player, steps: Vec<crate::history::Step>) {
    for step in steps {
        player.wait(step.wait);
        match player.act(step) {
            Act::Take(cost) => {
                player.take(cost);
            }
            Act::Refund { index, units } => {
                player.refund(index, units);
            }
        }
    }
}

fn nothing_is_remembered_for_too_long(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        ensure!(
            Count::default().forgotten_at() <= player.now,
            "a new one is remembered"
        );
        play(&mut player, steps);
        let Some(last) = player.taken.last() else {
            return Ok(());
        };
        let spans = player
            .quotas
            .iter()
            .map(|quota| span_of_memory(player.way, quota).max(window(quota)));
        let latest = last.receipt.stamp() + spans.max().unwrap_or(0);
        let forgotten = player.count.forgotten_at();
        ensure!(
            forgotten <= latest,
            "remembered until {forgotten}: {:?}{}",
            player.quotas,
            story(&player.events)
        );
        seen.note("charged");
        Ok(())
    });
    seen.expect("charged", 50);
}
