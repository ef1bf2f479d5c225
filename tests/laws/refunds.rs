//! What is given back: once, no more than was charged, and no more than still counts.

use std::time::Duration;

use tidegate::algorithm::Count;
use tidegate::{Algorithm, Quota};

use crate::check::{Broken, Seen, check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, history};
use crate::oracle::Book;

for_each_algorithm!(
    refunds_give_back_what_counts,
    many_takes_are_given_back_once_each,
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
    seen.expect("second refunds", 15);
}

fn refund(player: &mut Player, index: usize, units: u64, seen: &Seen) -> Result<(), Broken> {
    let taken = player.taken[index];
    let counted = |book: &Book| book.counted_of(player.now, index);
    let counted: Vec<_> = player.books.iter().map(counted).collect();
    let before = player.would(player.now, 0);
    let back = player.refund(index, units);
    let after = player.would(player.now, 0);
    ensure!(
        back <= taken.receipt.units().min(units),
        "more than was charged"
    );
    if taken.is_refunded {
        ensure!(back == 0, "given back twice");
        seen.note("second refunds");
        return Ok(());
    }
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
        let order = || (0..TAKES).map(|take| receipts[(take * stride % TAKES) as usize]);
        for receipt in order() {
            let back = count.refund(TAKES, &receipt, receipt.units());
            assert_eq!(back, receipt.units(), "{receipt:?}, stride {stride}");
            assert_eq!(
                count.refund(TAKES, &receipt, 1),
                0,
                "{receipt:?}, stride {stride}"
            );
        }
        for receipt in order() {
            assert_eq!(
                count.refund(TAKES, &receipt, 1),
                0,
                "{receipt:?}, stride {stride}"
            );
        }
        let whole = count.take(algorithm, TAKES, &[quota], 0);
        assert_eq!(whole.remaining(), quota.max(), "stride {stride}");
    }
}
