//! The table. Every call meets every fault; `renew` is a lock's watchdog, which nobody asks: its
//! cell says what becomes of a lock through a fault that is shorter than the lease.

use kit::faults::Fault;
use tidegate::store::StoreErrorKind::*;

use crate::beside::Beside;
use crate::cell::Gets;

/// A module for each fault, and in it a test for each call, by what its caller gets.
macro_rules! matrix {
    ($($($(#[$doc:meta])* $fault:ident: $what:expr, beside $beside:expr);+ => $rows:tt)+) => {
        $($($(#[$doc])*
        mod $fault {
            use super::*;

            rows! { $what, $beside, $rows }
        })+)+
    };
}

macro_rules! rows {
    ($what:expr, $beside:expr, {
        $($gets:expr => $($group:ident::$call:ident)+;)+
    }) => {
        $(cells! { $what, $beside, $gets, $($group::$call)+ })+
    };
}

macro_rules! cells {
    ($what:expr, $beside:expr, $gets:expr, $($group:ident::$call:ident)+) => {
        $(
            #[tokio::test]
            async fn $call() {
                use Gets::*;
                let call = crate::calls::$group::$call;
                crate::cell::check($what, $beside, call, $gets).await;
            }
        )+
    };
}

matrix! {
    /// `maxmemory` is reached, and nothing may be evicted. What only removes is done.
    no_memory: Fault::NoMemory, beside Beside::NotCharged(&[OutOfMemory]) => {
        Error(&[OutOfMemory]) => store::take store::joint store::owe store::settle
            store::permit_begin store::hold limiter::try_acquire limiter::try_acquire_for
            limiter::acquire limiter::release limiter::set_rate lock::try_lock
            lock::try_lock_for lock::lock;
        AnswerOr(&[OutOfMemory]) => store::refund;
        Answer => store::peek limiter::available lock::is_locked lock::renew store::permit_end
            store::permit_renew store::reset lock::unlock store::denied lock::force_unlock;
    }
    too_few_replicas: Fault::TooFewReplicas, beside Beside::NotCharged(&[ReadOnly]);
    failed_dump: Fault::FailedDump, beside Beside::NotCharged(&[ReadOnly]) => {
        Error(&[ReadOnly]) => store::take store::joint store::refund store::owe store::settle
            store::permit_begin store::permit_end store::permit_renew store::reset store::hold
            limiter::try_acquire limiter::try_acquire_for limiter::release limiter::set_rate
            lock::try_lock lock::try_lock_for lock::force_unlock;
        Waits => limiter::acquire lock::lock lock::unlock;
        Answer => store::peek limiter::available lock::is_locked lock::renew store::denied;
    }
    /// The connection is replaced meanwhile, since another server may be at the address
    /// by now.
    read_only: Fault::ReadOnly, beside Beside::Fails(&[ReadOnly, Unavailable, Timeout]) => {
        Error(&[ReadOnly, Unavailable]) => store::take store::joint store::refund store::owe
            store::settle store::permit_begin store::permit_end store::permit_renew store::reset
            store::hold limiter::try_acquire limiter::try_acquire_for limiter::release
            limiter::set_rate lock::try_lock lock::try_lock_for lock::force_unlock;
        Waits => limiter::acquire lock::lock lock::unlock;
        AnswerOr(&[ReadOnly, Unavailable]) => store::peek store::denied;
        Answer => limiter::available lock::is_locked lock::renew;
    }
    wrong_type: Fault::Foreign("RPUSH {key} foreign"), beside Beside::Unharmed => {
        Error(&[WrongType]) => store::take store::joint store::refund store::owe store::settle
            store::permit_begin store::permit_end store::permit_renew store::peek
            limiter::try_acquire limiter::try_acquire_for limiter::acquire limiter::release
            limiter::available limiter::set_rate lock::try_lock lock::try_lock_for lock::lock
            store::denied lock::force_unlock;
        // The token of a lock is looked at by calls that change it alone.
        AnswerOr(&[WrongType]) => lock::is_locked;
        // A guard that is gone is released in the background, once that is possible.
        Unknown(&[WrongType]) => lock::unlock;
        Answer => store::reset store::hold lock::renew;
    }
    forbidden_key: Fault::Keys("~*beside* ~*everyone*"), beside Beside::Unharmed;
    forbidden_scripts: Fault::Commands("-evalsha -eval"), beside Beside::Fails(&[Refused]) => {
        Error(&[Refused]) => store::take store::joint store::refund store::owe store::settle
            store::permit_begin store::permit_end store::permit_renew store::reset store::hold
            store::peek limiter::try_acquire limiter::try_acquire_for limiter::acquire
            limiter::release limiter::available limiter::set_rate lock::try_lock
            lock::try_lock_for lock::lock lock::is_locked store::denied lock::force_unlock;
        Unknown(&[Refused]) => lock::unlock;
        Answer => lock::renew;
    }
    forbidden_writes: Fault::Commands("-@write"), beside Beside::NotCharged(&[Refused]) => {
        Error(&[Refused]) => store::take store::joint store::refund store::owe store::settle
            store::permit_begin store::permit_end store::permit_renew store::reset store::hold
            limiter::try_acquire limiter::try_acquire_for limiter::acquire limiter::release
            limiter::set_rate lock::try_lock lock::try_lock_for lock::lock lock::force_unlock;
        Unknown(&[Refused]) => lock::unlock;
        Answer => store::peek limiter::available lock::is_locked lock::renew store::denied;
    }
    /// A user without a right that docs/security.md asks for. What sets an expiry with
    /// its value needs none.
    forbidden_expiries: Fault::Commands("-pexpire"), beside Beside::NotCharged(&[Refused]) => {
        Answer => limiter::available store::hold lock::is_locked store::joint store::owe
            store::peek store::permit_end store::refund lock::renew limiter::set_rate
            store::settle limiter::try_acquire lock::unlock store::denied lock::force_unlock;
        // Sorted sets are refused, and strings are not.
        AnswerOr(&[Refused]) => limiter::acquire limiter::try_acquire_for store::take store::reset;
        Error(&[Refused]) => store::permit_renew lock::try_lock lock::try_lock_for lock::lock;
        // Known gaps: what was written before the expiry was refused stays; of a permit its quotas.
        Unknown(&[Refused]) => store::permit_begin limiter::release;
    }
    scripts_flushed: Fault::ScriptsFlushed, beside Beside::Unharmed;
    moved_slot: Fault::MovedSlot, beside Beside::Unharmed => {
        Answer => store::take store::joint store::refund store::owe store::settle
            store::permit_begin store::permit_end store::permit_renew store::reset store::hold
            store::peek limiter::try_acquire limiter::try_acquire_for limiter::acquire
            limiter::release limiter::available limiter::set_rate lock::try_lock
            lock::try_lock_for lock::lock lock::is_locked lock::unlock lock::renew
            store::denied lock::force_unlock;
    }
    gone: Fault::Gone, beside Beside::Fails(&[Unavailable, Timeout]);
    loading: Fault::Loading, beside Beside::Fails(&[Unavailable, Timeout]);
    /// Nothing arrives.
    mute: Fault::Mute, beside Beside::Fails(&[Unavailable, Timeout]) => {
        Error(&[Unavailable, Timeout]) => store::take store::joint store::refund store::owe
            store::settle store::permit_begin store::permit_end store::permit_renew
            store::reset store::hold store::peek limiter::try_acquire limiter::try_acquire_for
            limiter::release limiter::available limiter::set_rate lock::try_lock
            lock::try_lock_for lock::is_locked store::denied lock::force_unlock;
        Waits => limiter::acquire lock::lock lock::unlock;
        Answer => lock::renew;
    }
    /// A script counts as a write, whatever it does.
    writes_paused: Fault::WritesPaused, beside Beside::Fails(&[Timeout]);
    /// Calls with a deadline are not done late. Others are, when the server goes on.
    stopped: Fault::Stopped, beside Beside::Fails(&[Timeout]) => {
        Error(&[Timeout]) => store::take store::joint store::permit_begin store::peek
            limiter::try_acquire limiter::try_acquire_for limiter::available limiter::set_rate
            lock::is_locked store::denied;
        Unknown(&[Timeout]) => store::refund store::owe store::settle store::permit_end
            store::permit_renew store::reset store::hold limiter::release lock::try_lock
            lock::try_lock_for lock::force_unlock;
        Waits => limiter::acquire lock::lock lock::unlock;
        Answer => lock::renew;
    }
    lost_reply: Fault::LostReply, beside Beside::Fails(&[Timeout, Protocol, Unavailable]) => {
        Unknown(&[Timeout, Protocol, Unavailable]) => store::take store::joint store::refund
            store::owe store::settle store::permit_begin store::permit_end store::permit_renew
            store::reset store::hold store::peek limiter::try_acquire limiter::release
            limiter::available limiter::set_rate lock::try_lock
            lock::is_locked store::denied lock::force_unlock;
        Either(&[Timeout, Protocol, Unavailable]) => limiter::try_acquire_for lock::try_lock_for;
        // They ask again; what was done counts once.
        Answer => limiter::acquire lock::lock lock::unlock lock::renew;
    }
    cut_reply: Fault::CutReply, beside Beside::Fails(&[Unavailable]) => {
        Unknown(&[Unavailable]) => store::take store::joint store::refund store::owe
            store::settle store::permit_begin store::permit_end store::permit_renew
            store::reset store::hold store::peek limiter::try_acquire limiter::release
            limiter::available limiter::set_rate lock::try_lock
            lock::is_locked store::denied lock::force_unlock;
        Either(&[Unavailable]) => limiter::try_acquire_for lock::try_lock_for;
        Answer => limiter::acquire lock::lock lock::unlock lock::renew;
    }
}

/// Values of all types under all keys of a call. No `lock`, since a hash of somebody else is a lock
/// that others have; no `renew`, which says nothing of it.
mod foreign_values {
    macro_rules! foreign_values {
        ($($group:ident::$call:ident)+) => {
            $(
                #[tokio::test]
                async fn $call() {
                    crate::cell::check_foreign_values(crate::calls::$group::$call).await;
                }
            )+
        };
    }

    foreign_values! {
        store::take store::denied store::joint store::refund store::owe store::settle
        store::permit_begin store::permit_end store::permit_renew store::reset store::hold store::peek
        limiter::try_acquire limiter::try_acquire_for limiter::acquire limiter::release
        limiter::available limiter::set_rate lock::try_lock lock::try_lock_for lock::is_locked
        lock::force_unlock lock::unlock
    }
}
