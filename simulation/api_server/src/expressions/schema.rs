//! Validation rules: expressions over the values that a schema of a custom kind describes.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::objects::OptionalValue;
use serde_json::{Value, json};

use super::checker::{Checked, CompileError};
use super::types::{ObjectType, Type};
use super::{Program, Variables, converted, map};
use crate::go_duration::go_duration;

/// The identity of resources, which rules can use even if the schema does not declare it.
static IDENTITY: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let names = json!({"name": text, "generateName": text});
    json!({"apiVersion": text, "kind": text, "metadata": {"type": "object", "properties": names}})
});

/// Name of the undeclared fields of an object, which no expression can select. They matter for comparisons.
const UNDECLARED: &str = "@undeclared";

/// Words that are no field names in expressions.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The variables of the rules of one schema.
#[derive(Debug)]
pub(crate) struct Scope {
    schema: Value,
    is_root: bool,
    of: Type,
}

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Program,
    message: Option<Program>,
    has_optional_old: bool,
    /// Whether the rule compares with the previous value.
    pub(crate) uses_old: bool,
}

/// Reason why a rule does not hold.
pub(crate) enum RuleFailure {
    /// The rule is false. Contains the result of the message expression, if it has a usable one.
    Broken(Option<String>),
    /// The upstream message for a failed evaluation.
    Failed(String),
}

impl Scope {
    /// Returns the variables for a schema; `None` if expressions cannot use its values.
    pub(crate) fn of(schema: &Value, is_root: bool) -> Option<Scope> {
        let of = type_of(schema, is_root, "selfType")?;
        Some(Scope { schema: schema.clone(), is_root, of })
    }

    /// Compiles a rule and its message expression. `optional_old` means that it is evaluated without a previous value.
    ///
    /// # Errors
    /// The upstream message, or a limit of this server.
    pub(crate) fn compile(&self, expression: &str, optional_old: bool) -> Result<Rule, CompileError> {
        let (program, checked) = self.program(expression, optional_old, "compilation failed")?;
        if checked.result != Type::named("bool") {
            return Err(CompileError::Invalid("cel expression must evaluate to a bool".to_owned()));
        }
        let uses_old = checked.names.contains("oldSelf");
        Ok(Rule { program, message: None, has_optional_old: optional_old, uses_old })
    }

    /// Compiles the message expression of a rule.
    ///
    /// # Errors
    /// The upstream message, or a limit of this server.
    pub(crate) fn add_message(&self, rule: &mut Rule, expression: &str) -> Result<(), CompileError> {
        let failed = "messageExpression compilation failed";
        let (program, checked) = self.program(expression, rule.has_optional_old, failed)?;
        if checked.result != Type::named("string") {
            return Err(CompileError::Invalid("messageExpression must evaluate to a string".to_owned()));
        }
        rule.message = Some(program);
        Ok(())
    }

    fn program(
        &self,
        expression: &str,
        optional_old: bool,
        failed: &str,
    ) -> Result<(Program, Checked), CompileError> {
        let old = if optional_old { Type::optional(self.of.clone()) } else { self.of.clone() };
        let compiled = Program::compile(expression, &[("self", self.of.clone()), ("oldSelf", old)]);
        let (program, checked) = compiled.map_err(|error| match error {
            CompileError::Invalid(why) => CompileError::Invalid(format!("{failed}: {why}")),
            limit @ CompileError::Unsupported(_) => limit,
        })?;
        if checked.is_ordered && has_unordered(&self.schema) {
            let why = "this server does not evaluate expressions that depend on the order of a list of type set or map";
            return Err(CompileError::Unsupported(why.to_owned()));
        }
        Ok((program, checked))
    }

