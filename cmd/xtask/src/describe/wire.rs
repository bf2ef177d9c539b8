//! Protobuf encoding of objects, from upstream's `generated.proto` files and the tags of its Go types.
//!
//! The `.proto` files state numbers and types; the tags state JSON names, inlined messages, and whether an empty value
//! is omitted from JSON. Messages of several versions that have equal encodings appear once in the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Upstream, go};

mod tags;

/// Packages of types that all kinds use.
const SHARED: [&str; 4] = ["api/resource", "apis/meta/v1", "runtime", "util/intstr"];

const LEGEND: &str = "# kinds API_VERSION, then one KIND [MESSAGE] a line; MESSAGE is omitted if it is KIND.\n\
     # message NAME, then one NUMBER NAME TYPE a line. In TYPE, []x is a list and {}x a map from text. A NAME with `?`\n\
     # is not in JSON if its value is empty, and one with `!` is a time that generated types require. A NAME of `-` has no\n\
     # name in JSON: the fields of the message are inlined.\n";

/// Messages whose JSON form is not an object.
const SPECIAL: [(&str, &str); 7] = [
    ("k8s.io.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.Duration", "duration"),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1", "json"),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime", "microtime"),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("k8s.io.apimachinery.pkg.runtime.RawExtension", "json"),
    ("k8s.io.apimachinery.pkg.util.intstr.IntOrString", "intorstring"),
];

/// Types of `.proto` files that are not messages.
const SCALARS: [&str; 6] = ["string", "bytes", "bool", "int32", "int64", "double"];

/// One package, from its folder.
struct Package {
    name: String,
    /// The `apiVersion` of its kinds; `None` if it has none.
    api_version: Option<String>,
    kinds: BTreeSet<String>,
    messages: BTreeMap<String, Vec<Field>>,
}

/// One field of a message.
struct Field {
    number: u32,
    /// Name in JSON, with the marks of the table.
    name: String,
    /// Empty, `[]` or `{}`.
    prefix: &'static str,
    /// A scalar, or the full name of a message.
    of: String,
}

/// Returns the table of messages.
pub(super) fn read(upstream: &Upstream) -> Result<String> {
    let mut packages = Vec::new();
    let meta = module(upstream, "k8s.io/apimachinery")?.join("pkg/apis/meta/v1");
    for folder in folders(upstream)? {
        packages.push(package(&folder, &meta).with_context(|| format!("cannot read {}", folder.display()))?);
    }
    // Stable versions first, because they name the messages that several versions share.
    packages.sort_by_key(|it| (it.name.contains("alpha"), it.name.contains("beta"), it.name.clone()));
    render(&packages)
}

fn folders(upstream: &Upstream) -> Result<Vec<PathBuf>> {
    let (machinery, api) = (module(upstream, "k8s.io/apimachinery")?, module(upstream, "k8s.io/api")?);
    let mut found: Vec<_> = SHARED.iter().map(|it| machinery.join("pkg").join(it)).collect();
    for group in subfolders(&api)? {
        found.extend(subfolders(&group)?.into_iter().filter(|it| it.join("generated.proto").is_file()));
    }
    found.sort();
    Ok(found)
}

