//! Attacks on the attribute: names that it might use itself, functions of all shapes, and a user who
//! denies all warnings.

#![deny(warnings, clippy::pedantic)]

mod handlers;
mod names;
mod shapes;