    /// Evaluates a rule for a value.
    pub(crate) fn evaluate(
        &self,
        rule: &Rule,
        value: &Value,
        old: Option<&Value>,
    ) -> Result<(), RuleFailure> {
        if rule.uses_old && old.is_none() && !rule.has_optional_old {
            return Ok(());
        }
        let converted = |value: &Value| value_of(&self.schema, self.is_root, value);
        let old = old.map(converted);
        let old = match (rule.has_optional_old, old) {
            (false, old) => old.unwrap_or(cel::Value::Null),
            (true, old) => {
                let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
                cel::Value::Opaque(Arc::new(old))
            }
        };
        let variables = Variables::with([("self", converted(value)), ("oldSelf", old)]);
        let variables = variables.map_err(RuleFailure::Failed)?;
        match rule.program.evaluate(&variables) {
            Ok(cel::Value::Bool(true)) => Ok(()),
            Ok(_) => Err(RuleFailure::Broken(rule.message.as_ref().and_then(|it| text_of(it, &variables)))),
            Err(why) => Err(RuleFailure::Failed(why)),
        }
    }
}

/// Returns the result of a message expression. Upstream ignores failed, empty and long ones, and those of several
/// lines.
fn text_of(message: &Program, variables: &Variables) -> Option<String> {
    /// The maximum length of a message in bytes.
    const LONGEST: usize = 5 * 1024;
    let Ok(cel::Value::String(text)) = message.evaluate(variables) else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= LONGEST && !text.contains('\n')).then(|| text.to_owned())
}

fn text<'a>(schema: &'a Value, field: &str) -> &'a str {
    schema.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, field: &str) -> bool {
    schema.get(field) == Some(&Value::Bool(true))
}

fn is_embedded(schema: &Value) -> bool {
    flag(schema, "x-kubernetes-embedded-resource")
}

/// Returns the schema of all fields of an object, if it has one.
fn additional(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|it| it.is_object())
}

/// Returns the schemas of the declared fields of an object.
fn properties(schema: &Value, is_root: bool) -> BTreeMap<&str, &Value> {
    let declared = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let is_added = is_root && !declares_identity(schema);
    let identity = IDENTITY.as_object().filter(|_| is_added).into_iter().flatten();
    declared.chain(identity).map(|(name, schema)| (name.as_str(), schema)).collect()
}

/// Returns whether a schema declares the identity of resources itself.
fn declares_identity(schema: &Value) -> bool {
    let is_text = |field: &str| schema.pointer(field).is_some_and(|it| text(it, "type") == "string");
    ["kind", "apiVersion", "metadata/properties/name", "metadata/properties/generateName"]
        .iter()
        .all(|field| is_text(&format!("/properties/{field}")))
}

/// Returns the type of the values of a schema; `None` if expressions cannot use them.
fn type_of(schema: &Value, is_root: bool, name: &str) -> Option<Type> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Some(Type::DYNAMIC);
    }
    let inner =
        |schema: &Value, suffix: &str| type_of(schema, is_embedded(schema), &format!("{name}.{suffix}"));
    let of = match (text(schema, "type"), text(schema, "format")) {
        ("array", _) => Type::list(inner(schema.get("items")?, "@idx")?),
        ("object", _) => match additional(schema) {
            Some(values) => Type::Named("map", vec![Type::named("string"), inner(values, "@elem")?]),
            None => {
                let fields = properties(schema, is_root).into_iter();
                let fields = fields.filter_map(|(name, schema)| {
                    let name = escaped(name)?;
                    let of = inner(schema, &name)?;
                    Some((name, of))
                });
                Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields: fields.collect() }))
            }
        },
        ("string", "byte") => Type::named("bytes"),
        ("string", "duration") => Type::named("duration"),
        ("string", "date" | "date-time") => Type::named("timestamp"),
        ("string", _) => Type::named("string"),
        ("boolean", _) => Type::named("bool"),
        ("number", _) => Type::named("double"),
        ("integer", _) => Type::named("int"),
        _ => return None,
    };
    Some(of)
}

