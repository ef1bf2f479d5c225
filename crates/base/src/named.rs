//! Enums whose variants have names, as metrics and configuration want them.

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

pub use crate::named;
