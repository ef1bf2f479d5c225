//! What was used beyond a reservation: it is charged above the limit, as far as may be owed, and
//! denies takes until it has left.

use tidegate::{Algorithm, Quota};

use crate::check::{Broken, Seen, check, ensure, for_each_algorithm, story};
use crate::exact::{counted, take};
use crate::history::{Act, Player, Step, history};
use crate::oracle::window;

for_each_algorithm!(
    units_owed_are_charged_as_far_as_may_be,
    units_owed_deny_until_they_have_left,
);

const TEN_YEARS: u128 = Quota::MAX_WINDOW.as_micros();

fn units_owed_are_charged_as_far_as_may_be(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        for step in steps {
            player.wait(step.wait);
            if step.act % 4 == 0 {
                owe(&mut player, step, seen).map_err(|broken| {
                    format!("{broken}: {:?}{}", player.quotas, story(&player.events))
                })?;
            } else if let Act::Take(cost) = player.act_without_refunds(step) {
                take(&mut player, cost, seen)?;
            }
        }
        Ok(())
    });
    seen.expect("charged", 50);
    seen.expect("charged above a limit", 30);
    seen.expect("forgiven", 30);
    seen.expect("denied", 50);
}

fn units_owed_deny_until_they_have_left(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut player = Player::new(&setup);
        for step in steps {
            player.wait(step.wait);
            if step.act % 4 == 0 {
                owe(&mut player, step, seen)?;
            }
            let now = player.now;
            let Some(wait) = player.would(now, 1).retry_after() else {
                continue;
            };
            let wait = u64::try_from(wait.as_micros()).expect("no more than ten years");
            let would = |after: u64| player.would(now + after, 1).is_allowed();
            ensure!(
                would(wait),
                "{wait} was not long enough: {:?}",
                player.quotas
            );
            ensure!(!would(wait - 1), "{wait} was too long: {:?}", player.quotas);
            ensure!(
                player.count.forgotten_at() > now + wait - 1,
                "forgotten while it still denies"
            );
            seen.note("denied");
        }
        Ok(())
    });
    seen.expect("denied", 100);
}

/// Charges what was used beyond, and writes it down.
fn owe(player: &mut Player, step: Step, seen: &Seen) -> Result<(), Broken> {
    let units = u64::from(step.size) % (2 * player.least_limit().min(1_000) + 3);
    let at_most = match step.act / 4 % 4 {
        0 => Some(u64::from(step.act / 16) % 20),
        1 => Some(u64::MAX),
        _ => None,
    };
    let most = |quota: &Quota, limit: u64| {
        let owed = u128::from(at_most.unwrap_or(quota.max()).min(Quota::MAX_UNITS));
        let drains = TEN_YEARS * u128::from(quota.max()) / u128::from(window(quota));
        let owed = match player.way.algorithm {
            Algorithm::Gcra => owed.min(drains),
            _ => owed,
        };
        if limit == 0 {
            0
        } else {
            u128::from(limit) + owed
        }
    };
    let before = counted(player);
    let rooms = player
        .quotas
        .iter()
        .zip(&before)
        .map(|(quota, (range, limit))| {
            let room = |used: u64| {
                let room = most(quota, *limit).saturating_sub(u128::from(used));
                u64::try_from(room).map_or(units, |room| room.min(units))
            };
            (room(range.most), room(range.least))
        });
    let (least, best) = rooms.fold((units, units), |all, one| {
        (all.0.min(one.0), all.1.min(one.1))
    });
    let charged = player
        .count
        .owe(player.way, player.now, &player.quotas, units, at_most);
    ensure!(
        (least..=best).contains(&charged),
        "{charged} of {units} charged, expected {least} to {best}"
    );
    if charged > 0 {
        for book in &mut player.books {
            book.admit(player.now, charged);
        }
    }
    let state = player.would(player.now, 0);
    for (quota, (range, limit)) in state.quotas().iter().zip(counted(player)) {
        ensure!(
            range.left_of(limit).contains(quota.remaining()),
            "{} remain of {limit}, {range:?} count",
            quota.remaining()
        );
        seen.note_if(range.least > limit, "charged above a limit");
    }
    seen.note_if(charged > 0, "charged");
    seen.note_if(charged < units, "forgiven");
    Ok(())
}
