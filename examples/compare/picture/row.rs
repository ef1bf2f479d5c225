//! One contender: its numbers on the left, its charts on the right.

use super::{Area, Drawn, style, sums, units};
use crate::limit::{MAX, WINDOW};
use crate::measure;
use crate::replay::Outcome;
use crate::traffic::Traffic;

/// Between rows, and less between the charts of one row, so that one sees what belongs together.
const ROW_GAP: u32 = 18;
const CHART_GAP: u32 = 8;
const LEFT: i32 = 16;
const TEXTS: u32 = 214;
/// The height of the upper chart. The lower one has the rest.
const SUMS: u32 = 100;

/// A `footer` so high is below the lower chart, in the last row.
pub(super) fn draw(
    area: &Area<'_>,
    footer: u32,
    traffic: &Traffic,
    outcome: &Outcome<'_>,
) -> Drawn {
    let (_, area) = area.split_vertically(ROW_GAP);
    let (left, right) = area.split_horizontally(TEXTS);
    let (upper, lower) = right.split_vertically(SUMS);
    let (_, lower) = lower.split_vertically(CHART_GAP);
    texts(&left, traffic, outcome)?;
    sums::draw(&upper, outcome)?;
    units::draw(&lower, footer, traffic, outcome)
}

fn texts(area: &Area<'_>, traffic: &Traffic, outcome: &Outcome<'_>) -> Drawn {
    let name = style::bold(style::NAME, &style::TEXT);
    area.draw_text(&outcome.contender.name, &name, (LEFT, 0))?;

    let most = measure::most_in_any_window(&outcome.admitted);
    let text = format!("most in any {} s: {most}", WINDOW.as_secs());
    let style = match most > MAX {
        true => style::bold(style::NORMAL, &style::ABOVE_TEXT),
        false => style::text(style::NORMAL, &style::TEXT),
    };
    area.draw_text(&text, &style, (LEFT, 28))?;

    let admitted = measure::units(&outcome.admitted);
    let offered = measure::units(&traffic.offered);
    let text = format!("admitted: {admitted} of {offered}");
    area.draw_text(&text, &style::text(style::NORMAL, &style::TEXT), (LEFT, 50))?;
    Ok(())
}