/// Returns the folder of a Go module.
fn module(upstream: &Upstream, name: &str) -> Result<PathBuf> {
    let arguments = ["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", name];
    Ok(PathBuf::from(go(&upstream.module, &arguments)?.trim()))
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

fn package(folder: &Path, meta: &Path) -> Result<Package> {
    let structs = tags::read(folder, meta)?;
    let proto = std::fs::read_to_string(folder.join("generated.proto"))?;
    let mut found = messages(&proto, &structs)?;
    let version = folder.file_name().and_then(|it| it.to_str()).context("no version in the path")?;
    found.api_version = match tags::group(folder)? {
        _ if found.name.ends_with(".meta.v1") => Some("meta.k8s.io/v1".to_owned()),
        Some(group) if group.is_empty() => Some(version.to_owned()),
        Some(group) => Some(format!("{group}/{version}")),
        None => None,
    };
    Ok(found)
}

/// Returns the messages of one `.proto` file.
fn messages(proto: &str, structs: &tags::Structs) -> Result<Package> {
    let (mut name, mut message) = (String::new(), String::new());
    let (mut kinds, mut messages) = (BTreeSet::new(), BTreeMap::<String, Vec<Field>>::new());
    for line in proto.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let words: Vec<_> = line.trim_end_matches(';').split_whitespace().collect();
        let (prefix, of, number) = match words.as_slice() {
            ["package", package] => {
                name = (*package).to_owned();
                continue;
            }
            ["message", found, "{"] => {
                message = (*found).to_owned();
                messages.insert(message.clone(), Vec::new());
                if structs.get(&message).is_some_and(|it| it.is_kind) {
                    kinds.insert(message.clone());
                }
                continue;
            }
            ["optional", of, _, "=", number] => ("", *of, *number),
            ["repeated", of, _, "=", number] => ("[]", *of, *number),
            ["map<string,", of, _, "=", number] => ("{}", of.trim_end_matches('>'), *number),
            _ => continue,
        };
        let number = number.parse()?;
        let of = full_name(&name, of);
        // Fields without a tag belong to messages with a special JSON form.
        let tag = structs.get(&message).and_then(|it| it.fields.get(&number));
        let name = tag.map_or_else(|| "-".to_owned(), |tag| tag.name_for(prefix, &of));
        messages.entry(message.clone()).or_default().push(Field { number, name, prefix, of });
    }
    for fields in messages.values_mut() {
        fields.sort_by_key(|it| it.number);
    }
    Ok(Package { name, api_version: None, kinds, messages })
}

fn full_name(package: &str, of: &str) -> String {
    match of.strip_prefix('.') {
        Some(name) => name.to_owned(),
        None if SCALARS.contains(&of) => of.to_owned(),
        None => format!("{package}.{of}"),
    }
}

/// All messages by their full name, and the form of each that is already known.
struct Forms<'a> {
    messages: BTreeMap<String, &'a [Field]>,
    /// Full name to the number of its form. Messages with equal forms have the same number.
    numbers: BTreeMap<String, usize>,
    /// Text of a form, with the numbers of inner forms, to its number.
    texts: BTreeMap<String, usize>,
    /// Full names of the first message of each form.
    firsts: Vec<String>,
}

impl Forms<'_> {
    /// Returns the number of the form of a message.
    fn number(&mut self, name: &str, outer: &mut Vec<String>) -> Result<usize> {
        if let Some(known) = self.numbers.get(name) {
            return Ok(*known);
        }
        ensure!(!outer.iter().any(|it| it == name), "{name} contains itself");
        outer.push(name.to_owned());
        let fields = *self.messages.get(name).with_context(|| format!("no message {name}"))?;
        // The short name stays part of the form, so that the table is readable.
        let mut text = short(name).to_owned();
        for Field { number, name: json, prefix, of } in fields {
            ensure!(json != "-" || of.contains('.') && prefix.is_empty(), "{name}: no tag of field {number}");
            let of = match word(of, &self.messages) {
                Some(word) => word.to_owned(),
                None => self.number(of, outer)?.to_string(),
            };
            write!(text, "\n{number} {json} {prefix}{of}")?;
        }
        outer.pop();
        let next = self.firsts.len();
        let number = *self.texts.entry(text).or_insert(next);
        if number == next {
            self.firsts.push(name.to_owned());
        }
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Returns the shortest unique name of each form.
    fn labels(&self) -> Vec<String> {
        let count = |name: &str| self.firsts.iter().filter(|it| short(it) == short(name)).count();
        let label = |name: &String| match count(name) {
            1 => short(name).to_owned(),
            _ => name.trim_start_matches("k8s.io.api.").to_owned(),
        };
        self.firsts.iter().map(label).collect()
    }
}

/// Returns the last part of a full name.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Returns the word of the table for a type that is not an object in JSON.
fn word<'a>(of: &'a str, messages: &BTreeMap<String, &[Field]>) -> Option<&'a str> {
    if SCALARS.contains(&of) {
        return Some(of);
    }
    if let Some((_, word)) = SPECIAL.iter().find(|(name, _)| *name == of) {
        return Some(word);
    }
    match messages.get(of) {
        Some([Field { number: 1, name, prefix: "[]", of }]) if name == "-" && of == "string" => {
            Some("strings")
        }
        _ => None,
    }
}

