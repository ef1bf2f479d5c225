//! The table of all algorithms, and the only place that names them all.

/// Calls a macro with every algorithm: what its variant of [`Algorithm`](super::Algorithm) says to
/// users, the name of its type, and the module of that, in this folder. The type implements
/// [`AlgorithmDefinition`](super::algorithm_definition::AlgorithmDefinition).
macro_rules! with_algorithms {
    ($then:ident) => {
        $then! {
            /// Exact: a log of all takes, [`SlidingLog`](crate::algorithm::SlidingLog). The
            /// default.
            #[default]
            SlidingLog in sliding_log,
            /// Never above the limit, late by less than a sub-window, in constant memory:
            /// [`SlidingWindow`](crate::algorithm::SlidingWindow).
            SlidingWindow in sliding_window,
            /// Smooth: a bucket that drains evenly, with a burst apart from the rate,
            /// [`Gcra`](crate::algorithm::Gcra).
            Gcra in gcra,
            /// The cheapest: a counter that starts anew,
            /// [`FixedWindow`](crate::algorithm::FixedWindow); at an edge it admits up to twice as
            /// much.
            FixedWindow in fixed_window,
        }
    };
}
pub(super) use with_algorithms;
