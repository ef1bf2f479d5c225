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
    let (run, value, is_fallible) = match returned {
        Returned::Fallible(value) => ("try_run", value, true),
        Returned::Plain(value) => ("run", value, false),
        Returned::Response => {
            let made = quote!(#tidegate::__private::IntoResponse::into_response);
            *body = parse_quote!({ #made(async move #body.await) });
            ("run", parse_quote!(#tidegate::__private::Response), false)
        }
    };
    say_type(body, &value);
    let call = call(arguments);
    let callbacks = callbacks(arguments);
    let chain = arguments.named("on_error_chain").map(|it| &it.value);
    let (run, chain) = match chain.map(borrowed) {
        Some(chain) => (format!("{run}_with"), Some(quote!(#chain,))),
        None => (run.to_owned(), None),
    };
    let run = Ident::new(&run, Span::mixed_site());
    let mut returned = quote_spanned!(Span::mixed_site()=> tidegate_returned);
    if is_fallible {
        returned = quote!(#tidegate::__private::returned(#returned));
    }
    let answer = answer(arguments, place, is_fallible);
    // These variables are the macro's own: the body cannot see them. A static of the caller's with
    // one of these names would be a pattern.
    let tokens = quote_spanned! {Span::mixed_site()=>
        let tidegate_call = #call;
        #callbacks
        let tidegate_returned = tidegate_call.#run(#chain async move || #body).await;
        match #returned {
            ::core::result::Result::Ok(tidegate_value) => tidegate_value,
            ::core::result::Result::Err(tidegate_refused) => #answer
        }
    };
    body.stmts = vec![Stmt::Expr(Expr::Verbatim(tokens), None)];
    Ok(())
}

/// What a function returns whose call was refused. The compiler says at this place where that
/// cannot be made of a refusal.
fn answer(arguments: &Arguments, place: Span, is_fallible: bool) -> TokenStream {
    let tidegate = arguments.tidegate();
    // The compiler names the place of a path's first word.
    let error = set_place(quote!(#tidegate::layer::CallError), place);
    let mut made = quote_spanned!(place=> #error::from(tidegate_refused).flatten());
    if is_fallible {
        made = quote!(::core::result::Result::Err(#made));
    }
    match (arguments.named("degrade"), arguments.named("on_error")) {
        (Some(_), Some(_)) => quote_spanned! {Span::mixed_site()=>
            tidegate_refused.answer_by(tidegate_degrade, tidegate_on_error).await
        },
        (Some(degrade), None) => {
            let degraded = quote_spanned! {at(&degrade.value)=>
                tidegate_degrade(tidegate_denied).await
            };
            quote_spanned! {Span::mixed_site()=>
                match tidegate_refused.into_denied() {
                    ::core::result::Result::Ok(tidegate_denied) => #degraded,
                    ::core::result::Result::Err(tidegate_refused) => #made,
                }
            }
        }
        _ => made,
    }
}

/// The callbacks, which are evaluated before the body moves anything.
fn callbacks(arguments: &Arguments) -> TokenStream {
    let tidegate = arguments.tidegate();
    let callbacks = ["degrade", "on_error"].into_iter().filter_map(|name| {
        let MetaNameValue { path, value, .. } = arguments.named(name)?;
        let kind = Ident::new(name, at(path));
        let variable = Ident::new(&format!("tidegate_{name}"), Span::mixed_site());
        Some(quote!(let #variable = #tidegate::__private::#kind(#value);))
    });
    callbacks.collect()
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
                "plan" => borrowed(value),
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
