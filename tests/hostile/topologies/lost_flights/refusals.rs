//! Errors of the server instead of answers: whoever is refused hears so, and nobody else loses an
//! answer or the connection.

use super::callers::Kind;
use super::*;

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";
const NOPERM: &str = "-NOPERM User gate has no permissions to run the 'evalsha' command";

const REFUSALS: [FlightFault; 6] = [
    FlightFault::Replace(Part::All, LOADING),
    FlightFault::Replace(Part::FirstHalf, LOADING),
    FlightFault::Replace(Part::Last, LOADING),
    FlightFault::Replace(Part::All, NOPERM),
    FlightFault::Replace(Part::Middle, NOPERM),
    FlightFault::Replace(Part::Last, NOPERM),
];

tests! {
    a_flight_is_refused_under_callers_of_all_kinds: all_at_once(&Kind::all(), 2, &REFUSALS);
    a_flight_is_refused_under_few_callers: in_groups(&GROUPS, &REFUSALS);
}
