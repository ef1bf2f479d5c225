//! A clock that goes back or forward: nothing panics, admissions resume within a window, and no
//! more than one extra quota is admitted; none where it only goes back. Windows of the receipts'
//! stamps may then hold one extra quota for each step.

use proptest::prelude::*;
use tidegate::{Algorithm, Decision, Quota};

use crate::check::{Broken, Seen, check, ensure, for_each_algorithm, story};
use crate::history::{Act, Player, Setup, Step, micros, quotas, steps, way};
use crate::oracle::{limit, span_of_memory, window};

for_each_algorithm!(
    steps_back_admit_nothing_more,
    a_jump_admits_at_most_one_extra_quota,
    refunds_after_a_jump_add_nothing,
    admissions_resume_within_a_window,
    answers_hold_after_a_jump,
);

/// A jump, before which step it happens, and before which the clock is set right again, or goes
/// back once more.
#[derive(Debug, Clone, Copy)]
struct Jump {
    size: u16,
    at: usize,
    until: usize,
    only_back: bool,
}

impl Jump {
    /// Small and large, to both sides, and about as long as a window.
    fn by(self, window: u64) -> i64 {
        let part = i64::from(self.size / 32);
        let window = i64::try_from(window).expect("at most ten years");
        let by = match self.size / 2 % 16 {
            0..=2 => 1 + part,
            3 | 4 => 1_000 * (1 + part % 8),
            5..=8 => window / 4 * (1 + part % 7),
            9..=11 => window + part % 3 - 1,
            12 | 13 => 3 * window,
            _ => 1_000_000 * window.min(1_000_000_000),
        };
        if self.size.is_multiple_of(2) && !self.only_back {
            by
        } else {
            -by
        }
    }
}

/// So late that no jump leads before the epoch.
const START: u64 = 1 << 61;

fn history(algorithm: Algorithm) -> impl Strategy<Value = (Setup, Vec<Step>, Jump)> {
    let setup = (way(algorithm), quotas()).prop_map(|(way, quotas)| Setup {
        way,
        quotas,
        start: START,
    });
    let jump = (any::<u16>(), 0..16_usize, 1..16_usize).prop_map(|(size, at, for_steps)| Jump {
        size,
        at,
        until: at + for_steps,
        only_back: false,
    });
    (setup, steps(24), jump)
}

