//! What is offered, what to look at, and what the colours mean.

use plotters::prelude::*;

use super::{Area, Drawn, style};
use crate::limit::{MAX, WINDOW};
use crate::traffic::Traffic;

const LEFT: i32 = 16;
/// Where the legend is: the middle of its swatches.
const LEGEND: i32 = 99;
const SWATCH: i32 = 22;

pub(super) fn draw(area: &Area<'_>, traffic: &Traffic) -> Drawn {
    let text = style::text(style::NORMAL, &style::TEXT);
    let title = format!("Traffic \"{}\"", traffic.name);
    area.draw_text(&title, &style::bold(style::TITLE, &style::TEXT), (LEFT, 12))?;
    area.draw_text(traffic.about, &text, (LEFT, 43))?;
    area.draw_text(traffic.look, &text, (LEFT, 63))?;
    legend(area)
}

/// The places are fixed, with room for wider fonts: how wide a text will be is not known here.
fn legend(area: &Area<'_>) -> Drawn {
    let window = WINDOW.as_secs();
    filled(area, LEFT, style::OFFERED, "offered")?;
    filled(area, 130, style::ADMITTED, "admitted")?;
    filled(
        area,
        256,
        style::SUM,
        &format!("sum admitted in the last {window} s"),
    )?;
    line(area, (256, LEGEND - 6), SWATCH, style::ADMITTED)?;
    filled(area, 550, style::ABOVE, "of it above the limit")?;
    line(area, (760, LEGEND), 9, style::TEXT)?;
    line(area, (760 + SWATCH - 9, LEGEND), 9, style::TEXT)?;
    label(
        area,
        760,
        &format!("the limit: {MAX} units in any {window} s"),
    )
}

fn filled(area: &Area<'_>, x: i32, colour: RGBColor, text: &str) -> Drawn {
    let corners = [(x, LEGEND - 6), (x + SWATCH, LEGEND + 6)];
    area.draw(&Rectangle::new(corners, colour.filled()))?;
    label(area, x, text)
}

fn line(area: &Area<'_>, (x, y): (i32, i32), length: i32, colour: RGBColor) -> Drawn {
    let ends = [(x, y), (x + length, y)];
    area.draw(&PathElement::new(ends, colour.stroke_width(2)))?;
    Ok(())
}

fn label(area: &Area<'_>, x: i32, text: &str) -> Drawn {
    let style = style::centred(style::text(style::NORMAL, &style::TEXT));
    area.draw_text(text, &style, (x + SWATCH + 8, LEGEND))?;
    Ok(())
}
