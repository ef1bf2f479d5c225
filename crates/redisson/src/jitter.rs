use std::time::Duration;

pub(crate) use tidegate_base::jitter::up_to;

/// How long a denied caller or waiter sleeps before it asks again: its `retry_after`, within
/// bounds, and a random part.
///
/// It sleeps for at least `min`, and for at most one second, because what it waits for may become
/// free early. The random part is up to a twentieth of that, at most 5 ms: asking before
/// `retry_after` would be without success.
pub(crate) fn pause_before_repeat(retry_after: Duration, min: Duration) -> Duration {
    const MAX_PAUSE: Duration = Duration::from_secs(1);
    const MAX_JITTER: Duration = Duration::from_millis(5);
    let pause = retry_after.max(min).min(MAX_PAUSE);
    pause + up_to(MAX_JITTER.min(pause / 20))
}