/// Returns the value of CEL for a value of a schema. A declared field that is null is missing, as upstream.
fn value_of(schema: &Value, is_root: bool, value: &Value) -> cel::Value {
    if flag(schema, "x-kubernetes-int-or-string") {
        return converted(value);
    }
    let inner = |schema: &Value, value: &Value| value_of(schema, is_embedded(schema), value);
    match (text(schema, "type"), value) {
        ("array", Value::Array(items)) => {
            let of = schema.get("items").unwrap_or(&Value::Null);
            let items: Vec<_> = in_order(schema, items).into_iter().map(|item| inner(of, item)).collect();
            cel::Value::List(Arc::new(items))
        }
        ("object", Value::Object(fields)) => match additional(schema) {
            Some(of) => map(fields.iter().map(|(name, value)| (name.clone(), inner(of, value)))),
            None => {
                let declared = properties(schema, is_root);
                let (mut known, mut others) = (Vec::new(), serde_json::Map::new());
                for (name, value) in fields {
                    match (declared.get(name.as_str()), escaped(name)) {
                        (Some(_), _) if value.is_null() => {}
                        (Some(schema), Some(name)) => known.push((name, inner(schema, value))),
                        _ => drop(others.insert(name.clone(), value.clone())),
                    }
                }
                if !others.is_empty() {
                    known.push((UNDECLARED.to_owned(), converted(&Value::Object(others))));
                }
                map(known)
            }
        },
        ("string", Value::String(encoded)) if text(schema, "format") == "byte" => {
            cel::Value::Bytes(Arc::new(STANDARD.decode(encoded).unwrap_or_default()))
        }
        ("string", Value::String(given)) => {
            cel::Value::from(canonical(text(schema, "format"), given).as_str())
        }
        ("number", Value::Number(number)) => cel::Value::Float(number.as_f64().unwrap_or_default()),
        (_, other) => converted(other),
    }
}

/// Returns one spelling of equal times and durations. Expressions can only compare objects that contain them.
fn canonical(format: &str, given: &str) -> String {
    let sign = if given.starts_with('-') { "-" } else { "" };
    let canonical = match format {
        "date-time" => given.parse::<jiff::Timestamp>().ok().map(|it| it.to_string()),
        "duration" => go_duration(given.trim_start_matches('-')).ok().map(|it| format!("{sign}{it:?}")),
        _ => None,
    };
    canonical.unwrap_or_else(|| given.to_owned())
}

/// Returns the items of a list; those of a list of type set or map in a canonical order.
fn in_order<'a>(schema: &Value, items: &'a [Value]) -> Vec<&'a Value> {
    let mut items: Vec<_> = items.iter().collect();
    match text(schema, "x-kubernetes-list-type") {
        "set" => items.sort_by_cached_key(|item| item.to_string()),
        "map" => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys: Vec<_> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
            items
                .sort_by_cached_key(|item| keys.iter().map(|key| item[*key].to_string()).collect::<Vec<_>>());
        }
        _ => {}
    }
    items
}

/// Returns whether a schema contains lists whose order has no meaning.
fn has_unordered(schema: &Value) -> bool {
    matches!(text(schema, "x-kubernetes-list-type"), "set" | "map")
        || properties(schema, false).values().copied().any(has_unordered)
        || schema.get("items").into_iter().chain(additional(schema)).any(has_unordered)
}

