//! The paths of a view as a tree, and the walk of an object along it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::value::{Encoded, Error, Value};
use crate::wire::protobuf::{FieldValue, is_protobuf};

/// A step from an object to a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the field with this name, or to the entry with this key.
    Field(&'static str),
    /// To the first element of a list whose `type` has this value.
    Element(&'static str),
}

/// The paths of a view.
#[derive(Debug, Default)]
pub struct ViewPaths(Node);

/// A value on a path.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The fields of the view that read this value.
    readers: Vec<usize>,
    /// Whether a field of the view reads a value below this one.
    is_passed: bool,
    /// Whether the children are elements of a list, by their type.
    has_elements: bool,
    children: Vec<(&'static str, Node)>,
}

/// Receives the index of a field and its value.
type Found<'f> = dyn FnMut(usize, Value<'_>) -> Result<(), Error> + 'f;

impl ViewPaths {
    /// Creates the tree of these paths. The index of a path is the index of its field.
    pub fn new(paths: &[&'static [Step]]) -> Self {
        let mut root = Node::default();
        for (index, steps) in paths.iter().enumerate() {
            root.add(steps, index);
        }
        Self(root)
    }

    /// Calls `found` with each value in an object that is at the end of a path and not null.
    ///
    /// # Errors
    ///
    /// If the bytes are not an object, if a value on a path is not an object, and each error of `found`.
    pub(super) fn walk_object(&self, object: &[u8], found: &mut Found<'_>) -> Result<(), Error> {
        match is_protobuf(object) {
            true => self.0.walk_fields(FieldValue::object(object)?, found),
            false => self.0.walk_json(object, found),
        }
    }

    /// Calls `found` with each value in a part of an object.
    ///
    /// # Errors
    ///
    /// As [`walk_object`](Self::walk_object).
    pub(super) fn walk(&self, part: Value<'_>, found: &mut Found<'_>) -> Result<(), Error> {
        self.0.walk(part, found)
    }
}

impl Node {
    fn add(&mut self, steps: &'static [Step], index: usize) {
        let Some((step, rest)) = steps.split_first() else {
            self.readers.push(index);
            return;
        };
        self.is_passed = true;
        let name = match *step {
            Step::Field(name) => name,
            Step::Element(name) => {
                self.has_elements = true;
                name
            }
        };
        self.child_mut(name).add(rest, index);
    }

    fn child_mut(&mut self, name: &'static str) -> &mut Node {
        let at = self.children.iter().position(|(it, _)| *it == name).unwrap_or_else(|| {
            self.children.push((name, Node::default()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }

    /// Returns the node of a field or an entry; `None` if nothing below it is read.
    fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|(it, _)| *it == name).map(|(_, child)| child)
    }

    fn walk(&self, value: Value<'_>, found: &mut Found<'_>) -> Result<(), Error> {
        match value.0 {
            Encoded::Json(json) => self.walk_json(json.get().as_bytes(), found),
            Encoded::Protobuf(value) => self.walk_fields(value, found),
        }
    }

    fn walk_json(&self, json: &[u8], found: &mut Found<'_>) -> Result<(), Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        ObjectWalk { node: self, found }.deserialize(&mut reader)?;
        Ok(reader.end()?)
    }

    fn walk_fields(&self, value: FieldValue<'_>, found: &mut Found<'_>) -> Result<(), Error> {
        value.each_field(&|name| self.child(name).is_some(), &mut |name, value| match (
            self.child(name),
            Value::of_protobuf(value)?,
        ) {
            (Some(child), Some(value)) => child.read(value, found),
            _ => Ok(()),
        })
    }

    /// Passes a value to its readers, and walks it if others read parts of it.
    fn read(&self, value: Value<'_>, found: &mut Found<'_>) -> Result<(), Error> {
        for field in &self.readers {
            found(*field, value)?;
        }
        match (self.is_passed, self.has_elements) {
            (false, _) => Ok(()),
            (true, false) => self.walk(value, found),
            (true, true) => self.walk_elements(value, found),
        }
    }

    fn walk_elements(&self, list: Value<'_>, found: &mut Found<'_>) -> Result<(), Error> {
        let mut found_types = Vec::new();
        list.each_element(&mut |element| {
            let (Some(element), mut child) = (element, None) else { return Ok(()) };
            element.each_field(&|name| name == "type", &mut |_, value| {
                let of_type = value.text()?;
                child = self.children.iter().find(|(name, _)| *name == of_type);
                Ok(())
            })?;
            match child {
                Some((name, child)) if !found_types.contains(name) => {
                    found_types.push(*name);
                    child.read(element, found)
                }
                _ => Ok(()),
            }
        })
    }
}

/// Walks one object; null counts as an object without fields.
struct ObjectWalk<'w, 'f> {
    node: &'w Node,
    found: &'w mut Found<'f>,
}

impl<'de> DeserializeSeed<'de> for ObjectWalk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObjectWalk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Self { node, found } = self;
        while let Some(child) = fields.next_key_seed(Name(node))? {
            match child.filter(|child| child.is_passed || !child.readers.is_empty()) {
                None => {
                    let IgnoredAny = fields.next_value()?;
                }
                Some(child) if child.readers.is_empty() && !child.has_elements => {
                    fields.next_value_seed(ObjectWalk { node: child, found: &mut *found })?;
                }
                Some(child) => {
                    if let Some(value) = Value::of_json(fields.next_value()?) {
                        child.read(value, found).map_err(A::Error::custom)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Finds the node of a field by its name, without a copy of the name.
struct Name<'w>(&'w Node);

impl<'de, 'w> DeserializeSeed<'de> for Name<'w> {
    type Value = Option<&'w Node>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'w> Visitor<'_> for Name<'w> {
    type Value = Option<&'w Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.child(name))
    }
}
