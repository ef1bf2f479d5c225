//! What is given back: no more than was charged, and no more than still counts.

use std::time::Duration;

use kit::random::Random;
use tidegate::algorithm::Count;
use tidegate::{Algorithm, Quota};

use crate::check::{Broken, Seen, check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, Setup, Way, history};
use crate::oracle::Book;

for_each_algorithm!(
    refunds_give_back_what_counts,
    many_takes_are_given_back_once_each,
    many_refunds_free_nothing_else,
);

fn refunds_give_back_what_counts(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        for step in steps {
            player.wait(step.wait);
            match player.act(step) {
                Act::Take(cost) => {
                    player.take(cost);
                }
                Act::Refund { index, units } => {
                    refund(&mut player, index, units, seen).map_err(|broken| {
                        format!("{broken}: {:?}{}", player.quotas, story(&player.events))
                    })?
                }
            }
        }
        Ok(())
    });
    seen.expect("refunds", 20);
    seen.expect("refunds of a part", 2);
    seen.expect("refunds of what has ceased to count", 15);
}

fn refund(player: &mut Player, index: usize, units: u64, seen: &Seen) -> Result<(), Broken> {
    let taken = player.taken[index].clone();
    let counted = |book: &Book| book.counted_of(player.now, index);
    let counted: Vec<_> = player.books.iter().map(counted).collect();
    let before = player.would(player.now, 0);
    let back = player.refund(index, units);
    let after = player.would(player.now, 0);
    ensure!(
        back <= taken.receipt.units().min(units),
        "more than was charged"
    );
    let most = counted.iter().map(|range| range.most).max().unwrap_or(0);
    ensure!(back <= most, "{back} given back, but {most} count");
    let least = counted
        .iter()
        .map(|range| range.least)
        .min()
        .unwrap_or(0)
        .min(units);
    ensure!(back >= least, "{back} given back, but {least} count");
    for (index, book) in player.books.iter().enumerate() {
        let (before, after) = (
            before.quotas()[index].remaining(),
            after.quotas()[index].remaining(),
        );
        ensure!(
            before <= after && after <= before.saturating_add(back),
            "{before} remained, then {after}"
        );
        ensure!(after <= book.limit(), "{after} remain, more than the limit");
    }
    seen.note_if(back > 0, "refunds");
    seen.note_if(
        back > 0 && back < taken.receipt.units(),
        "refunds of a part",
    );
    seen.note_if(most == 0, "refunds of what has ceased to count");
    Ok(())
}

/// However many were given back before, and in whatever order.
fn many_takes_are_given_back_once_each(algorithm: Algorithm) {
    const TAKES: u64 = 601;
    let quota = Quota::new(Duration::from_secs(1_000), 10_000).expect("within bounds");
    for stride in [1, 2, 250, TAKES - 1] {
        let mut count = Count::default();
        let mut receipts = Vec::new();
        for take in 0..TAKES {
            // A bucket must not drain meanwhile.
            let now = if algorithm == Algorithm::Gcra {
                TAKES
            } else {
                take / 100
            };
            let decision = count.take(algorithm, now, &[quota], 1 + take % 3);
            receipts.extend(decision.receipt());
        }
        let order = || (0..TAKES).map(|take| receipts[(take * stride % TAKES) as usize].clone());
        for receipt in order() {
            let back = count.refund(TAKES, &receipt, receipt.units());
            assert_eq!(back, receipt.units(), "{receipt:?}, stride {stride}");
        }
        let whole = count.take(algorithm, TAKES, &[quota], 0);
        assert_eq!(whole.remaining(), quota.max(), "stride {stride}");
    }
}

/// So many refunds, in any order, that it is not exactly known any more what was given back: never
/// too few units count, and not many too many.
fn many_refunds_free_nothing_else(algorithm: Algorithm) {
    for (round, depth) in [4, 60, 400, 400].into_iter().enumerate() {
        let mut random = Random::new(round as u64);
        let quotas = [(60, 400), (6, 100)].map(|(seconds, max)| {
            Quota::new(Duration::from_secs(seconds), max).expect("within bounds")
        });
        let mut player = Player::new(&Setup {
            way: Way {
                algorithm,
                sub_windows: 64,
            },
            quotas: quotas[..1 + round % 2].to_vec(),
            start: 7,
        });
        let mut charged = Vec::new();
        let mut more = 0;
        for step in 0..600 {
            player.now += random.below(3) * random.below(30_000);
            let decision = player.take(1 + random.below(3));
            if decision.receipt().is_some() {
                charged.push(player.taken.len() - 1);
            }
            for (book, state) in player.books.iter().zip(decision.quotas()) {
                let left = book.counted(player.now).left_of(book.limit());
                let remaining = state.remaining();
                assert!(
                    remaining <= left.most,
                    "{remaining} remain, not {left:?}, round {round}, step {step}"
                );
                more = more.max((left.least - remaining) * 100 / book.limit());
            }
            if random.is(90) && !charged.is_empty() {
                let back = random.below(depth).min(charged.len() as u64 - 1) as usize;
                let index = charged.remove(charged.len() - 1 - back);
                player.refund(index, u64::MAX);
            }
        }
        println!("{algorithm:?}, {depth}: {more} % more");
        assert!(
            more <= 10,
            "{more} % of the limit count longer, round {round}"
        );
    }
}
