//! A fleet of up to a thousand processes and a million requests per second, in simulated time.
//!
//! ```sh
//! cargo run --release --features test-util --example simulate_fleet
//! ```
//!
//! It writes the pictures of docs/evidence/scale.md (or into another folder), prints the figures, and fails
//! if a window ever holds more than max. Seeds are fixed: every run has the same outcome.

mod figures;
mod picture;
mod simulation;

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The folder in which the documentation has its pictures.
const FOLDER: &str = "docs/evidence/scale";

fn main() -> ExitCode {
    let folder = env::args_os().nth(1).unwrap_or_else(|| FOLDER.into());
    match run(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("simulate_fleet: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    for sweep in figures::sweeps() {
        print(&sweep.table());
        write(folder, sweep.name, picture::of_sweep(&sweep))?;
    }
    print(&figures::with_a_thousand());
    print(&figures::with_faults()?);
    let upsets = figures::upsets()?;
    print(&figures::table(&upsets));
    write(folder, "upsets", picture::of_upsets(&upsets))
}

fn write(folder: &Path, name: &str, svg: picture::Svg) -> Result<(), String> {
    let path = folder.join(format!("{name}.svg"));
    let svg = svg.map_err(|error| format!("cannot draw {}: {error}", path.display()))?;
    fs::write(&path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    print(&format!("written: {}\n\n", path.display()));
    Ok(())
}

/// Prints, or does nothing on a closed pipe, where `println!` would panic.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
