//! The crate's own scripts and questions to them, for clients made by hand.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tidegate::Algorithm;

use crate::Result;

/// The text of an algorithm's script with its includes and constants.
pub fn source(algorithm: Algorithm) -> Result<String> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua"));
    let name = algorithm.name().replace('-', "_");
    let list = fs::read_to_string(folder.join("constants.rs"))?;
    let constants = list.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("pub(crate) const ")?.split_once(": ")?;
        Some((name, value.strip_suffix(';')?.split_once(" = ")?.1))
    });
    let constants = constants.collect();
    expand(&folder.join(format!("{name}.lua")), folder, &constants)
}

fn expand(file: &Path, folder: &Path, constants: &HashMap<&str, &str>) -> Result<String> {
    let is_part = |of: char| of.is_ascii_alphanumeric() || of == '_';
    let mut whole = String::new();
    for line in fs::read_to_string(file)?.lines() {
        let code = line.trim_start();
        if let Some(name) = code.strip_prefix("-- include: ") {
            let file = folder.join(format!("include/{name}.lua"));
            whole += &expand(&file, folder, constants)?;
            continue;
        }
        for word in line.split_inclusive(|of| !is_part(of)) {
            let name = word.trim_end_matches(|of| !is_part(of));
            let text = constants.get(name).filter(|_| !code.starts_with("--"));
            whole += text.unwrap_or(&name);
            whole += &word[name.len()..];
        }
        whole.push('\n');
    }
    Ok(whole)
}

/// May one key spend one unit of 1,000,000 a second? Without a deadline. The format stands in
/// `lua/formats.md`.
pub fn question(algorithm: Algorithm) -> Vec<u8> {
    let numbers = |numbers: &[u64]| {
        let bytes = numbers.iter().map(|number| number.to_be_bytes());
        bytes
            .flat_map(|bytes| bytes.into_iter().skip(1))
            .collect::<Vec<_>>()
    };
    let [expiry_millis, slice] = [3_098, 1 << 20];
    let (max, window) = (1_000_000, 1_000_000);
    let of_bucket: &[u64] = match algorithm {
        // Burst, life, and the pace.
        Algorithm::Gcra => &[1_000_000, 1_000_000, 1, 1],
        _ => &[],
    };
    let rule = [
        &[1][..],
        &numbers(&[expiry_millis, slice, max, window]),
        &numbers(of_bucket),
    ]
    .concat();
    let records = u16::try_from(12 + rule.len()).expect("short");
    let (call_id, rule_at, rows, takes) = (1_u64, 12_u16, 1_u16, 1_u16);
    let [cost, deadline] = [1, 1 << 53];
    [
        // A lone take.
        &[3][..],
        &records.to_be_bytes(),
        &call_id.to_be_bytes(),
        &rule,
        &rule_at.to_be_bytes(),
        &rows.to_be_bytes(),
        &takes.to_be_bytes(),
        &numbers(&[cost, deadline]),
        expiry_millis.to_string().as_bytes(),
    ]
    .concat()
}

/// Whether a reply to `question` says that it was allowed: by an answer, or by the mark of a state.
pub fn is_allowed(reply: &[u8]) -> bool {
    match reply.get(8) {
        Some(0) => reply.get(23) == Some(&1),
        mark => mark.is_some_and(|it| *it > 1),
    }
}
