//! `peers` drives the load and prints the tables; `peers serve URL` is the HTTP server under load.

mod drive;
mod options;
mod report;
mod serve;

use tidegate_peers::Result;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [serve, redis] if serve == "serve" => serve::serve(redis),
        others => {
            let options = options::Options::parse(others)?;
            let runs = drive::drive(&options)?;
            report::print(&options, &runs);
            Ok(())
        }
    }
}
