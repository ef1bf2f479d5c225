//! A hidden type has no name that a callback could return, and nothing makes it of a refusal.

use tidegate::layer::Refused;
use tidegate::{Denied, limited};

#[limited("export", key = 1, degrade = none)]
async fn with_callback() -> impl Iterator<Item = u8> {
    [1].into_iter()
}

#[limited("export", key = 1, degrade = none)]
async fn nested_with_callback() -> Result<impl Iterator<Item = u8>, Refused> {
    Ok([1].into_iter())
}

#[limited("export", key = 1)]
async fn without_callback() -> impl Iterator<Item = u8> {
    [1].into_iter()
}

#[limited("export", key = 1)]
async fn nested() -> Option<impl Iterator<Item = u8>> {
    Some([1].into_iter())
}

async fn none(_: Denied) -> std::iter::Empty<u8> {
    std::iter::empty()
}

fn main() {}
