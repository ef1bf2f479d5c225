use std::sync::Arc;
use std::time::SystemTime;

use super::teller::Teller;
use crate::charge::PathState;
use crate::key::Key;
use crate::take::Take;

/// Failures have begun to [lock a key out](crate::Rule::with_lockout): see
/// [`Limits::on_lockout`](crate::Limits::on_lockout).
///
/// ```
/// use tidegate::layer::LockedOut;
///
/// fn mail(locked_out: &LockedOut) -> String {
///     let LockedOut { path, key, step, .. } = locked_out;
///     format!("{path}: {} is locked out, {step} times in a row", key.as_str())
/// }
/// # let _ = mail;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockedOut {
    /// The path of the rule.
    pub path: Arc<str>,
    /// The key, of which [`Key::parts`] says whose it is; under a rule of several subjects that of
    /// the one which is locked out.
    pub key: Key,
    /// How many times in a row it was locked out, this time included.
    pub step: u64,
    /// Until when it is, by the clock of this process. A store that had to be told of the failure
    /// once more may end the hold earlier, by the time that this took.
    pub until: SystemTime,
    /// Whether the rule is in shadow: it denies nothing.
    pub is_shadow: bool,
}

/// The callback for a failure that has begun a hold: its take and path, the step, and when the hold
/// ends.
pub(crate) type OnLockout = Arc<dyn Fn(&Take, &PathState, u64, SystemTime) + Send + Sync>;

/// Tells this code of keys that are locked out.
pub(crate) fn on_lockout<F: Future<Output = ()> + Send + 'static>(
    callback: impl Fn(LockedOut) -> F + Send + Sync + 'static,
) -> OnLockout {
    let (teller, callback) = (Teller::default(), Arc::new(callback));
    Arc::new(move |take: &Take, path: &PathState, step, until| {
        let (rule, count) = (take.rule(), take.lockout_count());
        let locked_out = LockedOut {
            path: Arc::clone(rule.shared_path()),
            key: count.map_or_else(Key::default, |count| take.key_of(count).1),
            step,
            until,
            is_shadow: rule.is_shadow(),
        };
        let callback = Arc::clone(&callback);
        teller.tell(rule.path(), teller.place(path), move || {
            callback(locked_out)
        });
    })
}
