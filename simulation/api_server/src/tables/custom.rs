//! Columns of custom kinds, with the supported subset of JSONPath.
//!
//! An invalid path leaves the cell empty. CRDs with invalid paths were rejected when they were created.

use serde_json::{Value, json};

use super::Column;
use super::cells::Row;

/// An additional column of a custom kind.
#[derive(Clone, Debug)]
pub(crate) struct CustomColumn {
    column: Column,
    steps: Option<Vec<Step>>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A field.
    Field(String),
    /// An item; a negative index counts from the end.
    Item(i64),
    /// All fields or items.
    All,
    /// All items whose field, at a path, compares to a value.
    Where(Vec<Step>, Compare, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Equal,
    Unequal,
}

impl CustomColumn {
    /// Creates the column of an item in `additionalPrinterColumns`.
    pub(crate) fn new(described: &Value) -> CustomColumn {
        let text = |field: &str| described[field].as_str().unwrap_or_default().to_owned();
        let path = text("jsonPath");
        let description = match text("description") {
            none if none.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            described => described,
        };
        let column = Column {
            name: text("name"),
            of: text("type"),
            format: text("format"),
            description,
            priority: described["priority"].as_i64().unwrap_or_default(),
        };
        CustomColumn { column, steps: Reader(&path).path() }
    }

    /// Returns the column of kinds whose CRD has no columns.
    pub(crate) fn age() -> CustomColumn {
        CustomColumn::new(&json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "Time since the object was created.",
        }))
    }

    pub(super) fn column(&self) -> Column {
        self.column.clone()
    }
}

/// Returns the cells of a row.
pub(super) fn cells(row: Row<'_>, columns: &[CustomColumn]) -> Vec<Value> {
    let cell = |column: &CustomColumn| {
        let found = column.steps.as_ref().and_then(|steps| follow(row.object, steps).into_iter().next());
        found.map_or(Value::Null, |value| convert(value, &column.column.of, row))
    };
    std::iter::once(json!(row.name())).chain(columns.iter().map(cell)).collect()
}

fn convert(value: &Value, of: &str, row: Row<'_>) -> Value {
    match (of, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => {
            value.clone()
        }
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => whole(number),
        ("date", Value::String(time)) => json!(super::cells::since(time, row.now)),
        _ => Value::Null,
    }
}

fn whole(number: &serde_json::Number) -> Value {
    let digits = number.as_f64().map(|number| format!("{:.0}", number.trunc())).unwrap_or_default();
    number.as_i64().or_else(|| digits.parse().ok()).map_or(Value::Null, Value::from)
}

fn follow<'a>(from: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![from];
    for step in steps {
        found = found.into_iter().flat_map(|value| take(value, step)).collect();
    }
    found
}

fn take<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
        (Step::Item(index), Value::Array(items)) => {
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let index = if *index < 0 { index + length } else { *index };
            usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
        }
        (Step::All, Value::Object(fields)) => fields.values().collect(),
        (Step::All, Value::Array(items)) => items.iter().collect(),
        (Step::Where(path, compare, with), Value::Array(items)) => {
            let holds = |item: &&Value| {
                let found = follow(item, path).into_iter().next();
                found.is_some_and(|found| (found == with) == (*compare == Compare::Equal))
            };
            items.iter().filter(holds).collect()
        }
        _ => Vec::new(),
    }
}

/// A parser for the rest of a path.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    /// Parses the whole path.
    fn path(&mut self) -> Option<Vec<Step>> {
        let steps = self.steps()?;
        self.0.is_empty().then_some(steps)
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.eat("['") {
                steps.push(Step::Field(self.until("']")?));
            } else if self.eat("[\"") {
                steps.push(Step::Field(self.until("\"]")?));
            } else if self.eat("[?(") {
                steps.push(self.condition()?);
            } else if self.eat("[*]") || self.eat(".*") {
                steps.push(Step::All);
            } else if self.eat("[") {
                steps.push(Step::Item(self.until("]")?.parse().ok()?));
            } else if self.eat(".") {
                steps.push(Step::Field(self.name()?));
            } else {
                return Some(steps);
            }
        }
    }

    /// Parses a condition such as `@.type=="Ready")]`.
    fn condition(&mut self) -> Option<Step> {
        self.eat("@").then_some(())?;
        let path = self.steps()?;
        self.0 = self.0.trim_start();
        let compare = if self.eat("==") {
            Compare::Equal
        } else if self.eat("!=") {
            Compare::Unequal
        } else {
            return None;
        };
        let with = self.until(")]")?;
        let with = with.trim();
        let quoted = |mark| with.strip_prefix(mark)?.strip_suffix(mark);
        let with = match quoted('"').or_else(|| quoted('\'')) {
            Some(text) => json!(text),
            None => serde_json::from_str(with).ok()?,
        };
        Some(Step::Where(path, compare, with))
    }

    /// Parses the name of a field; a backslash escapes the next character.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let mut letters = self.0.char_indices();
        let end = loop {
            match letters.next() {
                Some((_, '\\')) => name.push(letters.next()?.1),
                Some((at, '.' | '[' | ' ' | '=' | '!' | ')')) => break at,
                Some((_, letter)) => name.push(letter),
                None => break self.0.len(),
            }
        };
        self.0 = &self.0[end..];
        (!name.is_empty()).then_some(name)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        match self.0.strip_prefix(prefix) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, end: &str) -> Option<String> {
        let (found, rest) = self.0.split_once(end)?;
        self.0 = rest;
        Some(found.to_owned())
    }
}
