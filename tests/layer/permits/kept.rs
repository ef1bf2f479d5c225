//! What code does with the permit that a check gives it.

use futures_util::future::BoxFuture;

use crate::*;

const ROUNDS: usize = 50;

fn limits() -> Limits {
    let rule = Rule::with_policies("export", [Policy::concurrent(4)]).expect("valid");
    Limits::new([rule])
}

fn check(limits: &Limits) -> tidegate::layer::Call {
    limits.check("export", "alice")
}

/// The warnings about permits, and that the others are none.
fn warnings(limits: &Limits) -> Vec<String> {
    let warnings = limits.warnings().into_iter();
    let warnings = warnings.map(|warning| {
        assert_eq!(warning.kind, WarningKind::PermitNotKept);
        assert_eq!(warning.path.as_deref(), Some("export"));
        warning.to_string()
    });
    warnings.collect()
}

/// In its own statement, in whatever form: told once, with the line that mends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_is_dropped_at_once_is_told_once() {
    let all: [fn(Limits) -> BoxFuture<'static, ()>; 4] = [
        |limits| async move { drop(check(&limits).await.expect("it may")) }.boxed(),
        |limits| async move { _ = check(&limits).await.expect("it may") }.boxed(),
        |limits| {
            let forget = async move {
                if check(&limits).await.is_ok() {
                    yield_now().await;
                }
            };
            forget.boxed()
        },
        |limits| async move { assert!(check(&limits).await.is_ok()) }.boxed(),
    ];
    for (case, forget) in all.into_iter().enumerate() {
        let limits = limits();
        // A machine may be busy at the moment of one drop.
        for _ in 0..ROUNDS {
            let forgotten = tokio::spawn(forget(limits.clone()));
            forgotten.await.expect("no panic");
        }
        let [warning] = &*warnings(&limits) else {
            panic!("case {case}: {:?}", limits.warnings());
        };
        let remedy = "`let admitted = limits.check(..).await?;`";
        assert!(warning.contains(remedy), "{warning}");
    }
}

/// Over an await, or in code that awaits nothing.
#[tokio::test]
async fn a_permit_that_is_held_as_long_as_work_takes_is_kept() {
    let limits = limits();
    for _ in 0..ROUNDS {
        let admitted = check(&limits).await.expect("it may");
        tokio::time::sleep(millis(1)).await;
        drop(admitted);
        let permit = check(&limits).await.expect("it may").permit;
        std::thread::sleep(millis(1) / 10);
        drop(permit);
    }
    assert_eq!(warnings(&limits), Vec::<String>::new());
}

/// Outside of a runtime nothing renews a permit: told once.
#[test]
fn a_permit_outside_of_a_runtime_is_told_once() {
    let (limits, log) = (limits(), kit::log::Log::start());
    let held = [0; 2].map(|_| {
        let checked = check(&limits).into_future().now_or_never();
        checked.expect("at once").expect("it may")
    });
    let lines = log.lines();
    let [line] = &*lines else {
        panic!("{lines:?}");
    };
    let is_right = line.contains("path=\"export\"") && line.contains("permit-lease");
    assert!(is_right, "{line}");
    drop(held);
}
