use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, MetaNameValue, Result, Token};

/// The names of the arguments, in the order in which they are evaluated; a call has setters for the
/// first ones.
const NAMES: &str =
    "key, cost, plan, plan_value, wait, degrade, on_error, on_error_chain, limits, crate";

/// What stands in `#[limited(..)]`: a path, and named values.
pub(crate) struct Arguments {
    pub(crate) path: Expr,
    named: Vec<MetaNameValue>,
}

impl Arguments {
    /// Reads the arguments of an attribute. What is missing is an error at this place of it.
    pub(crate) fn parse(arguments: TokenStream, attribute: Span) -> Result<Self> {
        let read = |input: ParseStream| {
            let first = (!input.is_empty()).then(|| input.parse()).transpose()?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
            let named = Punctuated::<_, Token![,]>::parse_terminated(input)?;
            Ok((first, named.into_iter().collect()))
        };
        let (first, named) = read.parse2(arguments)?;
        let Some(path) = first.filter(|it| !matches!(it, Expr::Assign(_))) else {
            let message = "the path of the rule is missing, expected it first: \
                           `#[limited(\"path\", key = ..)]`";
            return Err(Error::new(attribute, message));
        };
        let arguments = Self { path, named };
        arguments.check(attribute)?;
        Ok(arguments)
    }

    fn check(&self, attribute: Span) -> Result<()> {
        for (place, MetaNameValue { path, value, .. }) in self.named.iter().enumerate() {
            let is_same = |it: &MetaNameValue| it.path.get_ident() == path.get_ident();
            let wrong = if !NAMES.split(", ").any(|known| path.is_ident(known)) {
                format!("there is no such argument, expected one of {NAMES}")
            } else if self.named[..place].iter().any(is_same) {
                "this argument is given twice".into()
            } else if path.is_ident("crate") && !matches!(value, Expr::Path(_)) {
                "expected the path of the crate tidegate, without quotes".into()
            } else {
                continue;
            };
            return Err(Error::new_spanned(path, wrong));
        }
        if self.named("key").is_none() {
            let message = "`key` is missing, expected who is counted: `key = user.id`, or \
                           `key = Everyone` for one count of all callers";
            return Err(Error::new(attribute, message));
        }
        if let (Some(on_error), None) = (self.named("on_error"), self.named("degrade")) {
            let message = "`on_error` needs `degrade`, expected both: without it use \
                           `on_error_chain`, or an error type that is `From<Refused>`";
            return Err(Error::new_spanned(&on_error.path, message));
        }
        Ok(())
    }

    pub(crate) fn named(&self, name: &str) -> Option<&MetaNameValue> {
        self.named.iter().find(|it| it.path.is_ident(name))
    }

    /// What the call is given, by the names of its setters.
    pub(crate) fn setters(&self) -> impl Iterator<Item = (&'static str, &MetaNameValue)> {
        let setters = NAMES.split(", ").take(5);
        setters.filter_map(|name| Some((name, self.named(name)?)))
    }

    /// The path of the crate.
    pub(crate) fn tidegate(&self) -> TokenStream {
        let path = self.named("crate").map(|it| it.value.to_token_stream());
        path.unwrap_or_else(|| quote!(::tidegate))
    }
}
