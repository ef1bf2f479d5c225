use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, ImplItem, Item, ItemImpl, Meta, Result, Token};

use crate::arguments::Arguments;
use crate::expansion::limit;

/// Limits a function, a method, or the methods of an impl block.
pub(crate) fn expand(written: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments = Arguments::parse(written.clone(), Span::call_site())?;
    let mut item = syn::parse2(item)?;
    match &mut item {
        Item::Fn(function) => limit(&arguments, &function.sig, &mut function.block)?,
        Item::Impl(block) => limit_block(&arguments, &written, block)?,
        _ => {
            let message = "expected an async function, an async method or an impl block";
            return Err(Error::new(Span::call_site(), message));
        }
    }
    Ok(item.into_token_stream())
}

/// Limits all async methods, and those that say so themselves by what they say.
fn limit_block(arguments: &Arguments, written: &TokenStream, block: &mut ItemImpl) -> Result<()> {
    let mut is_limited = false;
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        let name = |it: &Attribute| Some(it.path().segments.last()?.ident.clone());
        let is_own = |it: &Attribute| name(it).is_some_and(|it| it == "limited");
        if let Some(place) = method.attrs.iter().position(is_own) {
            let own = method.attrs.remove(place);
            let own = own.meta.require_list()?;
            let own = Arguments::parse(own.tokens.clone(), own.path.span())?;
            limit(&own, &method.sig, &mut method.block)?;
        } else if let Some(condition) = method.attrs.iter().find_map(condition_of_own) {
            let tidegate = arguments.tidegate();
            let otherwise = quote!(#[cfg_attr(not(#condition), #tidegate::limited(#written))]);
            method
                .attrs
                .extend(Attribute::parse_outer.parse2(otherwise)?);
        } else if method.sig.asyncness.is_some() {
            limit(arguments, &method.sig, &mut method.block)?;
        } else {
            continue;
        }
        is_limited = true;
    }
    if is_limited {
        return Ok(());
    }
    let message = "there is no async method in this impl block; `#[async_trait]` stands below \
                   `#[limited]`";
    Err(Error::new(Span::call_site(), message))
}

/// When a method has an attribute of its own, if that stands in `#[cfg_attr(condition, limited(..))]`.
fn condition_of_own(attribute: &Attribute) -> Option<Meta> {
    if !attribute.path().is_ident("cfg_attr") {
        return None;
    }
    let metas = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    let mut metas = metas.ok()?.into_iter();
    let condition = metas.next()?;
    let is_own = |it: Meta| Some(it.path().segments.last()?.ident == "limited");
    metas
        .any(|it| is_own(it) == Some(true))
        .then_some(condition)
}
