macro_rules! includes {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../lua/include/", $name, ".lua")))),+]
    };
}

/// The files of the folder `lua/include/`, by name. A script has them where a line says
/// `-- include: name`.
pub(super) const INCLUDES: &[(&str, &str)] = includes![
    "setup",
    "reply_format",
    "read_question",
    "read_row",
    "decide",
    "answer",
    "end_key",
    "read_values",
    "tallies",
    "read_tallies",
    "choose_tallies",
    "read_log",
    "drain",
    "refund_begin",
    "refund_entry",
    "refund_tallies",
    "refund_end",
    "permits",
    "permits_wait",
    "lock",
];
