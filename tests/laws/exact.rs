//! What is admitted, and what is denied: no unit too many, and no denial without a reason.

use tidegate::decision::Verdict;
use tidegate::{Algorithm, Decision};

use crate::check::{self, Broken, Seen, check, check_some, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, Setup, Step, history, setup, steps};
use crate::oracle::Range;

for_each_algorithm!(
    takes_are_counted,
    takes_and_refunds_are_counted,
    long_histories_are_counted,
);

fn takes_are_counted(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        for step in steps {
            player.wait(step.wait);
            if let Act::Take(cost) = player.act_without_refunds(step) {
                take(&mut player, cost, seen)?;
            }
        }
        lawful(&player)
    });
    seen.expect("admitted", 200);
    seen.expect("denied", 100);
    seen.expect("never", 30);
    seen.expect("peeks", 50);
    seen.expect("denied by one of several", 10);
}

fn takes_and_refunds_are_counted(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        play_with_refunds(&setup, steps, seen)
    });
    seen.expect("admitted", 200);
    seen.expect("denied", 50);
    seen.expect("refunds", 30);
}

/// A few, but long enough to outlive many windows.
fn long_histories_are_counted(algorithm: Algorithm) {
    let histories = (setup(algorithm), steps(300));
    check_some(
        check::histories().div_ceil(100),
        histories,
        |(setup, steps), seen| play_with_refunds(&setup, steps, seen),
    );
}

fn play_with_refunds(setup: &Setup, steps: Vec<Step>, seen: &Seen) -> Result<(), Broken> {
    let mut player = Player::new(setup);
    for step in steps {
        player.wait(step.wait);
        match player.act(step) {
            Act::Take(cost) => take(&mut player, cost, seen)?,
            Act::Refund { index, units } => {
                let back = player.refund(index, units);
                seen.note_if(back > 0, "refunds");
            }
        }
    }
    lawful(&player)
}

pub(crate) fn take(player: &mut Player, cost: u64, seen: &Seen) -> Result<(), Broken> {
    let counted = counted(player);
    let decision = player.take(cost);
    verdict(player, cost, &counted, &decision, seen).map_err(|broken| tell(player, &broken))?;
    remaining(player, &decision).map_err(|broken| tell(player, &broken))
}

fn tell(player: &Player, broken: &str) -> Broken {
    format!("{broken}: {:?}{}", player.quotas, story(&player.events))
}

/// Units and limit of each quota.
pub(crate) fn counted(player: &Player) -> Vec<(Range, u64)> {
    let books = player.books.iter();
    books
        .map(|book| (book.counted(player.now), book.limit()))
        .collect()
}

fn verdict(
    player: &Player,
    cost: u64,
    counted: &[(Range, u64)],
    decision: &Decision,
    seen: &Seen,
) -> Result<(), Broken> {
    let never = counted.iter().any(|(_, limit)| cost > *limit);
    // As few as may count, and as many.
    let fits_at_best = |(range, limit): &&(Range, u64)| range.least.saturating_add(cost) <= *limit;
    let fits_at_worst = |(range, limit): &&(Range, u64)| range.most.saturating_add(cost) <= *limit;
    let fitting = counted.iter().filter(fits_at_best).count();
    match decision.verdict() {
        Verdict::Allowed if cost == 0 => seen.note("peeks"),
        Verdict::Allowed => {
            ensure!(fitting == counted.len(), "one unit too many, {counted:?}");
            seen.note("admitted");
        }
        Verdict::Denied { .. } => {
            ensure!(!never, "there is no use in waiting");
            ensure!(cost > 0, "a peek is denied");
            let all_fit = counted.iter().all(|counted| fits_at_worst(&counted));
            ensure!(!all_fit, "denied without a reason, {counted:?}");
            seen.note("denied");
            seen.note_if(fitting > 0, "denied by one of several");
        }
        Verdict::Never => {
            ensure!(never, "there is use in waiting");
            seen.note("never");
        }
        other => return Err(format!("no law for {other:?}")),
    }
    let charged = decision.receipt().map_or(0, |receipt| receipt.units());
    let expected = if decision.is_allowed() { cost } else { 0 };
    ensure!(charged == expected, "charged {charged}");
    ensure!(player.quotas.len() == decision.quotas().len(), "quotas");
    Ok(())
}

fn remaining(player: &Player, decision: &Decision) -> Result<(), Broken> {
    for (book, state) in player.books.iter().zip(decision.quotas()) {
        let left = book.counted(player.now).left_of(book.limit());
        let remaining = state.remaining();
        ensure!(left.contains(remaining), "{remaining} remain, not {left:?}");
    }
    Ok(())
}

/// Once more over the whole history, in the words of the law.
fn lawful(player: &Player) -> Result<(), Broken> {
    let broken = player.books.iter().find(|book| !book.is_lawful());
    ensure!(broken.is_none(), "{}", tell(player, "a window is too full"));
    Ok(())
}
