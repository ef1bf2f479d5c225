//! What both charts of a row have: the same span of time from left to right, and a quiet grid.

use std::error::Error;

use plotters::prelude::*;

use super::{Area, Chart, Drawn, style};
use crate::limit::SPAN;

/// For the ticks and the name of the axis of units.
const LEFT: u32 = 56;
/// For the half of the last tick's text that is beyond the axis.
const RIGHT: u32 = 20;

/// From 0 to `top` units. Below it is the `footer`, if it has any: the ticks and the name of the
/// axis of time.
pub(super) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    top: f64,
    footer: u32,
) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin_right(RIGHT);
    builder.set_label_area_size(LabelAreaPosition::Left, LEFT);
    if footer > 0 {
        builder.set_label_area_size(LabelAreaPosition::Bottom, footer);
    }
    Ok(builder.build_cartesian_2d(0.0..SPAN.as_secs_f64(), 0.0..top)?)
}

/// The grid, the ticks and the names of the axes.
pub(super) fn mesh(chart: &mut Chart<'_, '_>, units: &str) -> Drawn {
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(7).y_labels(3);
    mesh.x_label_formatter(&|second| format!("{second:.0}"));
    mesh.y_label_formatter(&|units| format!("{units:.0}"));
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(style::GRID);
    mesh.axis_style(style::QUIET);
    mesh.label_style(style::text(style::SMALL, &style::QUIET));
    mesh.axis_desc_style(style::text(style::SMALL, &style::QUIET));
    mesh.x_desc("time, seconds").y_desc(units);
    Ok(mesh.draw()?)
}
