//! Colours that the colour-blind tell apart (after Okabe and Ito), and sizes that can be read.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(super) const QUIET: RGBColor = RGBColor(0x55, 0x55, 0x55);
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
pub(super) const OFFERED: RGBColor = RGBColor(0xc4, 0xc4, 0xc4);
pub(super) const ADMITTED: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// The sum of what was admitted: the same colour, but lighter.
pub(super) const SUM: RGBColor = RGBColor(0xcc, 0xe3, 0xf0);
pub(super) const ABOVE: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// The same, darker, as text has to be.
pub(super) const ABOVE_TEXT: RGBColor = RGBColor(0xa6, 0x49, 0x00);

/// In pixels.
pub(super) const SMALL: f64 = 12.0;
pub(super) const NORMAL: f64 = 14.0;
pub(super) const NAME: f64 = 17.0;
pub(super) const TITLE: f64 = 22.0;

/// The backend divides sizes by this.
const BACKEND: f64 = 1.24;

/// No font is looked for here: the viewer chooses one.
pub(super) fn text(pixels: f64, colour: &'static RGBColor) -> TextStyle<'static> {
    let font = ("sans-serif", pixels * BACKEND).into_font();
    font.color(colour)
}

pub(super) fn bold(pixels: f64, colour: &'static RGBColor) -> TextStyle<'static> {
    let font = ("sans-serif", pixels * BACKEND).into_font();
    font.style(FontStyle::Bold).color(colour)
}

/// The same for a text at whose middle height the point is.
pub(super) fn centred(style: TextStyle<'static>) -> TextStyle<'static> {
    style.pos(Pos::new(HPos::Left, VPos::Center))
}
