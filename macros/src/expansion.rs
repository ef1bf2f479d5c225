use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Block, Error, Expr, Ident, MetaNameValue, Result, ReturnType, Signature, Stmt};
use syn::{Type, UnOp, parse_quote, parse_quote_spanned};

use crate::arguments::Arguments;
use crate::returned::Returned;

/// Puts the body of an async function into a call of `Limits`.
pub(crate) fn limit(arguments: &Arguments, signature: &Signature, body: &mut Block) -> Result<()> {
    if signature.asyncness.is_none() {
        let message = "expected an async function; beside `#[async_trait]`, `#[limited]` stands \
                       above it, on the impl block";
        return Err(Error::new_spanned(signature.fn_token, message));
    }
    let has = |name| arguments.named(name).is_some();
    let is_answered = has("degrade") && has("on_error");
    let returned = Returned::of(&signature.output, has("degrade") || has("on_error_chain"))?;
    let place = match &signature.output {
        ReturnType::Type(_, written) => at(written),
        ReturnType::Default if is_answered => Span::mixed_site(),
        ReturnType::Default => {
            let message = "a function that returns nothing cannot say that it was refused, \
                           expected a `Result`, or both `degrade` and `on_error`";
            return Err(Error::new_spanned(&signature.ident, message));
        }
    };

    let tidegate = arguments.tidegate();
    // The compiler names the place of a path's first word.
    let error = set_place(quote!(#tidegate::layer::CallError), place);
    let from = quote_spanned!(place=> .unwrap_or_else(|it| #error::from(it).flatten()));
    let flatten = quote_spanned!(place=> .map_err(#error::flatten));
    let (run, value, refused) = match returned {
        Returned::Fallible(value) => (quote!(try_run), value, flatten),
        Returned::Plain(value) => (quote!(run), value, from),
        Returned::Response => {
            let made = quote!(#tidegate::__private::IntoResponse::into_response);
            *body = parse_quote!({ #made(async move #body.await) });
            let response = parse_quote!(#tidegate::__private::Response);
            (quote!(run), response, from)
        }
    };
    say_type(body, &value);
    let call = call(arguments);
    let refused = (!is_answered).then_some(refused);
    let returned = quote_spanned!(place=> tidegate_returned #refused);
    // These variables are the macro's own: the body cannot see them. A static of the caller's with
    // one of these names would be a pattern.
    let tokens = quote_spanned! {Span::mixed_site()=>
        let tidegate_call = #call;
        let tidegate_returned = tidegate_call.#run(async move || #body).await;
        #returned
    };
    body.stmts = vec![Stmt::Expr(Expr::Verbatim(tokens), None)];
    Ok(())
}

/// An async closure does not tell its body its return type, so what the body returns would not be
/// coerced. A `return` that is never reached does.
fn say_type(body: &mut Block, value: &Type) {
    let typed = quote!(::core::option::Option::None::<#value>);
    let first = parse_quote_spanned! {Span::mixed_site()=>
        if let ::core::option::Option::Some(tidegate_typed) = #typed {
            return tidegate_typed;
        }
    };
    body.stmts.insert(0, first);
}

/// The call with its arguments. Each setter has the place of its argument's name.
fn call(arguments: &Arguments) -> TokenStream {
    let tidegate = arguments.tidegate();
    let limits = arguments.named("limits").map(|it| borrowed(&it.value));
    let limits = limits.unwrap_or_else(|| quote!(&#tidegate::Limits::installed()));
    let path = borrowed(&arguments.path);
    let setters = arguments
        .setters()
        .map(|(name, MetaNameValue { path, value, .. })| {
            let setter = Ident::new(name, at(path));
            let value = match name {
                "plan" | "on_error_chain" => borrowed(value),
                "key" if is_place(value) => borrowed(value),
                _ => quote!(#value),
            };
            quote!(.#setter(#value))
        });
    quote!(#tidegate::Limits::call(#limits, #path) #(#setters)*)
}

fn borrowed(value: &Expr) -> TokenStream {
    quote_spanned!(at(value)=> &(#value))
}

/// Where the compiler says what is wrong with the type of this.
fn at(written: &impl Spanned) -> Span {
    Span::mixed_site().located_at(written.span())
}

/// A path, at this place.
fn set_place(path: TokenStream, place: Span) -> TokenStream {
    let moved = |mut token: TokenTree| {
        token.set_span(place);
        token
    };
    path.into_iter().map(moved).collect()
}

/// Whether an expression names something that the function still needs.
fn is_place(value: &Expr) -> bool {
    match value {
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => true,
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)),
        Expr::Group(group) => is_place(&group.expr),
        _ => false,
    }
}
