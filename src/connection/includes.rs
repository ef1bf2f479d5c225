macro_rules! includes {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../lua/include/", $name, ".lua")))),+]
    };
}

/// The files of the folder `lua/include/`, by name. A script has them where a line says
/// `-- include: name`.
///
/// A new file has to be listed here. A name that is not listed leaves its line in the script, where
/// Lua takes it for a comment; a test of `scripts.rs` finds such lines.
pub(super) const INCLUDES: &[(&str, &str)] = includes![
    "setup",
    "reply_format",
    "read_question",
    "read_row",
    "decide",
    "answer",
    "end_key",
    "longer",
    "mark_lease",
    "read_values",
    "tallies",
    "gcra_tally",
    "sliding_window_tally",
    "fixed_window_tally",
    "read_tallies",
    "choose_tallies",
    "log_entry",
    "read_log",
    "log_search",
    "log_wait",
    "drain",
    "refund_begin",
    "refund_entry",
    "refund_tallies",
    "refund_end",
    "permits",
    "give_way",
    "permits_wait",
    "lock",
];
