//! What may stand in the attribute.

use tidegate::layer::Refused;
use tidegate::limited;

#[limited]
async fn nothing() -> Result<(), Refused> {
    Ok(())
}

#[limited(key = 1)]
async fn no_path() -> Result<(), Refused> {
    Ok(())
}

#[limited("export")]
async fn no_key() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, cots = 2)]
async fn unknown() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, cost = 2, cost = 3)]
async fn repeated() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", 1)]
async fn no_name() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key)]
async fn no_value() -> Result<(), Refused> {
    Ok(())
}

#[limited("export" key = 1)]
async fn no_comma() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, crate = "tidegate")]
async fn quoted() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, on_error = busy)]
async fn only_on_error() -> Result<(), Refused> {
    Ok(())
}

fn main() {}
