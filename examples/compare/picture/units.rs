//! The lower chart: what was offered, and of it what was admitted.

use std::time::Duration;

use plotters::prelude::*;

use super::{Area, Drawn, axes, style};
use crate::measure;
use crate::replay::Outcome;
use crate::traffic::Traffic;

/// Wide enough to be seen as a step.
const SLOT: Duration = Duration::from_millis(500);

pub(super) fn draw(
    area: &Area<'_>,
    footer: u32,
    traffic: &Traffic,
    outcome: &Outcome<'_>,
) -> Drawn {
    let offered = measure::units_by_slot(&traffic.offered, SLOT);
    let admitted = measure::units_by_slot(&outcome.admitted, SLOT);
    let most = offered.iter().max().copied().unwrap_or(0);
    let mut chart = axes::chart(area, 1.1 * most as f64, footer)?;
    axes::mesh(&mut chart, &format!("units in {} s", SLOT.as_secs_f64()))?;
    let (grey, blue) = (style::OFFERED.filled(), style::ADMITTED.filled());
    chart.draw_series(AreaSeries::new(steps(&offered), 0.0, grey))?;
    chart.draw_series(AreaSeries::new(steps(&admitted), 0.0, blue))?;
    Ok(())
}

/// Each slot's units from its begin to its end.
fn steps(units: &[u64]) -> Vec<(f64, f64)> {
    let slot = SLOT.as_secs_f64();
    let step = |(number, &units): (usize, &u64)| {
        let (begin, units) = (number as f64 * slot, units as f64);
        [(begin, units), (begin + slot, units)]
    };
    units.iter().enumerate().flat_map(step).collect()
}
