//! One traffic as an SVG: a heading, a row for each contender, and below them the time.

mod axes;
mod header;
mod row;
mod style;
mod sums;
mod units;

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::replay::Outcome;
use crate::traffic::Traffic;

/// Pixels. So wide that a README shows it without making it much smaller.
const WIDTH: u32 = 1_100;
const HEADER: u32 = 112;
const ROW: u32 = 192;
/// The ticks and the name of the axis of time, below the last row.
const FOOTER: u32 = 44;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn Error>>;

pub(crate) fn draw(traffic: &Traffic, outcomes: &[Outcome<'_>]) -> Result<String, Box<dyn Error>> {
    let rows = u32::try_from(outcomes.len())?;
    let mut svg = String::new();
    let size = (WIDTH, HEADER + rows * ROW + FOOTER);
    draw_on(
        &SVGBackend::with_string(&mut svg, size).into_drawing_area(),
        traffic,
        outcomes,
    )?;
    Ok(svg)
}

fn draw_on(sheet: &Area<'_>, traffic: &Traffic, outcomes: &[Outcome<'_>]) -> Drawn {
    sheet.fill(&WHITE)?;
    let (header, mut below) = sheet.split_vertically(HEADER);
    header::draw(&header, traffic)?;
    for (number, outcome) in outcomes.iter().enumerate() {
        let footer = match number + 1 == outcomes.len() {
            true => FOOTER,
            false => 0,
        };
        let (row, rest) = below.split_vertically(ROW + footer);
        row::draw(&row, footer, traffic, outcome)?;
        below = rest;
    }
    Ok(sheet.present()?)
}
