//! Calls of one function, as many as the first argument says, limited by the attribute or, with a
//! second argument, by the same call written by hand. `bash tests/macros/count.sh` counts the
//! instructions of both.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::layer::{CallError, Refused};
use tidegate::{Algorithm, Limits, Quota, Rule, limited};

#[limited("export", key = user, limits = limits, cost = 2)]
async fn by_attribute(limits: &Limits, user: u64, rows: u64) -> Result<u64, Refused> {
    black_box(user);
    Ok(rows)
}

async fn by_hand(limits: &Limits, user: u64, rows: u64) -> Result<u64, Refused> {
    let call = limits.call("export").key(user).cost(2);
    let run = async move || {
        black_box(user);
        Ok(rows)
    };
    call.try_run(run).await.map_err(CallError::flatten)
}

fn done<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(returned) => returned,
        Poll::Pending => unreachable!("the store is in memory"),
    }
}

/// What is counted: the program's start, which waits for clocks, is not.
#[inline(never)]
fn counted(limits: &Limits, calls: u64, is_by_hand: bool) -> Result<(), Refused> {
    for rows in 0..calls {
        match is_by_hand {
            true => done(by_hand(limits, black_box(7), rows))?,
            false => done(by_attribute(limits, black_box(7), rows))?,
        };
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let calls = arguments.next().ok_or("expected how many calls")?.parse()?;
    // What its state costs does not depend on the time between the calls.
    let rule = Rule::new("export", [Quota::per_hour(1_000_000)])?.with_algorithm(Algorithm::Gcra);
    let limits = Limits::new([rule]);
    // The first calls make the store, and the key's count.
    done(by_hand(&limits, black_box(7), 0))?;
    done(by_attribute(&limits, black_box(7), 0))?;
    Ok(counted(&limits, calls, arguments.next().is_some())?)
}