fn render(packages: &[Package]) -> Result<String> {
    let all = packages.iter().flat_map(|package| {
        package.messages.iter().map(|(name, fields)| (format!("{}.{name}", package.name), fields.as_slice()))
    });
    let mut forms = Forms {
        messages: all.collect(),
        numbers: BTreeMap::new(),
        texts: BTreeMap::new(),
        firsts: Vec::new(),
    };
    let of_kind = |package: &Package, kind: &str| format!("{}.{kind}", package.name);
    for package in packages {
        for kind in &package.kinds {
            forms.number(&of_kind(package, kind), &mut Vec::new())?;
        }
    }
    let labels = forms.labels();
    let mut table = LEGEND.to_owned();
    for package in packages.iter().filter(|it| !it.kinds.is_empty()) {
        let Some(version) = &package.api_version else { bail!("no group in {}", package.name) };
        writeln!(table, "kinds {version}")?;
        for kind in &package.kinds {
            let label = &labels[forms.number(&of_kind(package, kind), &mut Vec::new())?];
            let other = if label == kind { String::new() } else { format!(" {label}") };
            writeln!(table, " {kind}{other}")?;
        }
    }
    for (first, label) in forms.firsts.iter().zip(&labels) {
        writeln!(table, "message {label}")?;
        for Field { number, name, prefix, of } in forms.messages[first] {
            let of = word(of, &forms.messages).unwrap_or_else(|| &labels[forms.numbers[of]]);
            writeln!(table, " {number} {name} {prefix}{of}")?;
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO: &str = "package k8s.io.api.core.v1;\n// text\nmessage Volume {\n  // optional string no = 9;\n  \
         optional string name = 1;\n\n  optional VolumeSource volumeSource = 2;\n  map<string, .a.Q> q = 3;\n}\n\
         message VolumeSource {\n  repeated int32 modes = 4;\n  optional ExtraValue extra = 5;\n}\n\
         message ExtraValue {\n  repeated string items = 1;\n}\n";

    const GO: &str = "// Volume is text.\ntype Volume struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\
         \tName string `json:\"name,omitempty\" protobuf:\"bytes,1,opt,name=name\"`\n\
         \t// VolumeSource is text.\n\tVolumeSource `json:\",inline\" protobuf:\"bytes,2,opt,name=volumeSource\"`\n\
         \tQ map[string]Q `json:\"q,omitempty\" protobuf:\"bytes,3,opt,name=q\"`\n}\n\n\
         type VolumeSource struct {\n\tModes []int32 `json:\"modes\" protobuf:\"varint,4,rep,name=modes\"`\n\
         \tExtra *ExtraValue `json:\"extra,omitempty\" protobuf:\"bytes,5,opt,name=extra\"`\n}\n";

    fn example(version: &str) -> Package {
        let proto = PROTO.replace("core.v1", version).replace(".a.Q", ".k8s.io.api.core.v1.ExtraValue");
        let mut package = messages(&proto, &tags::parse(GO)).unwrap();
        package.api_version = Some(version.to_owned());
        package
    }

    #[test]
    fn names_and_marks_are_from_go_tags() {
        assert_eq!(
            render(&[example("core.v1")]).unwrap().strip_prefix(LEGEND).unwrap(),
            "kinds core.v1\n Volume\nmessage VolumeSource\n 4 modes []int32\n 5 extra strings\nmessage Volume\n \
             1 name? string\n 2 - VolumeSource\n 3 q {}strings\n"
        );
    }

    #[test]
    fn equal_messages_of_two_versions_appear_once() {
        let table = render(&[example("core.v1"), example("core.v2")]).unwrap();
        assert_eq!(table.matches("message ").count() - LEGEND.matches("message ").count(), 2);
        assert!(table.contains("kinds core.v2\n Volume\n"), "{table}");
    }
}
