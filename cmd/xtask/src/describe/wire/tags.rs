//! Tags of the fields of Go structs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Structs by name.
pub(super) type Structs = BTreeMap<String, Struct>;

/// One struct.
#[derive(Debug, Default)]
pub(super) struct Struct {
    /// Whether it embeds the type metadata, as kinds do.
    pub(super) is_kind: bool,
    /// Fields by their number in protobuf.
    pub(super) fields: BTreeMap<u32, Tag>,
}

/// The JSON form of one field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Empty if the field is inlined.
    name: String,
    pointer: bool,
    /// `omitempty`
    omits_empty: bool,
    /// `omitzero`
    omits_zero: bool,
}

impl Tag {
    /// Returns the name with the marks of the table. An empty list or map is not encoded, so it needs no mark; a set
    /// pointer is never empty; a struct is empty only for `omitzero`. A time without any of these is required.
    pub(super) fn name_for(&self, prefix: &str, of: &str) -> String {
        let scalar = !of.contains('.');
        let omits = prefix.is_empty() && !self.pointer && (self.omits_empty && scalar || self.omits_zero);
        let is_time = of.ends_with(".meta.v1.Time") || of.ends_with(".meta.v1.MicroTime");
        let is_required = is_time && !(self.pointer || self.omits_empty || self.omits_zero);
        match self.name.as_str() {
            "" => "-".to_owned(),
            name if omits => format!("{name}?"),
            name if is_required => format!("{name}!"),
            name => name.to_owned(),
        }
    }
}

/// Returns the structs of the package in a folder. `meta` is the folder of the package that the sources import as
/// `metav1`.
pub(super) fn read(folder: &Path, meta: &Path) -> Result<Structs> {
    let (mut found, text) = (Structs::new(), sources(folder)?);
    for (name, package, other) in text.lines().filter_map(alias) {
        let folder = if package == "metav1" { meta.to_owned() } else { folder.with_file_name(package) };
        let of = parse(&sources(&folder)?).remove(other);
        found.extend(of.map(|of| (name.to_owned(), of)));
    }
    found.extend(parse(&text));
    Ok(found)
}

/// Returns the text of all files of a package.
fn sources(folder: &Path) -> Result<String> {
    let mut found = String::new();
    // Aliases of enumerations can name packages elsewhere.
    for entry in folder.read_dir().into_iter().flatten() {
        let path = entry?.path();
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let skip = name.ends_with("_test.go") || name == "generated.pb.go" || name.starts_with("zz_");
        if name.ends_with(".go") && !skip {
            found +=
                &std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        }
    }
    Ok(found)
}

/// Returns name, package and name there of a type that is a copy of a type of another package.
fn alias(line: &str) -> Option<(&str, &str, &str)> {
    let (name, of) = line.strip_prefix("type ")?.split_once(' ')?;
    let (package, other) = of.trim_start_matches("= ").split_once('.')?;
    (!other.contains([' ', '.'])).then_some((name, package, other))
}

/// Returns the API group of the package in a folder.
pub(super) fn group(folder: &Path) -> Result<Option<String>> {
    let path = folder.join("register.go");
    if !path.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path)?;
    let value = text.lines().find_map(|line| line.trim().strip_prefix("const GroupName = "));
    Ok(value.map(|value| value.trim_matches('"').to_owned()))
}

/// Returns the structs of one file that have fields in protobuf, and the kinds.
pub(super) fn parse(text: &str) -> Structs {
    let (mut found, mut current) = (Structs::new(), None);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("type ").and_then(|it| it.strip_suffix(" struct {")) {
            current = Some(found.entry(name.to_owned()).or_default());
        } else if line == "}" {
            current = None;
        } else if let (Some(of), Some((declared, tags))) = (&mut current, line.trim().split_once('`')) {
            // Type metadata with a number belongs to the envelope of objects.
            let embedded = declared.trim().rsplit('.').next();
            of.is_kind |= embedded == Some("TypeMeta") && !tags.contains("protobuf");
            if !declared.starts_with("//")
                && let Some((number, tag)) = tag(declared, tags)
            {
                of.fields.insert(number, tag);
            }
        }
    }
    found.retain(|_, of| of.is_kind || !of.fields.is_empty());
    found
}

/// Returns the number and the JSON form of a field; `None` if it has none.
fn tag(declared: &str, tags: &str) -> Option<(u32, Tag)> {
    let value = |key: &str| tags.split_once(key)?.1.split('"').next();
    let number = value("protobuf:\"")?.split(',').nth(1)?.parse().ok()?;
    let mut words = value("json:\"")?.split(',');
    let name = words.next().filter(|it| *it != "-")?.to_owned();
    let options: Vec<_> = words.collect();
    let pointer = declared.split_whitespace().last().is_some_and(|it| it.starts_with('*'));
    let (omits_empty, omits_zero) = (options.contains(&"omitempty"), options.contains(&"omitzero"));
    Some((number, Tag { name, pointer, omits_empty, omits_zero }))
}
