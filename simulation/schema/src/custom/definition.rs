//! Validates a whole CustomResourceDefinition: names, versions and accepted status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::error::FieldError;
use super::rule::{list, texts};
use super::structural;
use super::version::{CustomVersion, schema_of};
use crate::{ResourceInfo, SubresourceInfo};

const DNS_1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                              alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                              regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const DNS_1123_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                                  or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                                  regex used for validation is \
                                  '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Verbs of custom kinds, in the order of discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// A custom kind.
#[derive(Clone, Debug)]
pub struct CustomKind {
    /// API group.
    pub group: String,
    /// Plural name, as used in paths.
    pub plural: String,
    /// Kind of the objects.
    pub kind: String,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Versions in the order of the definition, including those that are not served.
    pub versions: Vec<CustomVersion>,
    warnings: Vec<String>,
}

impl CustomKind {
    /// Builds a kind from a definition to which [`default_definition`] was applied.
    ///
    /// # Errors
    ///
    /// Returns upstream's validation errors in upstream's order.
    pub fn from_definition(definition: &Value) -> Result<CustomKind, Vec<FieldError>> {
        let errors = Definition::of(definition).check();
        if !errors.is_empty() {
            return Err(errors);
        }
        let spec = &definition["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let (mut versions, mut warnings) = (Vec::new(), BTreeSet::new());
        let described = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, version) in described.iter().enumerate() {
            let schema = &version["schema"]["openAPIV3Schema"];
            warnings.extend(structural::warnings(schema));
            let path =
                place(described, index, "schema", "validation").map(|it| format!("{it}.openAPIV3Schema"));
            versions.push(CustomVersion::of(version, resource(spec, version), schema, path));
        }
        Ok(CustomKind {
            group: text("group"),
            plural: spec["names"]["plural"].as_str().unwrap_or_default().to_owned(),
            kind: spec["names"]["kind"].as_str().unwrap_or_default().to_owned(),
            namespaced: spec["scope"] == "Namespaced",
            versions,
            warnings: warnings.into_iter().collect(),
        })
    }

    /// Returns the version of that name, if it is served.
    pub fn served(&self, version: &str) -> Option<&CustomVersion> {
        self.versions.iter().find(|it| it.served && it.resource.version == version)
    }

    /// Returns the version in which objects are stored.
    pub fn storage(&self) -> Option<&CustomVersion> {
        self.versions.iter().find(|it| it.storage)
    }

    /// Returns upstream's warnings: unknown formats.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Sets upstream's defaults when a definition is created: derived names, conversion and the stored version.
pub fn default_definition(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            let missing = |names: &Map<String, Value>, name: &str| {
                names.get(name).is_none_or(|it| it.is_null() || it == "")
            };
            if missing(names, "singular") {
                names.insert("singular".to_owned(), Value::from(kind.to_lowercase()));
            }
            if missing(names, "listKind") {
                names.insert("listKind".to_owned(), Value::from(format!("{kind}List")));
            }
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let stored = list(spec, "versions").iter().find(|it| it["storage"] == true).map(|it| it["name"].clone());
    let stored: Vec<_> = stored.into_iter().collect();
    if let Some(definition) = definition.as_object_mut() {
        let status = definition.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            let known = status.entry("storedVersions").or_insert_with(|| json!([]));
            if let Some(known) = known.as_array_mut() {
                known.extend(stored.into_iter().filter(|it| !known.contains(it)).collect::<Vec<_>>());
            }
        }
    }
}

/// Returns the status of a definition without name conflicts. `now` is a time in Kubernetes form; conditions that
/// already hold keep their times.
pub fn accepted_status(definition: &Value, now: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        let present = definition["status"]["conditions"].as_array().into_iter().flatten();
        let present = present.into_iter().find(|it| it["type"] == kind && it["status"] == "True");
        present.cloned().unwrap_or_else(|| {
            json!({
                "type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message,
            })
        })
    };
    let accepted = ["plural", "singular", "shortNames", "kind", "listKind", "categories"];
    let names = definition["spec"]["names"].as_object().into_iter().flatten();
    let names: Map<_, _> = names
        .filter(|(name, _)| accepted.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": names,
        "storedVersions": definition["status"]["storedVersions"],
    })
}

