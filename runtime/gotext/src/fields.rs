//! The Go types below a pod template, from `fields.txt`.
//!
//! The table is text in the binary. Its first use parses it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const TEXT: &str = include_str!("fields.txt");

/// Name of the outermost type.
pub(crate) const TEMPLATE: &str = "v1.PodTemplateSpec";

/// A field of a struct, in Go and in JSON.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) go_name: &'static str,
    /// Name in JSON; `None` if the JSON object contains the fields of the field's type.
    pub(crate) json_name: Option<&'static str>,
    /// The Go type, as Go prints it.
    pub(crate) go_type: &'static str,
    /// Whether JSON contains the field even if it is empty.
    pub(crate) is_always_written: bool,
}

/// The form of a Go type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'a> {
    /// A pointer to a type.
    Pointer(&'static str),
    /// A slice of a type.
    List(&'static str),
    /// A map from a kind of text to a type.
    Map(&'static str),
    /// A struct with these fields.
    Struct(&'a [Field]),
    /// Text, a boolean or an integer.
    Scalar(Scalar),
    /// `resource.Quantity`.
    Quantity,
    /// `metav1.Time`.
    Time,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `metav1.FieldsV1`: bytes.
    RawJson,
}

/// Kind of a value without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Bool,
    Integer,
}

/// All types by name.
#[derive(Debug, Default)]
pub(crate) struct Types {
    structs: BTreeMap<&'static str, Vec<Field>>,
    /// Names of other types, and their definitions.
    named: BTreeMap<&'static str, &'static str>,
}

/// Returns the types.
pub(crate) fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| Types::parse(TEXT))
}

impl Types {
    fn parse(text: &'static str) -> Self {
        let mut types = Types::default();
        let mut current = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<_> = line.split(' ').collect();
            match parts[..] {
                ["struct", name] => current = Some(types.structs.entry(name).or_default()),
                ["type", name, kind] => {
                    current = None;
                    types.named.insert(name, kind);
                }
                [go_name, json_name, go_type, ref written @ ..] => {
                    let json_name = (json_name != "-").then_some(json_name);
                    let is_always_written = *written == ["always"];
                    if let Some(fields) = &mut current {
                        fields.push(Field { go_name, json_name, go_type, is_always_written });
                    }
                }
                _ => {}
            }
        }
        types
    }

    /// Returns the form of a type; `None` if the table does not contain it.
    pub(crate) fn shape(&self, go_type: &'static str) -> Option<Shape<'_>> {
        if let Some(target) = go_type.strip_prefix('*') {
            return Some(Shape::Pointer(target));
        }
        if let Some(element) = go_type.strip_prefix("[]") {
            return Some(Shape::List(element));
        }
        if let Some((_, value)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Some(Shape::Map(value));
        }
        match go_type {
            "resource.Quantity" => return Some(Shape::Quantity),
            "v1.Time" => return Some(Shape::Time),
            "intstr.IntOrString" => return Some(Shape::IntOrString),
            "v1.FieldsV1" => return Some(Shape::RawJson),
            _ => {}
        }
        if let Some(fields) = self.structs.get(go_type) {
            return Some(Shape::Struct(fields));
        }
        if let Some(target) = self.named.get(go_type) {
            return self.shape(target);
        }
        scalar(go_type).map(Shape::Scalar)
    }

    /// Returns all types that a field has.
    #[cfg(test)]
    pub(crate) fn field_types(&self) -> impl Iterator<Item = &'static str> {
        self.structs.values().flatten().map(|field| field.go_type)
    }
}

fn scalar(kind: &str) -> Option<Scalar> {
    match kind {
        "string" => Some(Scalar::Text),
        "bool" => Some(Scalar::Bool),
        "int" | "int32" | "int64" => Some(Scalar::Integer),
        _ => None,
    }
}
