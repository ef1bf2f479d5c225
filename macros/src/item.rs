use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{Attribute, Error, ImplItem, ImplItemFn, Item, ItemImpl, Meta, Result};

use crate::arguments::Arguments;
use crate::expansion::limit;

/// Limits a function, a method, or the methods of an impl block.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let arguments = Arguments::parse(arguments, Span::call_site());
    let mut item = syn::parse2(item)?;
    match &mut item {
        Item::Fn(function) => limit(&arguments?, &function.sig, &mut function.block)?,
        Item::Impl(block) => limit_block(&arguments?, block)?,
        _ => {
            let message = "expected an async function, an async method or an impl block";
            return Err(Error::new(Span::call_site(), message));
        }
    }
    Ok(item.into_token_stream())
}

/// Limits all async methods, and those that say so themselves by what they say.
fn limit_block(arguments: &Arguments, block: &mut ItemImpl) -> Result<()> {
    let mut limited = 0;
    for item in &mut block.items {
        let ImplItem::Fn(ImplItemFn {
            attrs, sig, block, ..
        }) = item
        else {
            continue;
        };
        match attrs.iter().position(is_limited) {
            Some(place) => limit(&own(&attrs.remove(place))?, sig, block)?,
            None if sig.asyncness.is_some() => limit(arguments, sig, block)?,
            None => continue,
        }
        limited += 1;
    }
    if limited == 0 {
        let message = "there is no async method in this impl block; `#[async_trait]` stands below \
                       `#[limited]`";
        return Err(Error::new(Span::call_site(), message));
    }
    Ok(())
}

fn is_limited(attribute: &Attribute) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|it| it.ident == "limited")
}

/// The arguments of a method's own attribute.
fn own(attribute: &Attribute) -> Result<Arguments> {
    let arguments = match &attribute.meta {
        Meta::List(list) => list.tokens.clone(),
        _ => TokenStream::new(),
    };
    let last = attribute.path().segments.last();
    let place = last.map_or_else(Span::call_site, |it| it.ident.span());
    Arguments::parse(arguments, place)
}