/// Returns the resource of a version for the catalog.
fn resource(spec: &Value, version: &Value) -> ResourceInfo {
    let empty = Map::new();
    let names = spec["names"].as_object().unwrap_or(&empty);
    let name = |field: &str| names.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let subresource = |name: &str| version["subresources"].get(name).is_some_and(|it| !it.is_null());
    let verbs = || ["get", "patch", "update"].map(str::to_owned).to_vec();
    let mut subresources = BTreeMap::new();
    if subresource("status") {
        let status = SubresourceInfo { group: None, version: None, kind: name("kind"), verbs: verbs() };
        subresources.insert("status".to_owned(), status);
    }
    if subresource("scale") {
        let (group, version) = (Some("autoscaling".to_owned()), Some("v1".to_owned()));
        let scale = SubresourceInfo { group, version, kind: "Scale".to_owned(), verbs: verbs() };
        subresources.insert("scale".to_owned(), scale);
    }
    ResourceInfo {
        group: spec["group"].as_str().unwrap_or_default().to_owned(),
        version: version["name"].as_str().unwrap_or_default().to_owned(),
        plural: name("plural"),
        singular: name("singular"),
        kind: name("kind"),
        list_kind: name("listKind"),
        namespaced: spec["scope"] == "Namespaced",
        verbs: VERBS.map(str::to_owned).to_vec(),
        short_names: texts(names, "shortNames"),
        categories: texts(names, "categories"),
        storage_version_hash: None,
        subresources,
        schema: schema_of(&version["schema"]["openAPIV3Schema"]),
    }
}

/// Returns the path of a part of a version in upstream's errors; `None` if the errors of another version include it.
/// Upstream moves fields that are equal in all versions to the top level before it validates them.
fn place(versions: &[Value], index: usize, part: &str, top: &str) -> Option<String> {
    let alike = versions.iter().all(|other| other[part] == versions[index][part]);
    (!alike || index == 0)
        .then(|| if alike { format!("spec.{top}") } else { format!("spec.versions[{index}].{part}") })
}

/// A definition that is being validated.
struct Definition<'a> {
    whole: &'a Value,
    spec: &'a Value,
    versions: &'a [Value],
    errors: Vec<FieldError>,
}

impl<'a> Definition<'a> {
    fn of(whole: &'a Value) -> Definition<'a> {
        let spec = &whole["spec"];
        let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        Definition { whole, spec, versions, errors: Vec::new() }
    }

    fn check(mut self) -> Vec<FieldError> {
        self.group_and_scope();
        for (index, version) in self.versions.iter().enumerate() {
            if version["schema"]["openAPIV3Schema"].is_null() {
                self.errors
                    .push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
            }
        }
        self.versions();
        self.names();
        self.conversion();
        self.stored_versions();
        self.approval();
        if self.spec["preserveUnknownFields"] == true {
            let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
            self.errors.push(FieldError::invalid("spec.preserveUnknownFields", &Value::Bool(true), detail));
        }
        self.errors
    }

    fn text(&self, field: &str) -> &'a str {
        self.spec[field].as_str().unwrap_or_default()
    }

