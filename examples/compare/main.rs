//! The four algorithms under the same traffic: what each admits, one picture per traffic.
//!
//! ```sh
//! cargo run --release --example compare   # writes docs/algorithms/*.svg, or into another folder
//! ```
//!
//! Time is simulated and the random seed is fixed, so the pictures are the same on every run.
//! How an algorithm is asked is in `replay.rs`; the traffics are in `traffic.rs`.

mod contender;
mod limit;
mod measure;
mod picture;
mod random;
mod replay;
mod table;
mod traffic;

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use contender::Contender;
use replay::replay;
use traffic::Traffic;

/// The folder in which the documentation has its pictures.
const FOLDER: &str = "docs/algorithms";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("compare: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let folder = folder()?;
    let contenders = contender::all().map_err(|error| error.to_string())?;
    let unusable = |error| format!("cannot create the folder {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(unusable)?;
    for traffic in traffic::all() {
        compare(&traffic, &contenders, &folder)?;
    }
    Ok(())
}

fn folder() -> Result<PathBuf, String> {
    let mut arguments = env::args_os().skip(1);
    let folder = arguments.next().unwrap_or_else(|| FOLDER.into());
    let is_option = folder.to_string_lossy().starts_with('-');
    match is_option || arguments.next().is_some() {
        true => Err(format!("expected at most a folder, by default {FOLDER}")),
        false => Ok(folder.into()),
    }
}

fn compare(traffic: &Traffic, contenders: &[Contender], folder: &Path) -> Result<(), String> {
    let outcomes = contenders
        .iter()
        .map(|contender| replay(contender, traffic));
    let outcomes: Vec<_> = outcomes.collect();

    let path = folder.join(format!("{}.svg", traffic.name));
    let svg = picture::draw(traffic, &outcomes)
        .map_err(|error| format!("cannot draw {}: {error}", path.display()))?;
    fs::write(&path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;

    let table = table::of(traffic, &outcomes);
    print(&format!("{table}written: {}\n\n", path.display()));
    Ok(())
}

/// Prints, or does nothing on a closed pipe, where `println!` would panic.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
