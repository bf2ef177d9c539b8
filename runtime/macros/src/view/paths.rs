//! Paths through the built-in kinds.

use proc_macro2::TokenStream;
use quote::quote;
use windlass_kinds::{Cardinality, FieldType, Message};

/// A part of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// A field: `.name`.
    Name(String),
    /// An entry of a map, or a condition by its type: `[name]`.
    Key(String),
}

/// A step of the generated code.
pub(super) enum Step {
    Field(String),
    Element(String),
}

/// The type of a value in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    cardinality: Cardinality,
    /// `None` if the type is unknown.
    of: Option<FieldType>,
}

/// The value at the end of a path.
pub(super) struct End {
    pub(super) steps: Vec<Step>,
    pub(super) value: Resolved,
}

impl Segment {
    /// Parses a path such as `metadata.annotations[example.com/key]`.
    pub(super) fn parse(path: &str) -> Result<Vec<Self>, String> {
        let (mut segments, mut rest) = (Vec::new(), path);
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (key, after) = inside.split_once(']').ok_or("a `]` is missing after the key")?;
                segments.push(Self::Key(key.to_owned()));
                rest = after;
                continue;
            }
            let name = rest.strip_prefix('.').filter(|_| !segments.is_empty()).unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return Err("a path consists of names, as in `spec.nodeName`".to_owned());
            }
            segments.push(Self::Name(name[..end].to_owned()));
            rest = &name[end..];
        }
        match segments.is_empty() {
            true => Err("the path is empty".to_owned()),
            false => Ok(segments),
        }
    }
}

impl Step {
    /// Returns the step of a custom resource, whose fields are unknown.
    pub(super) fn unchecked(segment: Segment) -> Self {
        match segment {
            Segment::Name(name) => Self::Field(name),
            // Maps with given keys are rare in custom resources, conditions are frequent.
            Segment::Key(key) => Self::Element(key),
        }
    }