    fn name(&self, field: &str) -> &'a str {
        self.spec["names"][field].as_str().unwrap_or_default()
    }

    fn group_and_scope(&mut self) {
        let group = self.text("group");
        let expected = format!("{}.{group}", self.name("plural"));
        for field in ["generateName", "name"] {
            let name = &self.whole["metadata"][field];
            if name.as_str().is_some_and(|it| !it.is_empty() && it != expected) {
                let detail = "must be spec.names.plural+\".\"+spec.group";
                self.errors.push(FieldError::invalid(format!("metadata.{field}"), name, detail));
            }
        }
        let given = Value::from(group);
        if group.is_empty() {
            self.errors.push(FieldError::required("spec.group", ""));
        } else if !is_subdomain(group) {
            self.errors.push(FieldError::invalid("spec.group", &given, DNS_1123_SUBDOMAIN));
        } else if !group.contains('.') {
            self.errors.push(FieldError::invalid(
                "spec.group",
                &given,
                "should be a domain with at least one dot",
            ));
        }
        match self.text("scope") {
            "" => self.errors.push(FieldError::required("spec.scope", "")),
            "Cluster" | "Namespaced" => {}
            other => {
                let error =
                    FieldError::not_supported("spec.scope", &Value::from(other), &["Cluster", "Namespaced"]);
                self.errors.push(error);
            }
        }
    }

    fn versions(&mut self) {
        for (index, version) in self.versions.iter().enumerate() {
            let name = version["name"].as_str().unwrap_or_default();
            if !is_label(name) {
                let field = format!("spec.versions[{index}].name");
                self.errors.push(FieldError::invalid(field, &Value::from(name), DNS_1035_LABEL));
            }
            let place = |part: &str, top: &str| place(self.versions, index, part, top);
            let (schema, subresources) =
                (place("schema", "validation"), place("subresources", "subresources"));
            let columns = place("additionalPrinterColumns", "additionalPrinterColumns");
            let selectable = place("selectableFields", "selectableFields");
            let root = &version["schema"]["openAPIV3Schema"];
            if let Some(path) = schema.filter(|_| !root.is_null()) {
                self.errors.extend(structural::check(root, &format!("{path}.openAPIV3Schema")));
            }
            if let Some(path) = subresources {
                scale_paths(&version["subresources"]["scale"], &format!("{path}.scale"), &mut self.errors);
            }
            if let Some(path) = columns {
                printer_columns(&version["additionalPrinterColumns"], &path, &mut self.errors);
            }
            if let Some(path) = selectable {
                selectable_fields(&version["selectableFields"], root, &path, &mut self.errors);
            }
        }
        self.version_set();
    }

    /// Checks the versions as a whole. Upstream quotes Go structs in these messages; this implementation quotes version
    /// names.
    fn version_set(&mut self) {
        let names: Vec<_> = self.versions.iter().map(|version| version["name"].clone()).collect();
        let unique = names.iter().enumerate().all(|(index, name)| !names[..index].contains(name));
        let names = if self.spec["versions"].is_null() { Value::Null } else { Value::Array(names) };
        if !unique {
            self.errors.push(FieldError::invalid(
                "spec.versions",
                &names,
                "must contain unique version names",
            ));
        }
        if self.versions.iter().filter(|version| version["storage"] == true).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            self.errors.push(FieldError::invalid("spec.versions", &names, detail));
        }
    }

    fn names(&mut self) {
        for field in ["plural", "singular", "kind", "listKind"] {
            if self.name(field).is_empty() {
                self.errors.push(FieldError::required(format!("spec.names.{field}"), ""));
            }
        }
        for (field, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
            let name = self.name(field);
            let label = if mixed { name.to_lowercase() } else { name.to_owned() };
            if !name.is_empty() && !is_label(&label) {
                let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
                let detail = format!("{prefix}{DNS_1035_LABEL}");
                self.errors.push(FieldError::invalid(
                    format!("spec.names.{field}"),
                    &Value::from(name),
                    &detail,
                ));
            }
        }
        self.labels("shortNames");
        let list_kind = self.name("listKind");
        if !list_kind.is_empty() && list_kind == self.name("kind") {
            let detail = "kind and listKind may not be the same";
            self.errors.push(FieldError::invalid("spec.names.listKind", &Value::from(list_kind), detail));
        }
        self.labels("categories");
    }

    fn labels(&mut self, field: &str) {
        for (index, label) in self.spec["names"][field].as_array().into_iter().flatten().enumerate() {
            if !is_label(label.as_str().unwrap_or_default()) {
                self.errors.push(FieldError::invalid(
                    format!("spec.names.{field}[{index}]"),
                    label,
                    DNS_1035_LABEL,
                ));
            }
        }
    }

    fn conversion(&mut self) {
        let conversion = &self.spec["conversion"];
        match conversion["strategy"].as_str() {
            _ if conversion.is_null() => {}
            Some("None") => {}
            Some("Webhook") => {
                if conversion["webhook"]["clientConfig"].is_null() {
                    let detail = "required when strategy is set to Webhook";
                    self.errors.push(FieldError::required("spec.conversion.webhookClientConfig", detail));
                }
                if conversion["webhook"]["conversionReviewVersions"].as_array().is_none_or(Vec::is_empty) {
                    self.errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
                }
            }
            None | Some("") => self.errors.push(FieldError::required("spec.conversion.strategy", "")),
            Some(other) => {
                let field = "spec.conversion.strategy";
                self.errors.push(FieldError::not_supported(field, &Value::from(other), &["None", "Webhook"]));
            }
        }
    }

    fn stored_versions(&mut self) {
        let field = "status.storedVersions";
        let stored = &self.whole["status"]["storedVersions"];
        let names = stored.as_array().map(Vec::as_slice).unwrap_or_default();
        if names.is_empty() {
            self.errors.push(FieldError::invalid(
                field,
                &Value::Null,
                "must have at least one stored version",
            ));
            return;
        }
        for (index, name) in names.iter().enumerate() {
            if !self.versions.iter().any(|version| version["name"] == *name) {
                let detail = "must appear in spec.versions";
                self.errors.push(FieldError::invalid(format!("{field}[{index}]"), name, detail));
            }
        }
        let storage = self.versions.iter().find(|version| version["storage"] == true);
        if let Some(storage) = storage.filter(|version| !names.contains(&version["name"])) {
            let detail =
                format!("must have the storage version {}", storage["name"].as_str().unwrap_or_default());
            self.errors.push(FieldError::invalid(field, stored, &detail));
        }
    }

    /// Requires an approval annotation for groups of Kubernetes itself.
    fn approval(&mut self) {
        let group = self.text("group");
        let protected = |domain: &str| {
            group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let approved = self.whole["metadata"]["annotations"][APPROVAL].as_str().unwrap_or_default();
        if (protected("k8s.io") || protected("kubernetes.io")) && approved.is_empty() {
            let detail = format!(
                "protected groups must have approval annotation {APPROVAL:?}, see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            );
            self.errors.push(FieldError::required(format!("metadata.annotations[{APPROVAL}]"), &detail));
        }
    }
}

fn scale_paths(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if scale.is_null() {
        return;
    }
    for (name, below) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let given = scale[name].as_str().unwrap_or_default();
        let field = format!("{path}.{name}");
        if given.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !is_simple_path(given) {
            errors.push(FieldError::invalid(
                field,
                &Value::from(given),
                "must be a simple json path starting with .",
            ));
        } else if !given.starts_with(&format!("{below}.")) {
            let detail = format!("should be a json path under {below}");
            errors.push(FieldError::invalid(field, &Value::from(given), &detail));
        }
    }
    let given = scale["labelSelectorPath"].as_str().unwrap_or_default();
    let field = format!("{path}.labelSelectorPath");
    if !given.is_empty() && !is_simple_path(given) {
        errors.push(FieldError::invalid(
            field,
            &Value::from(given),
            "must be a simple json path starting with .",
        ));
    } else if !given.is_empty() && !given.starts_with(".spec.") && !given.starts_with(".status.") {
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(field, &Value::from(given), detail));
    }
}

