use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{Error, Ident, Result, ReturnType, Type, TypeParamBound, parse_quote};

/// What a function returns, as far as its call differs by it.
pub(crate) enum Returned {
    /// `impl IntoResponse`: what the body returns and a refusal both become a response.
    Response,
    /// A `Result`, with `_` for what the signature hides.
    Fallible(Type),
    /// Any other type.
    Plain(Type),
}

impl Returned {
    pub(crate) fn of(output: &ReturnType, has_callbacks: bool) -> Result<Self> {
        let mut written = match output {
            ReturnType::Default => &parse_quote!(()),
            ReturnType::Type(_, written) => &**written,
        };
        // Macros make groups.
        while let Type::Group(group) = written {
            written = &group.elem;
        }
        let mut value = written.clone();
        let mut hidden = Hidden(false);
        hidden.visit_type_mut(&mut value);
        match last_name(written) {
            Some(name) if name == "IntoResponse" => Ok(Self::Response),
            Some(name) if name == "Result" && !(hidden.0 && has_callbacks) => {
                Ok(Self::Fallible(value))
            }
            _ if !hidden.0 => Ok(Self::Plain(value)),
            _ => {
                let message = "neither a refusal nor a callback can become this hidden type, \
                               expected a type with a name, a whole `impl IntoResponse`, or a \
                               `Result<impl Trait, E>` without callbacks";
                Err(Error::new_spanned(written, message))
            }
        }
    }
}

/// The last name of a type, or of the first trait of a hidden type.
fn last_name(written: &Type) -> Option<&Ident> {
    let path = match written {
        Type::Path(named) => &named.path,
        Type::ImplTrait(hidden) => match hidden.bounds.first()? {
            TypeParamBound::Trait(bound) => &bound.path,
            _ => return None,
        },
        _ => return None,
    };
    Some(&path.segments.last()?.ident)
}

/// Whether there was an `impl Trait`. It replaces each by `_`.
struct Hidden(bool);

impl VisitMut for Hidden {
    fn visit_type_mut(&mut self, part: &mut Type) {
        if matches!(part, Type::ImplTrait(_)) {
            (*part, self.0) = (parse_quote!(_), true);
        }
        visit_type_mut(self, part);
    }
}
