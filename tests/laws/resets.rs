//! What was reset is as good as new, but for receipts from before: they give nothing back.

use proptest::prelude::*;
use tidegate::Algorithm;
use tidegate::algorithm::Count;

use crate::check::{check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, Setup, Taken, history, quotas, steps, way};

for_each_algorithm!(what_was_reset_is_as_good_as_new);

fn what_was_reset_is_as_good_as_new(algorithm: Algorithm) {
    let pause = prop::sample::select(vec![0_u64, 0, 0, 1, 300, 1_000]);
    let next = (way(algorithm), quotas(), any::<bool>(), steps(8));
    let histories = (history(algorithm), pause, next);
    let seen = check(
        histories,
        |((setup, before), pause, (way, quotas, is_same, after)), seen| {
            let mut old = Player::new(&setup);
            play(&mut old, before);
            if old.taken.is_empty() {
                return Ok(());
            }
            let at = old.now + pause;
            let (way, quotas) = if is_same {
                (setup.way, setup.quotas)
            } else {
                (way, quotas)
            };
            let setup = Setup {
                way,
                quotas,
                start: at,
            };
            let (mut reset, mut new) = (Player::new(&setup), Player::new(&setup));
            reset.count = old.count.clone();
            reset.count.reset(at);
            ensure!(
                reset.count.forgotten_at() <= at.saturating_add(1_000),
                "remembered until {}",
                reset.count.forgotten_at()
            );
            let bytes = reset.count.to_bytes().len();
            ensure!(bytes <= 64, "{bytes} bytes are left");
            seen.note_if(old.count.to_bytes().len() > bytes, "more bytes before");
            for step in after {
                // A store drops what is forgotten, and keeps the rest in bytes.
                let is_forgotten = reset.count.forgotten_at() <= reset.now;
                seen.note_if(is_forgotten, "dropped");
                reset.count = match is_forgotten {
                    true => Count::default(),
                    false => Count::from_bytes(&reset.count.to_bytes()).expect("its own bytes"),
                };
                if let Act::Take(cost) = new.act_without_refunds(step) {
                    let (expected, got) = (new.take(cost), reset.take(cost));
                    let alike =
                        (expected.verdict(), expected.quotas()) == (got.verdict(), got.quotas());
                    ensure!(
                        alike,
                        "{got:?} instead of {expected:?}: {:?}{}",
                        new.quotas,
                        story(&old.events) + &story(&reset.events)
                    );
                }
                let refund = |player: &Player, taken: &Taken| {
                    let mut count = player.count.clone();
                    count.refund(player.now, &taken.receipt, u64::MAX)
                };
                for taken in &old.taken {
                    let back = refund(&reset, taken);
                    ensure!(
                        back == 0,
                        "{back} given back of {:?}, reset at {at}: {:?}{}",
                        taken.receipt,
                        new.quotas,
                        story(&old.events) + &story(&reset.events)
                    );
                    let is_same_millisecond = taken.receipt.stamp() / 1_000 == at / 1_000;
                    seen.note_if(is_same_millisecond, "receipts of the same millisecond");
                }
                for (of_new, of_reset) in new.taken.iter().zip(&reset.taken) {
                    let expected = match of_reset.receipt.stamp() == at {
                        true => 0,
                        false => refund(&new, of_new),
                    };
                    let back = refund(&reset, of_reset);
                    ensure!(
                        back == expected,
                        "{back} given back instead of {expected}, reset at {at}: {:?}{}",
                        new.quotas,
                        story(&reset.events)
                    );
                    seen.note_if(back > 0, "later refunds");
                }
                new.wait(step.wait);
                reset.now = new.now;
            }
            seen.note_if(!is_same, "by another rule");
            Ok(())
        },
    );
    seen.expect("receipts of the same millisecond", 50);
    seen.expect("later refunds", 20);
    seen.expect("by another rule", 30);
    seen.expect("dropped", 20);
    seen.expect_some("more bytes before");
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
