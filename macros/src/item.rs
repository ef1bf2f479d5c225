use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Attribute, Error, ImplItem, Item, ItemImpl, Result};

use crate::arguments::Arguments;
use crate::expansion::limit;

/// Limits a function, a method, or the methods of an impl block.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments = Arguments::parse(arguments, Span::call_site())?;
    let mut item = syn::parse2(item)?;
    match &mut item {
        Item::Fn(function) => limit(&arguments, &function.sig, &mut function.block)?,
        Item::Impl(block) => limit_block(&arguments, block)?,
        _ => {
            let message = "expected an async function, an async method or an impl block";
            return Err(Error::new(Span::call_site(), message));
        }
    }
    Ok(item.into_token_stream())
}

/// Limits all async methods, and those that say so themselves by what they say.
fn limit_block(arguments: &Arguments, block: &mut ItemImpl) -> Result<()> {
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
