//! Without callbacks, what the function returns has to be `From<Refused>`.

use tidegate::limited;

#[limited("export", key = 1)]
async fn number() -> u32 {
    1
}

#[limited("export", key = 1)]
async fn nothing() {}

struct Error;

#[limited("export", key = 1)]
async fn result() -> Result<(), Error> {
    Ok(())
}

fn main() {}
