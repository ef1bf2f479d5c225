use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, Result, Token};

/// The arguments that a call has setters for, in the order in which it is given them.
const SETTERS: [&str; 8] = [
    "key",
    "cost",
    "plan",
    "quotas",
    "wait",
    "degrade",
    "on_error",
    "on_error_chain",
];

/// The others.
const OTHERS: [&str; 2] = ["limits", "crate"];

/// What stands in `#[limited(..)]`: a path, and named values.
pub(crate) struct Arguments {
    pub(crate) path: Expr,
    named: Vec<(Ident, Expr)>,
}

impl Arguments {
    /// Reads the arguments of an attribute. What is missing is an error at this place of it.
    pub(crate) fn parse(arguments: TokenStream, attribute: Span) -> Result<Self> {
        let read = |input: ParseStream| Self::read(input, attribute);
        read.parse2(arguments)
    }

    fn read(input: ParseStream, attribute: Span) -> Result<Self> {
        if input.is_empty() || begins_with_name(input) {
            let message = "the path of the rule is missing, expected it first: \
                           `#[limited(\"path\", key = ..)]`";
            return Err(Error::new(attribute, message));
        }
        let path = input.parse()?;
        let mut arguments = Self {
            path,
            named: Vec::new(),
        };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                arguments.read_named(input)?;
            }
        }
        arguments.check(attribute)?;
        Ok(arguments)
    }

    fn read_named(&mut self, input: ParseStream) -> Result<()> {
        if !begins_with_name(input) {
            return Err(input.error(format!("expected `name = value`, one of {}", names())));
        }
        let name = input.call(Ident::parse_any)?;
        if !SETTERS.iter().chain(&OTHERS).any(|known| name == known) {
            let message = format!("there is no argument `{name}`, expected one of {}", names());
            return Err(Error::new(name.span(), message));
        }
        if self.has(&name.to_string()) {
            return Err(Error::new(name.span(), format!("`{name}` is given twice")));
        }
        input.parse::<Token![=]>()?;
        let value = input.parse()?;
        if name == "crate" && !matches!(value, Expr::Path(_)) {
            let message = "expected the path of the crate tidegate, without quotes";
            return Err(Error::new_spanned(value, message));
        }
        self.named.push((name, value));
        Ok(())
    }

    /// What no argument shows by itself.
    fn check(&self, attribute: Span) -> Result<()> {
        if self.named("key").is_none() {
            let message = "`key` is missing, expected who is counted: `key = user.id`, or \
                           `key = Everyone` for one count of all callers";
            return Err(Error::new(attribute, message));
        }
        let Some((name, _)) = self.named("on_error") else {
            return Ok(());
        };
        if !self.has("degrade") {
            let message = "`on_error` needs `degrade`, expected both: without it use \
                           `on_error_chain`, or an error type that is `From<Refused>`";
            return Err(Error::new(name.span(), message));
        }
        if self.has("on_error_chain") {
            let message = "`on_error` answers all failures, expected no `on_error_chain` beside it";
            return Err(Error::new(name.span(), message));
        }
        Ok(())
    }

    /// The name as it is written, and its value.
    pub(crate) fn named(&self, name: &str) -> Option<&(Ident, Expr)> {
        self.named.iter().find(|(known, _)| known == name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// What the call is given.
    pub(crate) fn setters(&self) -> impl Iterator<Item = &(Ident, Expr)> {
        SETTERS.iter().filter_map(|name| self.named(name))
    }

    /// The path of the crate.
    pub(crate) fn tidegate(&self) -> TokenStream {
        match self.named("crate") {
            Some((_, path)) => quote!(#path),
            None => quote!(::tidegate),
        }
    }
}

/// Whether `name =` comes next, and not an expression such as `a == b`.
fn begins_with_name(input: ParseStream) -> bool {
    input.peek(Ident::peek_any) && input.peek2(Token![=]) && !input.peek2(Token![==])
}

fn names() -> String {
    let names: Vec<_> = SETTERS
        .iter()
        .chain(&OTHERS)
        .map(|name| format!("`{name}`"))
        .collect();
    names.join(", ")
}