fn printer_columns(columns: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const KINDS: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let at = |field: &str| format!("{path}[{index}].{field}");
        if text("name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        let detail = format!("must be one of {}", KINDS.join(","));
        match text("type") {
            "" => errors.push(FieldError::required(at("type"), &detail)),
            kind if KINDS.contains(&kind) => {}
            kind => errors.push(FieldError::invalid(at("type"), &Value::from(kind), &detail)),
        }
        match text("jsonPath") {
            "" => errors.push(FieldError::required(at("JSONPath"), "")),
            json_path if json_path.starts_with('.') => {}
            json_path => {
                let detail = "must be a simple json path starting with .";
                errors.push(FieldError::invalid(at("JSONPath"), &Value::from(json_path), detail));
            }
        }
    }
}

fn selectable_fields(fields: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let given = field["jsonPath"].as_str().unwrap_or_default();
        let at = format!("{path}[{index}].jsonPath");
        if given.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let property =
            given.split('.').skip(1).try_fold(schema, |schema, name| schema["properties"].get(name));
        let detail = match property.map(|it| it["type"].as_str().unwrap_or_default()) {
            _ if !is_simple_path(given) => "is an invalid path: must be a simple path starting with .",
            None => "is an invalid path: does not refer to a valid field",
            Some("string" | "boolean" | "integer") => continue,
            Some(_) => "is an invalid path: must point to a field of type string, boolean or integer",
        };
        errors.push(FieldError::invalid(at, &Value::from(given), detail));
    }
}

/// Returns whether the path consists only of field names after dots.
fn is_simple_path(path: &str) -> bool {
    static SIMPLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^(\.[A-Za-z0-9_$-]+)+$").ok());
    SIMPLE.as_ref().is_some_and(|simple| simple.is_match(path))
}

fn is_label(text: &str) -> bool {
    static LABEL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("^[a-z]([-a-z0-9]*[a-z0-9])?$").ok());
    text.len() <= 63 && LABEL.as_ref().is_some_and(|label| label.is_match(text))
}

fn is_subdomain(text: &str) -> bool {
    static SUBDOMAIN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").ok()
    });
    text.len() <= 253 && SUBDOMAIN.as_ref().is_some_and(|subdomain| subdomain.is_match(text))
}
