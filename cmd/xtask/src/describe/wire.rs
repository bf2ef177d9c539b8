//! Protobuf encoding of objects, from upstream's `generated.proto` files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::resources::Group;
use super::{Upstream, go};

/// Packages of types that all kinds use.
const SHARED: [&str; 4] = ["api/resource", "apis/meta/v1", "runtime", "util/intstr"];

const LEGEND: &str = "# package NAME; message NAME; NUMBER NAME TYPE, where []x is a list, {}x a map from text, and a\n\
     # dot stands before the names of types of this table. A NAME of `-` has no name in JSON: what is inside stands in\n\
     # its place. A message of `NUMBER - []TYPE` alone is a list in JSON.\n";

/// Returns the table of messages.
pub(super) fn read(upstream: &Upstream, groups: &[Group]) -> Result<String> {
    let swagger = upstream.json("openapi-spec/swagger.json")?;
    let mut table = LEGEND.to_owned();
    for path in files(upstream, groups)? {
        // A group with only reviews or discovery has no such file.
        let Ok(proto) = std::fs::read_to_string(&path) else { continue };
        file(&mut table, &proto, &swagger["definitions"])
            .with_context(|| format!("reading {}", path.display()))?;
    }
    Ok(table)
}

fn files(upstream: &Upstream, groups: &[Group]) -> Result<Vec<PathBuf>> {
    let folder = |module: &str| -> Result<PathBuf> {
        let arguments = ["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module];
        Ok(PathBuf::from(go(&upstream.module, &arguments)?.trim()))
    };
    let (machinery, api) = (folder("k8s.io/apimachinery")?, folder("k8s.io/api")?);
    let mut found: Vec<_> = SHARED.iter().map(|it| machinery.join("pkg").join(it)).collect();
    for group in groups {
        let name = group.name.split('.').next().filter(|it| !it.is_empty()).unwrap_or("core");
        found.extend(group.versions.iter().map(|version| api.join(name).join(&version.name)));
    }
    let unique: BTreeSet<_> = found.into_iter().map(|folder| folder.join("generated.proto")).collect();
    Ok(unique.into_iter().collect())
}

/// Adds the messages of one file.
fn file(table: &mut String, proto: &str, definitions: &Value) -> Result<()> {
    let (mut package, mut fields) = ("", &Value::Null);
    for line in proto.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let words: Vec<_> = line.trim_end_matches(';').split_whitespace().collect();
        match words.as_slice() {
            ["package", name] => {
                package = name;
                writeln!(table, "package {name}")?;
            }
            ["message", name, "{"] => {
                let package = package.replacen("k8s.io.", "io.k8s.", 1);
                fields = &definitions[format!("{package}.{name}")]["properties"];
                writeln!(table, "message {name}")?;
            }
            [label @ ("optional" | "repeated"), of, name, "=", number] => {
                let list = if *label == "repeated" { "[]" } else { "" };
                field(table, fields, number, name, list, of)?;
            }
            ["map<string,", of, name, "=", number] => {
                field(table, fields, number, name, "{}", of.trim_end_matches('>'))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn field(table: &mut String, fields: &Value, number: &str, name: &str, prefix: &str, of: &str) -> Result<()> {
    // A few names differ from the JSON names in the case of a letter.
    let mut known = fields.as_object().into_iter().flatten().map(|(known, _)| known.as_str());
    let name = known.find(|known| known.eq_ignore_ascii_case(name)).unwrap_or(name);
    let message = !matches!(of, "string" | "bytes" | "bool" | "int32" | "int64" | "double");
    let embedded = message && prefix.is_empty() && fields.is_object() && fields.get(name).is_none();
    let list = prefix == "[]" && name == "items" && fields.is_null();
    let name = if embedded || list { "-" } else { name };
    let dot = if message && !of.starts_with('.') { "." } else { "" };
    Ok(writeln!(table, " {number} {name} {prefix}{dot}{of}")?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_json_does_not_name_are_marked() {
        let proto = "package k8s.io.api.core.v1;\n// text\nmessage Volume {\n  // optional string no = 9;\n  \
             optional string name = 1;\n\n  optional VolumeSource volumeSource = 2;\n  map<string, .a.Q> q = 3;\n}\n\
             message ExtraValue {\n  repeated string items = 1;\n}\n";
        let definitions = json!({"io.k8s.api.core.v1.Volume": {"properties": {"name": {}, "q": {}}}});
        let mut table = String::new();
        file(&mut table, proto, &definitions).unwrap();
        assert_eq!(
            table,
            "package k8s.io.api.core.v1\nmessage Volume\n 1 name string\n 2 - .VolumeSource\n 3 q {}.a.Q\n\
             message ExtraValue\n 1 - []string\n"
        );
    }
}