    pub(super) fn tokens(&self, module: &TokenStream) -> TokenStream {
        match self {
            Self::Field(name) => quote!(#module::Step::Field(#name)),
            Self::Element(name) => quote!(#module::Step::Element(#name)),
        }
    }
}

impl Resolved {
    /// A value of a custom resource.
    pub(super) const UNKNOWN: Self = Self { cardinality: Cardinality::One, of: None };

    /// Returns an object of a kind whose metadata is that of all kinds.
    pub(super) fn any_object() -> Option<Self> {
        Self::kind("v1/ConfigMap").ok().map(|(_, object)| object)
    }

    /// Returns the path of the Rust type of a built-in kind, such as `apps/v1/ReplicaSet`, and its fields.
    pub(super) fn kind(name: &str) -> Result<(String, Self), String> {
        let usage =
            || format!("{name:?} is not a built-in kind: write it as \"v1/Pod\" or \"apps/v1/ReplicaSet\"");
        let (api_version, kind) = name.rsplit_once('/').ok_or_else(usage)?;
        let message = Message::of_version(api_version, kind).ok_or_else(usage)?;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("core", api_version));
        let short = group.split('.').next().unwrap_or(group);
        let module = match group {
            "apiextensions.k8s.io" => "apiextensions_apiserver::pkg::apis::apiextensions",
            "apiregistration.k8s.io" => "kube_aggregator::pkg::apis::apiregistration",
            _ => &format!("api::{short}"),
        };
        let of = Some(FieldType::Message(message));
        Ok((format!("{module}::{version}::{kind}"), Self { cardinality: Cardinality::One, of }))
    }

    /// Follows a path.
    pub(super) fn follow(self, path: &[Segment]) -> Result<End, String> {
        let mut end = End { steps: Vec::new(), value: self };
        let mut text = String::new();
        for segment in path {
            let (step, value) = end.value.step(segment, &text)?;
            match segment {
                Segment::Name(name) if text.is_empty() => text.push_str(name),
                Segment::Name(name) => text.push_str(&format!(".{name}")),
                Segment::Key(key) => text.push_str(&format!("[{key}]")),
            }
            end.steps.push(step);
            end.value = value;
        }
        Ok(end)
    }

    /// Follows a path to an object, or to the elements of a list of objects.
    pub(super) fn part(self, path: &[Segment]) -> Result<Self, String> {
        let mut value = self;
        for (position, segment) in path.iter().enumerate() {
            let single = Self { cardinality: Cardinality::One, ..value };
            value = single
                .follow(std::slice::from_ref(segment))
                .map_err(|message| match position {
                    0 => message,
                    _ => format!("{message} (after the first {position} names)"),
                })?
                .value;
        }
        match value.of {
            Some(FieldType::Message(_)) => Ok(Self { cardinality: Cardinality::One, ..value }),
            _ => {
                Err(format!("`at` must lead to an object or a list of objects, not to {}", value.describe()))
            }
        }
    }

    fn step(self, segment: &Segment, before: &str) -> Result<(Step, Self), String> {
        let one = |of| Self { cardinality: Cardinality::One, of };
        match (segment, self.cardinality, self.of) {
            (Segment::Name(name), Cardinality::One, Some(FieldType::Message(message))) => {
                let field = message.field(name).ok_or_else(|| absent(name, message, before))?;
                let value = Self { cardinality: field.cardinality(), of: Some(field.field_type()) };
                Ok((Step::Field(name.clone()), value))
            }
            (Segment::Key(key), Cardinality::Map, of) => Ok((Step::Field(key.clone()), one(of))),
            (Segment::Key(key), Cardinality::List, of @ Some(FieldType::Message(message)))
                if message.field("type").is_some() =>
            {
                Ok((Step::Element(key.clone()), one(of)))
            }
            (Segment::Name(_), Cardinality::List, _) => Err(format!(
                "`{before}` is a list: end the path there and read it as `Vec<T>`, where T is a view with `at = \"{before}\"`"
            )),
            (Segment::Name(name), Cardinality::Map, _) => {
                Err(format!("`{before}` is a map: select an entry by `{before}[{name}]`"))
            }
            (Segment::Key(_), Cardinality::List, _) => {
                Err(format!("the elements of `{before}` have no `type`, so no element can be selected"))
            }
            _ => Err(format!("`{before}` is {}: end the path there", self.describe())),
        }
    }

    /// Returns the expression of the shape.
    pub(super) fn shape(self, module: &TokenStream) -> TokenStream {
        let shape = match self.of {
            None | Some(FieldType::Json) => quote!(#module::Shape::Any),
            Some(FieldType::String | FieldType::Bytes | FieldType::Duration) => quote!(#module::Shape::Text),
            Some(FieldType::Bool) => quote!(#module::Shape::Bool),
            Some(FieldType::Int32 | FieldType::Int64) => quote!(#module::Shape::Integer),
            Some(FieldType::Double) => quote!(#module::Shape::Number),
            Some(FieldType::Time | FieldType::MicroTime) => quote!(#module::Shape::Time),
            Some(FieldType::Quantity) => quote!(#module::Shape::Quantity),
            Some(FieldType::IntOrString) => quote!(#module::Shape::IntOrString),
            Some(FieldType::Strings) => quote!(#module::Shape::List(&#module::Shape::Text)),
            Some(FieldType::Message(message)) => {
                let index = message.index();
                quote!(#module::Shape::Object(#index))
            }
        };
        match self.cardinality {
            Cardinality::One => shape,
            Cardinality::List => quote!(#module::Shape::List(&#shape)),
            Cardinality::Map => quote!(#module::Shape::Map(&#shape)),
        }
    }

    /// Returns the type in words.
    pub(super) fn describe(self) -> String {
        let one = match self.of {
            None | Some(FieldType::Json) => "any JSON",
            Some(FieldType::String | FieldType::Bytes | FieldType::Duration) => "text",
            Some(FieldType::Bool) => "a boolean",
            Some(FieldType::Int32 | FieldType::Int64) => "an integer",
            Some(FieldType::Double) => "a number",
            Some(FieldType::Time | FieldType::MicroTime) => "a time: use `Option<Time>`",
            Some(FieldType::Quantity) => "a quantity",
            Some(FieldType::IntOrString) => "an integer or text: use `IntOrString`",
            Some(FieldType::Strings) => "a list of text",
            Some(FieldType::Message(_)) => "an object: use a view with `at`",
        };
        match self.cardinality {
            Cardinality::One => one.to_owned(),
            Cardinality::List => format!("a list; each element is {one}"),
            Cardinality::Map => format!("a map; each value is {one}"),
        }
    }
}

/// Returns the error for a field that does not exist, with the fields that do.
fn absent(name: &str, message: Message, before: &str) -> String {
    let names = message.names();
    let similar = names
        .iter()
        .find(|it| it.eq_ignore_ascii_case(name) || it.starts_with(name) || name.starts_with(**it));
    let of = if before.is_empty() { "the object".to_owned() } else { format!("`{before}`") };
    match similar {
        Some(similar) => format!("{of} has no field `{name}`: did you mean `{similar}`?"),
        None => format!("{of} has no field `{name}`; it has {}", names.join(", ")),
    }
}
