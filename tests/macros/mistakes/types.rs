//! Mistakes in the values and in the body are where they are.

use tidegate::layer::Refused;
use tidegate::{Denied, ErrorCallbackChain, limited};

struct User;

#[limited("export", key = user)]
async fn no_key(user: User) -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, cost = "2")]
async fn no_cost() -> Result<(), Refused> {
    Ok(())
}

#[limited(7, key = 1)]
async fn no_path() -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, limits = user)]
async fn no_limits(user: User) -> Result<(), Refused> {
    Ok(())
}

#[limited("export", key = 1, degrade = last_report)]
async fn other_callback() -> Result<u32, Refused> {
    Ok(1)
}

async fn last_report(_: Denied) -> String {
    String::new()
}

#[limited("export", key = 1, on_error_chain = errors)]
async fn other_chain(errors: ErrorCallbackChain<u32>) -> Result<u32, Refused> {
    Ok(1)
}

#[limited("export", key = 1)]
async fn wrong_body() -> Result<u32, Refused> {
    Ok("1")
}

#[limited("export", key = 1)]
async fn wrong_return(early: bool) -> Result<u32, Refused> {
    if early {
        return Ok("1");
    }
    Ok(1)
}

#[limited("export", key = user.id)]
async fn no_field(user: User) -> Result<u32, Refused> {
    Ok(1)
}

fn main() {}
