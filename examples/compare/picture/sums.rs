//! The upper chart: what was admitted in the last window, against the limit.

use std::time::Duration;

use plotters::prelude::*;

use super::{Area, Drawn, axes, style};
use crate::limit::{MAX, SPAN, WINDOW};
use crate::measure;
use crate::replay::Outcome;

/// A little more than a pixel.
const SLOT: Duration = Duration::from_millis(50);

const LIMIT: f64 = MAX as f64;
/// Twice the limit is seen as twice, with a little room above.
const TOP: f64 = 2.2 * LIMIT;

pub(super) fn draw(area: &Area<'_>, outcome: &Outcome<'_>) -> Drawn {
    let mut chart = axes::chart(area, TOP, 0)?;
    axes::mesh(&mut chart, &format!("units in {} s", WINDOW.as_secs()))?;
    let sums = corners(&measure::sums_of_window(&outcome.admitted, SLOT));
    let above: Vec<_> = sums.iter().map(|&(at, sum)| (at, sum.max(LIMIT))).collect();
    let (area, above_area) = (style::SUM.filled(), style::ABOVE.filled());
    chart.draw_series(AreaSeries::new(sums.clone(), 0.0, area))?;
    chart.draw_series(AreaSeries::new(above, LIMIT, above_area))?;
    chart.draw_series(LineSeries::new(sums, style::ADMITTED.stroke_width(2)))?;
    let limit = [(0.0, LIMIT), (SPAN.as_secs_f64(), LIMIT)];
    let line = style::TEXT.stroke_width(2);
    chart.draw_series(DashedLineSeries::new(limit, 14, 8, line))?;
    Ok(())
}

/// A point for each slot, without those amidst equal ones, which nobody would see. The last goes on
/// to the end.
fn corners(sums: &[u64]) -> Vec<(f64, f64)> {
    let is_corner = |at: &usize| {
        let before = at.checked_sub(1).map(|before| sums[before]);
        before != Some(sums[*at]) || sums.get(at + 1) != Some(&sums[*at])
    };
    let point = |at| (at as f64 * SLOT.as_secs_f64(), sums[at] as f64);
    let end = sums.last().map(|&sum| (SPAN.as_secs_f64(), sum as f64));
    let corners = (0..sums.len()).filter(is_corner).map(point);
    corners.chain(end).collect()
}
