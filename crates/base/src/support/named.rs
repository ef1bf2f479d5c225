//! Enums whose variants have names, as metrics and configuration want them, and types of which
//! `Debug` shows a few fields.

/// Makes an enum with `ALL` of its variants and the `name` of each. The text behind the enum's name
/// says what these names are.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $Enum:ident: $what:literal {
            $($(#[$of_variant:meta])* $Variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        pub enum $Enum {
            $($(#[$of_variant])* $Variant,)+
        }

        impl $Enum {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            #[doc = concat!($what, ": ", stringify!($($name),+), ".")]
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }
    };
}

/// Makes the `Debug` of a type that shows these fields alone.
#[macro_export]
macro_rules! debug_fields {
    ($Type:ident $(<$($Of:ident),+>)? $(: $($field:ident),+)?) => {
        impl $(<$($Of),+>)? std::fmt::Debug for $Type $(<$($Of),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Type))
                    $($(.field(stringify!($field), &self.$field))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

pub use crate::{debug_fields, named};
