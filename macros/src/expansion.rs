use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse_quote_spanned;
use syn::spanned::Spanned;
use syn::{
    Block, Error, Expr, Ident, Result, ReturnType, Signature, Stmt, Type, UnOp, parse_quote,
};

use crate::arguments::Arguments;
use crate::returned::Returned;

/// Puts the body of an async function into a call of `Limits`.
pub(crate) fn limit(arguments: &Arguments, signature: &Signature, body: &mut Block) -> Result<()> {
    if signature.asyncness.is_none() {
        let message = "expected an async function; beside `#[async_trait]`, `#[limited]` stands \
                       above it, on the impl block";
        return Err(Error::new_spanned(signature.fn_token, message));
    }
    let callbacks = ["degrade", "on_error_chain"];
    let has_callbacks = callbacks.iter().any(|name| arguments.has(name));
    let returned = Returned::of(&signature.output, has_callbacks)?;

    let tidegate = arguments.tidegate();
    let is_answered = arguments.has("degrade") && arguments.has("on_error");
    let output = match &signature.output {
        ReturnType::Default => Span::mixed_site(),
        ReturnType::Type(_, written) => at(written),
    };
    if !is_answered && matches!(signature.output, ReturnType::Default) {
        let message = "a function that returns nothing cannot say that it was refused, expected \
                       a `Result`, or both `degrade` and `on_error`";
        return Err(Error::new_spanned(&signature.ident, message));
    }
    let answer = match &returned {
        _ if is_answered => quote_spanned!(output=> returned),
        Returned::Fallible(_) => {
            quote_spanned!(output=> returned.map_err(#tidegate::layer::CallError::flatten))
        }
        _ => quote_spanned!(output=> returned.unwrap_or_else(::core::convert::From::from)),
    };
    let run = match &returned {
        Returned::Fallible(_) => quote!(try_run),
        _ => quote!(run),
    };
    match &returned {
        Returned::Fallible(value) | Returned::Plain(value) => say_type(body, value),
        Returned::Response => {
            let made = quote!(#tidegate::__private::IntoResponse::into_response);
            *body = parse_quote!({ #made(async move #body.await) });
            say_type(body, &parse_quote!(#tidegate::__private::Response));
        }
    }
    let call = call(arguments);
    // Its variables are the macro's own: the function cannot see them.
    let tokens = quote_spanned! {Span::mixed_site()=>
        let call = #call;
        let returned = call.#run(async move || #body).await;
        #answer
    };
    body.stmts = vec![Stmt::Expr(Expr::Verbatim(tokens), None)];
    Ok(())
}

/// A closure that is async does not hand its return type on to its body, so what the body returns
/// would not be coerced. A first `return` that is never reached does.
fn say_type(body: &mut Block, value: &Type) {
    let hint = parse_quote_spanned! {Span::mixed_site()=>
        if let ::core::option::Option::Some(returned) = ::core::option::Option::None::<#value> {
            return returned;
        }
    };
    body.stmts.insert(0, hint);
}

/// The call with its arguments. Each setter has the place of its argument's name.
fn call(arguments: &Arguments) -> TokenStream {
    let tidegate = arguments.tidegate();
    let limits = match arguments.named("limits") {
        Some((_, limits)) => borrowed(limits),
        None => quote!(&#tidegate::Limits::installed()),
    };
    let path = borrowed(&arguments.path);
    let setters = arguments.setters().map(|(name, value)| {
        let is_borrowed = match name.to_string().as_str() {
            "key" => is_place(value),
            "plan" | "on_error_chain" => true,
            _ => false,
        };
        let value = match is_borrowed {
            true => borrowed(value),
            false => quote!(#value),
        };
        let setter = Ident::new(&name.to_string(), at(name));
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

/// Whether an expression names something that the function still needs.
fn is_place(value: &Expr) -> bool {
    match value {
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => true,
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)),
        Expr::Group(group) => is_place(&group.expr),
        Expr::Paren(paren) => is_place(&paren.expr),
        _ => false,
    }
}
