use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{Error, Path, Result, ReturnType, Type, TypeParamBound, parse_quote};

/// What a function returns, as far as its call differs by it.
pub(crate) enum Returned {
    /// `impl IntoResponse`: what the body returns and a refusal both become a response.
    Response,
    /// A `Result`.
    Fallible(Type),
    /// Any other type.
    Plain(Type),
}

impl Returned {
    /// The type that the body has, with `_` for what the signature hides.
    pub(crate) fn of(output: &ReturnType, has_callbacks: bool) -> Result<Self> {
        let written = match output {
            ReturnType::Default => return Ok(Self::Plain(parse_quote!(()))),
            ReturnType::Type(_, written) => without_parentheses(written),
        };
        if is_response(written) {
            return Ok(Self::Response);
        }
        let mut value = written.clone();
        let is_hidden = infer_hidden(&mut value);
        if is_hidden && has_callbacks {
            let message = "callbacks return what the function returns, expected a type with a \
                           name: only a whole `impl IntoResponse` may have callbacks";
            return Err(Error::new_spanned(written, message));
        }
        match matches!(written, Type::Path(it) if ends_with(&it.path, "Result")) {
            true => Ok(Self::Fallible(value)),
            false if is_hidden => {
                let message = "a refusal cannot become a hidden type, expected `impl \
                               IntoResponse`, a `Result`, or a type that is `From<Refused>`";
                Err(Error::new_spanned(written, message))
            }
            false => Ok(Self::Plain(value)),
        }
    }
}

/// Macros and formatting put types into groups.
fn without_parentheses(written: &Type) -> &Type {
    match written {
        Type::Group(group) => without_parentheses(&group.elem),
        Type::Paren(paren) => without_parentheses(&paren.elem),
        _ => written,
    }
}

fn is_response(written: &Type) -> bool {
    let Type::ImplTrait(hidden) = written else {
        return false;
    };
    hidden.bounds.iter().any(
        |bound| matches!(bound, TypeParamBound::Trait(it) if ends_with(&it.path, "IntoResponse")),
    )
}

fn ends_with(path: &Path, name: &str) -> bool {
    path.segments.last().is_some_and(|it| it.ident == name)
}

/// Replaces each `impl Trait` by `_`, and says whether there is one.
fn infer_hidden(value: &mut Type) -> bool {
    struct Inferring(bool);
    impl VisitMut for Inferring {
        fn visit_type_mut(&mut self, part: &mut Type) {
            match part {
                Type::ImplTrait(_) => {
                    self.0 = true;
                    *part = parse_quote!(_);
                }
                _ => visit_type_mut(self, part),
            }
        }
    }
    let mut inferring = Inferring(false);
    inferring.visit_type_mut(value);
    inferring.0
}
