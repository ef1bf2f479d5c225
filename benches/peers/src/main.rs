//! `peers` drives the load and prints the tables; `peers serve URL` is the HTTP server under load.

mod drive;
mod options;
mod report;

use axum::Router;
use tidegate_peers::{Result, contenders, others, ours, reference, serve};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [serve, redis] if serve == "serve" => serve::serve(router(redis)),
        others => {
            let options = options::Options::parse(others)?;
            let runs = drive::drive(&options)?;
            report::print(&options, &runs);
            Ok(())
        }
    }
}

/// All contenders as routes of one router.
async fn router(redis: &str) -> Result<Router> {
    Ok(contenders::plain_routes()
        .merge(reference::answers())
        .merge(reference::router(redis).await?)
        .merge(ours::router(redis).await?)
        .merge(others::router(redis).await?))
}
