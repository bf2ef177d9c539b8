//! Objects as table rows, which `kubectl get` requests.
//!
//! Guarantees:
//! - Commonly listed kinds have upstream's columns and cells. Other built-in kinds have upstream's fallback (name and
//!   creation time). Custom kinds have the columns of their CRD.
//! - A row depends only on one object and the time.
//!
//! Non-goal: upstream's column descriptions, which kubectl does not show.

mod cells;
mod cluster;
mod custom;
mod network;
mod pods;
mod storage;
#[cfg(test)]
mod tests;
mod workloads;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::custom::CustomColumn;

use self::cells::Row;

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Column {
    name: String,
    #[serde(rename = "type")]
    of: String,
    format: String,
    description: String,
    /// Zero for columns that are always shown; others appear only in wide output.
    priority: i64,
}

type Cells = fn(Row<'_>) -> Vec<Value>;

/// The conversion of a resource's objects to rows.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    /// Columns, including those of wide output.
    pub(crate) columns: Vec<Column>,
    how: How,
    /// Whether the rows of an empty table are null, as upstream's fallback writes them. Upstream has a printer for
    /// some kinds for which this server uses the fallback.
    pub(crate) has_null_rows: bool,
}

#[derive(Clone, Debug)]
enum How {
    BuiltIn(Cells),
    Custom(Vec<CustomColumn>),
}

/// The columns of a kind (see [`columns`]) and the function that creates its cells.
struct Layout(&'static str, Cells);

impl Printer {
    /// Returns upstream's printer for a built-in resource.
    pub(crate) fn built_in(group: &str, plural: &str) -> Printer {
        let found = workloads::layout(group, plural)
            .or_else(|| network::layout(group, plural))
            .or_else(|| storage::layout(group, plural))
            .or_else(|| cluster::layout(group, plural));
        let has_null_rows = matches!(
            plural,
            "clusterroles" | "csistoragecapacities" | "customresourcedefinitions" | "limitranges" | "roles"
        );
        let Layout(described, cells) = found.unwrap_or(Layout("Name Created-At:date", |row| {
            vec![json!(row.name()), json!(row.text("/metadata/creationTimestamp"))]
        }));
        Printer { columns: columns(described), how: How::BuiltIn(cells), has_null_rows }
    }

    /// Returns the printer for a custom resource.
    pub(crate) fn custom(columns: Vec<CustomColumn>) -> Printer {
        let named = std::iter::once(name_column());
        Printer {
            columns: named.chain(columns.iter().map(CustomColumn::column)).collect(),
            how: How::Custom(columns),
            has_null_rows: false,
        }
    }

    /// Returns one row that includes the object as `shown`.
    pub(crate) fn row(&self, object: &Value, now: Timestamp, shown: &Value) -> Value {
        let row = Row { object, now };
        let cells = match &self.how {
            How::BuiltIn(cells) => cells(row),
            How::Custom(columns) => custom::cells(row, columns),
        };
        let mut found = json!({"cells": cells, "object": shown});
        if let (How::BuiltIn(_), Some(condition)) = (&self.how, pods::completed(object)) {
            found["conditions"] = json!([condition]);
        }
        found
    }
}

/// Parses columns in a short notation: `Name Ready Desired:integer Node?`. A dash is a blank, and a double dash is a
/// dash. `?` marks a column of wide output, `:type` a type other than text.
fn columns(described: &str) -> Vec<Column> {
    described.split(' ').map(column).collect()
}

fn column(described: &str) -> Column {
    if described == "Name" {
        return name_column();
    }
    let (described, wide) = described.strip_suffix('?').map_or((described, false), |rest| (rest, true));
    let (name, of) = described.split_once(':').unwrap_or((described, "string"));
    let name = name.replace("--", "\0").replace('-', " ").replace('\0', "-");
    let (of, format) = match of {
        "name" => ("string", "name"),
        other => (other, ""),
    };
    Column {
        name,
        of: of.to_owned(),
        format: format.to_owned(),
        description: String::new(),
        priority: i64::from(wide),
    }
}

fn name_column() -> Column {
    let description = "Name must be unique within a namespace.".to_owned();
    Column { name: "Name".into(), of: "string".into(), format: "name".into(), description, priority: 0 }
}
