//! The crate's own scripts and questions to them, for clients made by hand.

use std::fs;
use std::path::Path;

use tidegate::Algorithm;

use crate::Result;

/// The text of an algorithm's script with its includes.
pub fn source(algorithm: Algorithm) -> Result<String> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lua"));
    let name = algorithm.name().replace('-', "_");
    expand(&folder.join(format!("{name}.lua")), folder)
}

fn expand(file: &Path, folder: &Path) -> Result<String> {
    let mut whole = String::new();
    for line in fs::read_to_string(file)?.lines() {
        match line.trim_start().strip_prefix("-- include: ") {
            Some(name) => {
                whole += &expand(&folder.join(format!("include/{name}.lua")), folder)?;
            }
            None => {
                whole += line;
                whole.push('\n');
            }
        }
    }
    Ok(whole)
}

/// May one key spend one unit of 1,000,000 a second? Without a deadline. The format stands in
/// `lua/include/read_question.lua`.
pub fn question(algorithm: Algorithm) -> Vec<u8> {
    let mut bytes = vec![1, 1, 0];
    let mut number = |number: u64, length| {
        bytes.extend_from_slice(&number.to_le_bytes()[..length]);
    };
    let [cost, takes, deadline] = [1, 1, 1 << 53];
    number(cost, 7);
    number(takes, 2);
    number(deadline, 7);
    let (max, window) = (1_000_000, 1_000_000);
    number(max, 7);
    number(window, 7);
    if algorithm == Algorithm::Gcra {
        let [burst, life, pace_units, pace_micros] = [1_000_000, 1_000_000, 1, 1];
        for of_bucket in [burst, life, pace_units, pace_micros] {
            number(of_bucket, 7);
        }
    }
    let expiry_millis = 3_098;
    number(expiry_millis, 7);
    bytes
}

/// Whether a reply to `question` says that it was allowed.
pub fn is_allowed(reply: &[u8]) -> bool {
    reply.get(16) == Some(&1)
}