/// Plays a history with one jump, and tells after each step whether the clock is right.
fn play(
    (setup, steps, jump): (Setup, Vec<Step>, Jump),
    seen: &Seen,
    law: impl Fn(&mut Playing, Option<(u64, Decision)>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let by = jump.by(window(&setup.quotas[0]));
    let mut playing = Playing {
        player: Player::new(&setup),
        off_by: 0,
        admitted: Vec::new(),
        jumps: 0,
    };
    for (index, step) in steps.into_iter().enumerate() {
        if index == jump.at {
            playing.jump(by);
            seen.note(if by > 0 { "forward" } else { "back" });
        }
        playing.player.wait(step.wait);
        if index == jump.until {
            playing.jump(if jump.only_back { by } else { -by });
            seen.note("set right");
        }
        let decision = playing.act(step);
        law(&mut playing, decision).map_err(|broken| {
            format!(
                "{broken}: {:?}{}",
                playing.player.quotas,
                story(&playing.player.events)
            )
        })?;
    }
    Ok(())
}

/// A player and the true time.
struct Playing {
    player: Player,
    off_by: i64,
    /// The true instant, the units, and what was given back of them.
    admitted: Vec<(u64, u64, u64)>,
    jumps: u32,
}

impl Playing {
    fn jump(&mut self, by: i64) {
        self.player.now = self
            .player
            .now
            .checked_add_signed(by)
            .expect("after the epoch");
        self.off_by += by;
        self.jumps += 1;
    }

    fn truth(&self) -> u64 {
        self.player
            .now
            .checked_add_signed(-self.off_by)
            .expect("after the epoch")
    }

    fn act(&mut self, step: Step) -> Option<(u64, Decision)> {
        match self.player.act(step) {
            Act::Take(cost) => {
                let decision = self.player.take_blindly(cost);
                if decision.receipt().is_some() {
                    self.admitted.push((self.truth(), cost, 0));
                }
                Some((cost, decision))
            }
            Act::Refund { index, units } => {
                let back = self.player.refund_blindly(index, units);
                self.admitted[index].2 += back;
                None
            }
        }
    }

    /// In windows of true time nothing is above its quota.
    fn no_more_in_truth(&self, algorithm: Algorithm) -> Result<(), Broken> {
        for quota in &self.player.quotas {
            let limit = u128::from(limit(self.player.way, quota));
            for (first, ..) in &self.admitted {
                let (units, span) = (self.since(*first), self.truth() - first);
                let most = most(algorithm, quota, limit, span).unwrap_or(u128::MAX);
                ensure!(units <= most, "{units} units of {quota:?} in {span}");
            }
        }
        Ok(())
    }

    /// Between two steps back the stamps are in order and break no law. So a window of stamps holds
    /// at most one quota more for each step.
    fn no_more_by_stamps(&self, algorithm: Algorithm, seen: &Seen) -> Result<(), Broken> {
        let taken = self.player.taken.iter().zip(&self.admitted);
        let kept = |units, back| u128::from(units - back);
        let stamps =
            taken.map(|(taken, (_, units, back))| (taken.receipt.stamp(), kept(units, back)));
        let mut stamps: Vec<_> = stamps.collect();
        stamps.sort_unstable();
        for quota in &self.player.quotas {
            let limit = u128::from(limit(self.player.way, quota));
            for (at, (first, _)) in stamps.iter().enumerate() {
                let mut units = 0;
                for (last, more) in &stamps[at..] {
                    units += more;
                    let Some(most) = most(algorithm, quota, limit, last - first) else {
                        break;
                    };
                    let jumps = u128::from(self.jumps);
                    ensure!(
                        units <= most * (1 + jumps),
                        "{units} units of {quota:?} stamped in {}, after {jumps} steps",
                        last - first
                    );
                    seen.note_if(units > most, "above a quota by the stamps");
                }
            }
        }
        Ok(())
    }

    /// Net units from this true instant on.
    fn since(&self, first: u64) -> u128 {
        let since = self.admitted.iter().filter(|(stamp, ..)| *stamp >= first);
        since.map(|(_, units, back)| u128::from(units - back)).sum()
    }
}

fn steps_back_admit_nothing_more(algorithm: Algorithm) {
    let seen = check(history(algorithm), |mut history, seen| {
        history.2.only_back = true;
        play(history, seen, |playing, decision| {
            if decision.is_some_and(|(_, decision)| decision.receipt().is_some()) {
                playing.no_more_in_truth(algorithm)?;
                playing.no_more_by_stamps(algorithm, seen)?;
            }
            Ok(())
        })
    });
    seen.expect("back", 50);
    seen.expect_some("above a quota by the stamps");
}

fn a_jump_admits_at_most_one_extra_quota(algorithm: Algorithm) {
    let seen = check(history(algorithm), |mut history, seen| {
        // Takes instead of refunds.
        for step in &mut history.1 {
            step.act -= u16::from(step.act % 16 > 12) * 3;
        }
        play(history, seen, |playing, _| {
            one_extra_quota(algorithm, playing, seen)
        })
    });
    seen.expect("forward", 20);
    seen.expect("back", 20);
    seen.expect("set right", 20);
    seen.expect_some("more than without a jump");
}

fn refunds_after_a_jump_add_nothing(algorithm: Algorithm) {
    let seen = check(history(algorithm), |history, seen| {
        play(history, seen, |playing, _| {
            for (_, units, back) in &playing.admitted {
                ensure!(back <= units, "more is given back than was charged");
                seen.note_if(*back > 0, "refunds");
            }
            one_extra_quota(algorithm, playing, seen)
        })
    });
    seen.expect("refunds", 50);
    seen.expect_some("more than without a jump");
}

fn one_extra_quota(algorithm: Algorithm, playing: &Playing, seen: &Seen) -> Result<(), Broken> {
    for quota in &playing.player.quotas {
        let limit = u128::from(limit(playing.player.way, quota));
        for first in playing.admitted.iter().map(|admitted| admitted.0) {
            let (units, span) = (playing.since(first), playing.truth() - first);
            let Some(most) = most(algorithm, quota, limit, span) else {
                continue;
            };
            ensure!(
                units <= most + limit,
                "{units} units of {quota:?} in {span}"
            );
            ensure!(
                playing.jumps > 0 || units <= most,
                "{units} units of {quota:?} in {span}, without a jump"
            );
            seen.note_if(units > most, "more than without a jump");
        }
    }
    Ok(())
}

/// The most that a span may admit if the clock is right; `None` where nothing can be said.
fn most(algorithm: Algorithm, quota: &Quota, limit: u128, span: u64) -> Option<u128> {
    if algorithm == Algorithm::Gcra {
        let drained = u128::from(span) * u128::from(quota.max()) / u128::from(window(quota));
        return Some(limit + drained);
    }
    let edges = u128::from(algorithm == Algorithm::FixedWindow);
    (span < window(quota)).then_some(limit * (1 + edges))
}

fn admissions_resume_within_a_window(algorithm: Algorithm) {
    let seen = check(history(algorithm), |history, seen| {
        play(history, seen, |playing, decision| {
            let player = &playing.player;
            // Only a charge changes anything, so nobody knows before that the clock jumped.
            let charged = decision.and_then(|(_, decision)| decision.receipt());
            if playing.jumps == 0 || charged.is_none() {
                return Ok(());
            }
            let spans = player
                .quotas
                .iter()
                .map(|quota| span_of_memory(player.way, quota));
            let then = player.would(player.now + spans.max().unwrap_or(0), 0);
            for (state, book) in then.quotas().iter().zip(&player.books) {
                ensure!(
                    state.remaining() == book.limit(),
                    "a window later: {then:?}"
                );
            }
            seen.note("asked after a jump");
            Ok(())
        })
    });
    seen.expect("forward", 20);
    seen.expect("back", 20);
    seen.expect("asked after a jump", 100);
}

fn answers_hold_after_a_jump(algorithm: Algorithm) {
    let seen = check(history(algorithm), |history, seen| {
        play(history, seen, |playing, decision| {
            let Some((cost, decision)) = decision else {
                return Ok(());
            };
            seen.note_if(
                playing.jumps > 0 && decision.retry_after().is_some(),
                "denied after a jump",
            );
            seen.note_if(playing.jumps > 0 && cost == 0, "peeked after a jump");
            answers(&playing.player, cost, &decision)
        })
    });
    seen.expect("denied after a jump", 50);
    seen.expect("peeked after a jump", 20);
}

fn answers(player: &Player, cost: u64, decision: &Decision) -> Result<(), Broken> {
    let remaining = decision.remaining();
    ensure!(
        player.would(player.now, remaining).is_allowed(),
        "what remains does not fit"
    );
    ensure!(
        !player.would(player.now, remaining + 1).is_allowed(),
        "more than remains fits"
    );
    if let Some(wait) = decision.retry_after() {
        let then = player.now + micros(Some(wait));
        ensure!(
            player.would(then, cost).is_allowed(),
            "denied after the wait"
        );
        ensure!(
            !player.would(then - 1, cost).is_allowed(),
            "allowed before the wait ends"
        );
    }
    for (index, (state, book)) in decision.quotas().iter().zip(&player.books).enumerate() {
        let is_whole = |now| player.would(now, 0).quotas()[index].remaining() == book.limit();
        let wait = micros(Some(state.reset_after()));
        ensure!(
            is_whole(player.now + wait),
            "quota {index} is not whole again"
        );
        ensure!(
            wait == 0 || !is_whole(player.now + wait - 1),
            "quota {index} was whole earlier"
        );
    }
    Ok(())
}
