//! Implements `#[derive(View)]`: checks the paths against the built-in kinds, and generates the decoder.

mod attributes;
mod paths;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, Type};

use self::attributes::{Container, Field, Of};
use self::paths::{Resolved, Segment, Step};

/// Returns the implementations for a struct.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let container = Container::of(&input)?;
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a view cannot be generic: name the type of each field",
        ));
    }
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a view is a struct with named fields"));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "a view is a struct with named fields"));
    };
    let fields =
        named.named.iter().map(|field| ViewField::of(field, &container)).collect::<Result<Vec<_>>>()?;
    let reader = reader(&input.ident, &container, &fields);
    let rest = match &container.part {
        Some(part) => part_of_view(&input.ident, &container, part),
        None => whole_view(&input.ident, &container, &fields)?,
    };
    Ok(quote! { #reader #rest })
}

/// A field of a view.
struct ViewField<'a> {
    name: &'a Ident,
    of: &'a Type,
    steps: Vec<Step>,
    /// Whether serde reads the value.
    by_serde: bool,
    /// The shape of the value, if the kind is built in.
    check: Option<TokenStream>,
}

impl<'a> ViewField<'a> {
    fn of(field: &'a syn::Field, container: &Container) -> Result<Self> {
        let (Some(name), of) = (&field.ident, &field.ty) else {
            return Err(Error::new_spanned(field, "a view is a struct with named fields"));
        };
        let Field { path, by_serde } = Field::of(field)?;
        let Some(path) = path else {
            if name == "metadata" && container.part.is_none() {
                let steps = vec![Step::Field("metadata".to_owned())];
                return Ok(Self { name, of, steps, by_serde: false, check: None });
            }
            let message = format!("`{name}` has no path: add `#[view(path = \"..\")]`");
            return Err(Error::new_spanned(name, message));
        };
        let segments = Segment::parse(&path.value()).map_err(|message| Error::new_spanned(&path, message))?;
        let Some(root) = container.root_of(&segments) else {
            let steps = segments.into_iter().map(Step::unchecked).collect();
            return Ok(Self { name, of, steps, by_serde, check: None });
        };
        let resolved = root.follow(&segments).map_err(|message| Error::new_spanned(&path, message))?;
        let check = (!by_serde).then(|| shape_check(container, of, &path.value(), resolved.value));
        Ok(Self { name, of, steps: resolved.steps, by_serde, check })
    }
}

/// Returns an assertion that the type of a field can read the value at its path.
fn shape_check(container: &Container, of: &Type, path: &str, value: Resolved) -> TokenStream {
    let view = &container.module;
    let shape = value.shape(view);
    let message = format!("the value at `{path}` is {}", value.describe());
    quote_spanned! { of.span() =>
        const _: () = ::core::assert!(<#of as #view::ViewField>::SHAPE.reads(&#shape), #message);
    }
}

/// Returns the code that reads the fields.
fn reader(view: &Ident, container: &Container, fields: &[ViewField<'_>]) -> TokenStream {
    let module = &container.module;
    let paths = fields.iter().map(|ViewField { steps, .. }| {
        let steps = steps.iter().map(|step| step.tokens(module));
        quote!(&[#(#steps),*])
    });
    let empty = fields.iter().map(|ViewField { name, of, by_serde, .. }| match by_serde {
        true => quote!(#name: ::core::default::Default::default()),
        false => quote!(#name: <#of as #module::ViewField>::absent()),
    });
    let set = fields.iter().enumerate().map(|(index, ViewField { name, by_serde, .. })| match by_serde {
        true => quote!(#index => self.#name = value.decode()?),
        false => quote!(#index => self.#name = #module::ViewField::read(value, interner)?),
    });
    let checks = fields.iter().filter_map(|field| field.check.as_ref());
    quote! {
        #(#checks)*

        impl #module::Fields for #view {
            fn paths() -> &'static #module::ViewPaths {
                static PATHS: ::std::sync::OnceLock<#module::ViewPaths> = ::std::sync::OnceLock::new();
                PATHS.get_or_init(|| #module::ViewPaths::new(&[#(#paths),*]))
            }

            fn empty() -> Self {
                Self { #(#empty),* }
            }

            fn set(
                &mut self,
                field: usize,
                value: #module::Value<'_>,
                interner: &mut #module::Interner,
            ) -> ::core::result::Result<(), #module::Error> {
                match field {
                    #(#set,)*
                    _ => {}
                }
                ::core::result::Result::Ok(())
            }
        }
    }
}

/// Returns the code of a view of an object.
fn whole_view(view: &Ident, container: &Container, fields: &[ViewField<'_>]) -> Result<TokenStream> {
    if !fields.iter().any(|field| field.name == "metadata") {
        let message = "a view has the metadata of its object: add the field `metadata: Metadata`";
        return Err(Error::new_spanned(view, message));
    }
    let module = &container.module;
    let of = match &container.of {
        Of::BuiltIn { rust } => {
            let path: TokenStream =
                rust.parse().map_err(|_| Error::new_spanned(view, "the kind has no Rust type"))?;
            quote!(#module::derived::k8s_openapi::#path)
        }
        Of::Type(of) => quote!(#of),
    };
    Ok(quote! {
        impl #module::derived::HasMetadata for #view {
            fn metadata(&self) -> #module::derived::MetadataRef<'_> {
                #module::derived::MetadataRef::Compact(&self.metadata)
            }
        }

        impl #module::View for #view {
            fn kind() -> #module::derived::ResourceKind {
                #module::derived::ResourceKind::of::<#of>()
            }
        }

        impl #module::derived::Watchable for #view {
            type Representation = #module::ViewObjects<Self>;

            fn representation() -> Self::Representation {
                #module::ViewObjects::new()
            }
        }
    })
}

/// Returns the code of a view of a part of an object.
fn part_of_view(view: &Ident, container: &Container, part: &Resolved) -> TokenStream {
    let module = &container.module;
    let shape = part.shape(module);
    quote! {
        impl #module::ViewField for #view {
            const SHAPE: #module::Shape = #shape;

            fn absent() -> Self {
                <Self as #module::Fields>::empty()
            }

            fn read(
                value: #module::Value<'_>,
                interner: &mut #module::Interner,
            ) -> ::core::result::Result<Self, #module::Error> {
                #module::read_fields(value, interner)
            }
        }

        impl #module::Optional for #view {}
    }
}
