//! The same as numbers.

use crate::limit::{MAX, WINDOW};
use crate::measure;
use crate::replay::Outcome;
use crate::traffic::Traffic;

pub(crate) fn of(traffic: &Traffic, outcomes: &[Outcome<'_>]) -> String {
    let rows = outcomes.iter().map(|outcome| row(traffic, outcome));
    heading(traffic) + &rows.collect::<String>()
}

fn heading(traffic: &Traffic) -> String {
    let most = format!("most in any {} s", WINDOW.as_secs());
    format!(
        "{}: {}\n{:<15} {:>8} {:>9} {most:>17} (limit {MAX})\n",
        traffic.name, traffic.about, "algorithm", "offered", "admitted"
    )
}

fn row(traffic: &Traffic, outcome: &Outcome<'_>) -> String {
    let name = &outcome.contender.name;
    let offered = measure::units(&traffic.offered);
    let admitted = measure::units(&outcome.admitted);
    let most = measure::most_in_any_window(&outcome.admitted);
    format!("{name:<15} {offered:>8} {admitted:>9} {most:>17}\n")
}
