//! The paths of a view as a tree, and the walk of an object along it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Error;
use serde_json::value::RawValue;

/// A path from an object to a value.
#[derive(Copy, Clone, Debug)]
pub struct Path {
    /// The steps from the object.
    pub steps: &'static [Step],
    /// Returns the parts of the value that are read; `None` for all.
    pub inside: fn() -> Option<&'static ViewPaths>,
}

/// A step of a path.
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
pub(crate) struct Node {
    /// The fields of the view that read this value.
    readers: Vec<usize>,
    /// Whether a field of the view reads a value below this one.
    is_passed: bool,
    /// Whether the value is read as a whole.
    is_whole: bool,
    /// Whether the children are elements of a list, by their type.
    has_elements: bool,
    children: Vec<(&'static str, Node)>,
}

/// Receives the index of a field and its value.
type Found<'f> = dyn FnMut(usize, &RawValue) -> Result<(), Error> + 'f;

impl ViewPaths {
    /// Creates the selection of these paths. The index of a path is the index of its field.
    pub fn new(paths: &[Path]) -> Self {
        let mut root = Node::default();
        for (index, path) in paths.iter().enumerate() {
            root.add(path.steps, index, (path.inside)());
        }
        Self(root)
    }

    /// Calls `found` with each value in an object that is at the end of a path.
    ///
    /// # Errors
    ///
    /// If the bytes are not an object in JSON, if a value on a path is not an object, and each error of `found`.
    pub fn walk(&self, json: &[u8], found: &mut Found<'_>) -> Result<(), Error> {
        self.0.walk(json, found)
    }

    pub(crate) const fn root(&self) -> &Node {
        &self.0
    }
}

impl Node {
    fn add(&mut self, steps: &'static [Step], index: usize, inside: Option<&'static ViewPaths>) {
        let Some((step, rest)) = steps.split_first() else {
            self.readers.push(index);
            match inside {
                Some(inside) => self.include(&inside.0),
                None => self.is_whole = true,
            }
            return;
        };
        self.is_passed = true;
        let name = match *step {
            Step::Field(name) => name,
            Step::Element(name) => {
                (self.has_elements, self.is_whole) = (true, true);
                name
            }
        };
        self.child_mut(name).add(rest, index, inside);
    }

    /// Adds the values of another tree, without its readers.
    fn include(&mut self, other: &Node) {
        self.is_whole |= other.is_whole;
        for (name, child) in &other.children {
            self.child_mut(name).include(child);
        }
    }

    fn child_mut(&mut self, name: &'static str) -> &mut Node {
        let at = self.children.iter().position(|(it, _)| *it == name).unwrap_or_else(|| {
            self.children.push((name, Node::default()));
            self.children.len() - 1
        });
        &mut self.children[at].1
    }

    /// Returns the node of a field or an entry; `None` if nothing below it is read.
    pub(crate) fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|(it, _)| *it == name).map(|(_, child)| child)
    }

    /// Returns the parts of the value that are read; `None` for all.
    pub(crate) const fn parts(&self) -> Option<&Node> {
        if self.is_whole { None } else { Some(self) }
    }

    fn walk(&self, json: &[u8], found: &mut Found<'_>) -> Result<(), Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        ObjectWalk { node: self, found }.deserialize(&mut reader)?;
        reader.end()
    }

    /// Passes a value to its readers, and walks it if others read parts of it.
    fn read(&self, value: &RawValue, found: &mut Found<'_>) -> Result<(), Error> {
        for field in &self.readers {
            found(*field, value)?;
        }
        match (self.is_passed, self.has_elements) {
            (false, _) => Ok(()),
            (true, false) => self.walk(value.get().as_bytes(), found),
            (true, true) => self.walk_elements(value, found),
        }
    }

    fn walk_elements(&self, list: &RawValue, found: &mut Found<'_>) -> Result<(), Error> {
        let elements: Option<Vec<&RawValue>> = serde_json::from_str(list.get())?;
        let mut found_types = Vec::new();
        for element in elements.unwrap_or_default() {
            let Typed { of_type } = serde_json::from_str(element.get())?;
            let Some((name, child)) =
                self.children.iter().find(|(name, _)| of_type.as_deref() == Some(*name))
            else {
                continue;
            };
            if !found_types.contains(name) {
                found_types.push(*name);
                child.read(element, found)?;
            }
        }
        Ok(())
    }
}

/// The type of an element of a list, such as a condition.
#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    of_type: Option<Cow<'a, str>>,
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
                Some(child) => child.read(fields.next_value()?, found).map_err(A::Error::custom)?,
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