/// Returns the name of a field in expressions; `None` if they cannot use it.
fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "_-./".contains(it);
    if name.is_empty() || name.starts_with(|it: char| it.is_ascii_digit()) || !name.chars().all(is_allowed) {
        return None;
    }
    let mut escaped = name.replace("__", "__underscores__");
    for (character, escape) in [(".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")] {
        escaped = escaped.replace(character, escape);
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the variables of the rules of a spec with fields of many types.
    fn scope() -> Scope {
        let schema = json!({"type": "object", "properties": {
            "replicas": {"type": "integer"}, "ratio": {"type": "number"}, "port": {"x-kubernetes-int-or-string": true},
            "name": {"type": "string"}, "secret": {"type": "string", "format": "byte"},
            "at": {"type": "string", "format": "date-time"}, "max-size": {"type": "integer"},
            "namespace": {"type": "string"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {}},
        }});
        Scope::of(&schema, false).expect("the schema describes values")
    }

    fn compiled(expression: &str) -> Result<Rule, CompileError> {
        scope().compile(expression, false)
    }

    fn evaluated(expression: &str, value: Value, old: Option<Value>) -> Result<(), String> {
        let rule = compiled(expression).map_err(CompileError::into_message)?;
        scope().evaluate(&rule, &value, old.as_ref()).map_err(|failure| match failure {
            RuleFailure::Broken(_) => "broken".to_owned(),
            RuleFailure::Failed(why) => why,
        })
    }

    #[test]
    fn values_have_the_types_of_their_schema() {
        let value = json!({
            "replicas": 3, "ratio": 1, "port": "80%", "secret": "YWI=", "max-size": 4, "namespace": "a",
            "labels": {"a-b": "c"}, "template": {"kind": "Pod", "metadata": {"name": "a", "labels": {}}},
        });
        for expression in [
            "self.replicas + 1 == 4 && type(self.ratio) == double && self.ratio / 2.0 == 0.5",
            "self.port == '80%' && type(self.port) == string",
            "self.secret == b'ab' && size(self.secret) == 2",
            "self.max__dash__size == 4 && self.__namespace__ == 'a'",
            "self.labels['a-b'] == 'c' && !has(self.name) && !has(self.at)",
            "self.template.kind == 'Pod' && self.template.metadata.name == 'a'",
        ] {
            assert_eq!(evaluated(expression, value.clone(), None), Ok(()), "{expression}");
        }
        assert_eq!(evaluated("self.replicas > 3", value.clone(), None), Err("broken".to_owned()));
        assert_eq!(evaluated("self.name == 'a'", value.clone(), None), Err("no such key: name".to_owned()));
        for undeclared in ["self.free.a == 1", "self.template.metadata.labels.size() == 0", "self.other == 1"]
        {
            let error = evaluated(undeclared, value.clone(), None).unwrap_err();
            assert!(error.contains("undefined field"), "{undeclared}: {error}");
        }
    }

    #[test]
    fn previous_value_is_compared_without_order_of_list_of_type_map() {
        let ports = |names: &[(i64, &str)]| {
            let ports: Vec<_> =
                names.iter().map(|(port, name)| json!({"port": port, "name": name})).collect();
            json!({ "ports": ports })
        };
        let (old, moved) = (ports(&[(1, "a"), (2, "b")]), ports(&[(2, "b"), (1, "a")]));
        assert_eq!(evaluated("self == oldSelf", moved.clone(), Some(old.clone())), Ok(()));
        assert_eq!(evaluated("self == oldSelf", moved.clone(), None), Ok(()));
        let changed = ports(&[(2, "b"), (1, "c")]);
        assert_eq!(evaluated("self == oldSelf", changed, Some(old)), Err("broken".to_owned()));
        let error = evaluated("self.ports[0].port == 2", moved, None).unwrap_err();
        assert!(error.contains("the order of a list of type set or map"), "{error}");
    }

    #[test]
    fn rule_with_functions_of_upstream_only_is_unsupported() {
        for expression in [
            "self.labels.all(k, v, v != '')",
            "self.tags.indexOf('a') == 0",
            "self.tags.first().hasValue()",
            "self.name.matches('^{.*}$')",
            // These depend on the order of a list of type set.
            "self.tags == ['a', 'b']",
            "self.?tags[?0].orValue('') == 'a'",
            "dyn(self.tags)[0] == 'a'",
        ] {
            let error = compiled(expression).map(|_| ()).expect_err(expression);
            assert!(matches!(error, CompileError::Unsupported(_)), "{expression}: {error:?}");
        }
        for expression in ["self.tags.filter(it, it == 'a').size() == 1", "self.tags == oldSelf.tags"] {
            assert!(compiled(expression).is_ok(), "{expression}");
        }
    }

    #[test]
    fn rule_about_times_is_unsupported() {
        let error = evaluated("self.at > timestamp('2020-01-01T00:00:00Z')", json!({}), None).unwrap_err();
        assert!(error.contains("this server does not evaluate 'timestamp'"), "{error}");
    }
}
