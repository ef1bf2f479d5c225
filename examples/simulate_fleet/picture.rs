//! The outcomes as SVG.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::figures::{MODES, Sweep, UPSET_AT, Upsets};
use crate::simulation::{Mode, Outcome};

pub(crate) type Svg = Result<String, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const WIDTH: u32 = 1_100;
const HEADER: u32 = 84;
const PANEL: u32 = 290;
const ROW: u32 = 220;

const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
const QUIET: RGBColor = RGBColor(0x55, 0x55, 0x55);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

/// The title of a chart, the top of its axis, and what it shows.
type Panel = (&'static str, f64, fn(&Outcome) -> f64);

const PANELS: [Panel; 4] = [
    ("most admitted in any window / max", 1.4, Outcome::most),
    ("used share of the quota", 1.4, Outcome::used_share),
    (
        "questions to the server per request",
        1.4,
        Outcome::questions_per_request,
    ),
    ("latency, 99th percentile, ms", 110.0, |outcome| {
        outcome.p99() as f64
    }),
];

/// Colours that the colour-blind tell apart (after Okabe and Ito).
const fn style(mode: Mode) -> (RGBColor, &'static str) {
    match mode {
        Mode::Plain => (RGBColor(0x00, 0x72, 0xb2), "plain"),
        Mode::Leased => (RGBColor(0xd5, 0x5e, 0x00), "leased"),
        Mode::Cached => (RGBColor(0x56, 0xb4, 0xe9), "leased, denials cached"),
        Mode::Mixed => (RGBColor(0xe6, 0x9f, 0x00), "one of three leased"),
        Mode::OwnPart => (
            RGBColor(0x00, 0x9e, 0x73),
            "each process its own part of the quota",
        ),
        Mode::OwnWhole => (
            RGBColor(0xcc, 0x79, 0xa7),
            "each process the whole quota of its own",
        ),
    }
}

pub(crate) fn of_sweep(sweep: &Sweep) -> Svg {
    let mut svg = String::new();
    let backend = SVGBackend::with_string(&mut svg, (WIDTH, HEADER + 2 * PANEL));
    draw_sweep(&backend.into_drawing_area(), sweep)?;
    Ok(svg)
}

fn draw_sweep(sheet: &Area<'_>, sweep: &Sweep) -> Drawn {
    let below = header(sheet, sweep.title, &MODES)?;
    for (area, panel) in below.split_evenly((2, 2)).iter().zip(PANELS) {
        draw_panel(area, panel, sweep)?;
    }
    Ok(sheet.present()?)
}

fn draw_panel(area: &Area<'_>, (title, top, value): Panel, sweep: &Sweep) -> Drawn {
    let mut builder = ChartBuilder::on(area);
    builder.margin_right(24).margin_top(6);
    builder.caption(title, text(15.0));
    builder.set_label_area_size(LabelAreaPosition::Left, 52);
    builder.set_label_area_size(LabelAreaPosition::Bottom, 42);
    let mut chart = builder.build_cartesian_2d((0.9..1_100.0).log_scale(), 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).bold_line_style(GRID);
    mesh.axis_style(QUIET).label_style(text(12.0)).y_labels(8);
    mesh.x_desc("processes");
    mesh.x_label_formatter(&|processes| format!("{processes:.0}"));
    mesh.draw()?;
    // Plain comes last: the lines that coincide with it are wider.
    for (mode, width) in MODES.iter().rev().zip([8, 6, 4, 2]) {
        let rows = sweep.rows.iter().filter(|(of, ..)| of == mode);
        let points = rows.map(|(_, processes, outcome)| (*processes as f64, value(outcome)));
        let line = style(*mode).0.stroke_width(width);
        chart.draw_series(LineSeries::new(points, line).point_size(width / 2 + 2))?;
    }
    Ok(())
}

pub(crate) fn of_upsets(upsets: &[Upsets]) -> Svg {
    let mut svg = String::new();
    let rows = u32::try_from(upsets.len())?;
    let backend = SVGBackend::with_string(&mut svg, (WIDTH, HEADER + rows * ROW));
    draw_upsets(&backend.into_drawing_area(), upsets)?;
    Ok(svg)
}

fn draw_upsets(sheet: &Area<'_>, upsets: &[Upsets]) -> Drawn {
    let title = "Units used in the last second / max, around a fault of the server";
    let below = header(sheet, title, &[Mode::Plain, Mode::Leased])?;
    for (area, upset) in below.split_evenly((upsets.len(), 1)).iter().zip(upsets) {
        draw_upset(area, upset)?;
    }
    Ok(sheet.present()?)
}

fn draw_upset(area: &Area<'_>, upset: &Upsets) -> Drawn {
    let mut builder = ChartBuilder::on(area);
    builder.margin_right(24).margin_top(6);
    builder.caption(upset.title, text(15.0));
    builder.set_label_area_size(LabelAreaPosition::Left, 52);
    builder.set_label_area_size(LabelAreaPosition::Bottom, 42);
    let mut chart = builder.build_cartesian_2d(0.0..5.0, 0.0..2.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).bold_line_style(GRID);
    mesh.axis_style(QUIET).label_style(text(12.0)).y_labels(5);
    mesh.x_desc("time, seconds").draw()?;
    for (mode, outcome) in &upset.outcomes {
        let windows = outcome.windows().into_iter().enumerate().step_by(10);
        let points = windows.map(|(tick, window)| (tick as f64 / 1_000.0, window));
        chart.draw_series(LineSeries::new(points, style(*mode).0.stroke_width(2)))?;
    }
    let at = UPSET_AT as f64 / 1_000.0;
    let line = TEXT.stroke_width(1);
    chart.draw_series(DashedLineSeries::new([(at, 0.0), (at, 2.0)], 4, 4, line))?;
    chart.draw_series(DashedLineSeries::new([(0.0, 1.0), (5.0, 1.0)], 14, 8, line))?;
    Ok(())
}

/// The title and what the colours mean. Returns what is below.
fn header<'a>(sheet: &Area<'a>, title: &str, modes: &[Mode]) -> Result<Area<'a>, Box<dyn Error>> {
    sheet.fill(&WHITE)?;
    let (header, below) = sheet.split_vertically(HEADER);
    header.draw_text(title, &text(20.0), (16, 12))?;
    for (mode, x) in modes.iter().zip([16, 130, 250, 620]) {
        let (colour, name) = style(*mode);
        let corners = [(x, 54), (x + 22, 66)];
        header.draw(&Rectangle::new(corners, colour.filled()))?;
        header.draw_text(name, &text(14.0), (x + 30, 52))?;
    }
    Ok(below)
}

/// No font is looked for here: the viewer chooses one.
fn text(pixels: f64) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24).into_font().color(&TEXT)
}
