//! The attributes of a view and of its fields.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, LitStr, Path, Result, Type};

use super::paths::{Resolved, Segment};

/// The attributes of a struct.
pub(super) struct Container {
    pub(super) of: Of,
    /// The value that the paths start at, if the kind is built in.
    pub(super) root: Option<Resolved>,
    /// The value of which a part of a view consists; `None` for a view of an object.
    pub(super) part: Option<Resolved>,
    /// The module of the traits.
    pub(super) module: TokenStream,
}

/// The kind of the objects.
pub(super) enum Of {
    /// A built-in kind.
    BuiltIn {
        /// Path of its type in k8s-openapi.
        rust: String,
    },
    /// The type of a custom resource.
    Type(Box<Type>),
}

/// The attributes of a field.
#[derive(Default)]
pub(super) struct Field {
    pub(super) path: Option<LitStr>,
    pub(super) by_serde: bool,
}

const USE_OF: &str = "name the kind of the objects: `#[view(of = \"v1/Pod\")]`, or the type of a custom resource: `#[view(of = Site)]`";

impl Container {
    pub(super) fn of(input: &DeriveInput) -> Result<Self> {
        let (mut of, mut at, mut root) = (None, None, None);
        for attribute in input.attrs.iter().filter(|it| it.path().is_ident("view")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("of") {
                    let value = meta.value()?;
                    of = Some(match value.peek(LitStr) {
                        true => Named::BuiltIn(value.parse()?),
                        false => Named::Type(Box::new(value.parse()?)),
                    });
                } else if meta.path.is_ident("at") {
                    at = Some(meta.value()?.parse::<LitStr>()?);
                } else if meta.path.is_ident("crate") {
                    root = Some(meta.value()?.parse::<Path>()?);
                } else {
                    return Err(meta.error("the attributes of a view are `of`, `at` and `crate`"));
                }
                Ok(())
            })?;
        }
        let module = root.map_or_else(|| quote!(::windlass::object::view), |root| quote!(#root::view));
        match of.ok_or_else(|| Error::new_spanned(&input.ident, USE_OF))? {
            Named::BuiltIn(name) => Self::built_in(&name, at.as_ref(), module),
            Named::Type(of) => Ok(Self {
                part: at.is_some().then_some(Resolved::UNKNOWN),
                of: Of::Type(of),
                root: None,
                module,
            }),
        }
    }

    /// Returns the value that a path starts at; `None` if its fields are unknown. Custom resources have the metadata of
    /// all kinds.
    pub(super) fn root_of(&self, path: &[Segment]) -> Option<Resolved> {
        let is_metadata = self.part.is_none() && path.first() == Some(&Segment::Name("metadata".to_owned()));
        self.root.or_else(|| is_metadata.then(Resolved::any_object).flatten())
    }

    fn built_in(name: &LitStr, at: Option<&LitStr>, module: TokenStream) -> Result<Self> {
        let text = name.value();
        let (rust, object) = Resolved::kind(&text).map_err(|message| Error::new_spanned(name, message))?;
        let part = at.map(|at| {
            let wrong = |message| Error::new_spanned(at, message);
            let segments = Segment::parse(&at.value()).map_err(wrong)?;
            object.part(&segments).map_err(wrong)
        });
        let part = part.transpose()?;
        Ok(Self { of: Of::BuiltIn { rust }, root: Some(part.unwrap_or(object)), part, module })
    }
}

/// The value of `of`.
enum Named {
    BuiltIn(LitStr),
    Type(Box<Type>),
}

impl Field {
    pub(super) fn of(field: &syn::Field) -> Result<Self> {
        let mut found = Self::default();
        for attribute in field.attrs.iter().filter(|it| it.path().is_ident("view")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("path") {
                    found.path = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("serde") {
                    found.by_serde = true;
                } else {
                    return Err(meta.error("the attributes of a field are `path` and `serde`"));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}
