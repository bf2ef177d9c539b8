use proc_macro2::TokenStream;
use quote::quote;

use super::expand;

/// Returns the error for a view of Pods with this field.
fn error(field: &TokenStream) -> String {
    let view = quote! {
        #[view(of = "v1/Pod")]
        struct PodView { metadata: Metadata, #field }
    };
    expand(view).expect_err("an invalid view").to_string()
}

fn path_error(path: &str) -> String {
    error(&quote!(#[view(path = #path)] field: Option<String>))
}

#[test]
fn valid_view_expands_to_its_steps() {
    let view = quote! {
        #[view(of = "networking.k8s.io/v1/Ingress")]
        struct Ingress {
            metadata: Metadata,
            #[view(path = "metadata.annotations[example.com/a.b]")]
            note: Option<String>,
            #[view(path = "spec.rules")]
            rules: Vec<Rule>,
        }
    };
    let code = expand(view).expect("a valid view").to_string();
    for part in [
        r#"Step :: Field ("example.com/a.b")"#,
        "k8s_openapi :: api :: networking :: v1 :: Ingress",
        "< Vec < Rule > as :: windlass :: object :: view :: ViewField >",
    ] {
        assert!(code.contains(part), "{part} is not in {code}");
    }
}

#[test]
fn wrong_path_names_what_exists() {
    let cases = [
        ("spec.nodename", "`spec` has no field `nodename`: did you mean `nodeName`?"),
        ("data", "the object has no field `data`; it has metadata, spec, status"),
        ("spec.nodeName.x", "`spec.nodeName` is text: end the path there"),
        (
            "spec.containers.name",
            "`spec.containers` is a list: end the path there and read it as `Vec<T>`, where T is a view with `at = \"spec.containers\"`",
        ),
        ("metadata.labels.app", "`metadata.labels` is a map: select an entry by `metadata.labels[app]`"),
        (
            "spec.containers[a]",
            "the elements of `spec.containers` have no `type`, so no element can be selected",
        ),
        ("spec..nodeName", "a path consists of names, as in `spec.nodeName`"),
        ("spec[a", "a `]` is missing after the key"),
        ("", "the path is empty"),
    ];
    for (path, expected) in cases {
        assert_eq!(path_error(path), expected, "{path}");
    }
}

#[test]
fn invalid_struct_is_rejected_with_the_remedy() {
    assert_eq!(error(&quote!(node: String)), "`node` has no path: add `#[view(path = \"..\")]`");
    let of = |input: TokenStream| expand(input).expect_err("an invalid view").to_string();
    assert!(
        of(quote!(
            struct A {
                metadata: Metadata,
            }
        ))
        .starts_with("name the kind of the objects")
    );
    assert_eq!(
        of(quote!(
            #[view(of = "v1/Pot")]
            struct A {
                metadata: Metadata,
            }
        )),
        "\"v1/Pot\" is not a built-in kind: write it as \"v1/Pod\" or \"apps/v1/ReplicaSet\""
    );
    assert_eq!(
        of(quote!(
            #[view(of = "v1/Pod")]
            struct A {
                #[view(path = "spec.nodeName")]
                a: String,
            }
        )),
        "a view has the metadata of its object: add the field `metadata: Metadata`"
    );
    assert_eq!(
        of(quote!(
            #[view(of = "v1/Pod", at = "spec.nodeName")]
            struct A {
                #[view(path = "a")]
                a: String,
            }
        )),
        "`at` must lead to an object or a list of objects, not to text"
    );
    assert_eq!(
        of(quote!(
            #[view(of = "v1/Pod")]
            enum A {}
        )),
        "a view is a struct with named fields"
    );
    assert_eq!(
        of(quote!(
            #[view(kind = "v1/Pod")]
            struct A {}
        )),
        "the attributes of a view are `of`, `at` and `crate`"
    );
}
