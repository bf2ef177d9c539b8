//! The validation rules (`x-kubernetes-validations`) of custom kinds.
//!
//! Guarantees: a rule that upstream rejects is rejected with the same message, and a write that breaks a rule is
//! rejected as upstream rejects it. An unchanged value does not need to satisfy a rule that was added later. A rule
//! that this server cannot evaluate is accepted and listed in [`Compiled::unevaluated`].
//!
//! Non-goals: limits of the estimated and actual cost of rules, and the warnings for unchanged invalid values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use windlass_schema::custom::{self, Correlated, PreviousItems};

use super::invalid::{FieldErrors, join};
use super::value;
use crate::expressions::{self, CompileError, RuleFailure, Scope};
use crate::go_json;

/// Field name in upstream's errors about the whole object.
const ROOT: &str = "<nil>";

/// The result of compiling the rules of a schema.
#[derive(Default)]
pub(crate) struct Compiled {
    pub(crate) rules: Rules,
    pub(crate) errors: FieldErrors,
    /// Rules that this server does not evaluate: path of the rule, and the reason.
    pub(crate) unevaluated: Vec<(String, String)>,
}

/// The rules of a schema, and those of its fields and items.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Type of the values, such as `object`.
    of: String,
    scope: Option<Scope>,
    own: Vec<Rule>,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// Keys of the items, for a list of type map.
    keys: Option<Vec<String>>,
}

#[derive(Debug)]
struct Rule {
    compiled: expressions::Rule,
    /// Text of the rule in errors.
    shown: String,
    message: String,
    reason: String,
    field: Option<String>,
}

/// A value that is being validated.
#[derive(Clone, Copy)]
struct Place<'a> {
    value: &'a Value,
    /// The previous value for rules; `None` if there is none.
    old: Option<&'a Value>,
    change: Change<'a>,
}

/// The correlation that decides whether a value is unchanged.
#[derive(Clone, Copy, Default)]
struct Change<'a> {
    /// Correlation of the value itself.
    own: Option<Correlated<'a>>,
    /// Correlation of the nearest enclosing value that has one.
    enclosing: Option<Correlated<'a>>,
}

impl Compiled {
    /// Compiles the rules of a valid schema at that path.
    pub(crate) fn of(schema: &Value, path: &str) -> Compiled {
        let mut compiled = Compiled::default();
        compiled.rules = compiled.compile(schema, path, true, None);
        compiled
    }

    /// `uncorrelated` is the path of the enclosing list whose items have no previous values.
    fn compile(&mut self, schema: &Value, path: &str, is_root: bool, uncorrelated: Option<&str>) -> Rules {
        let inner = |this: &mut Compiled, schema: &Value, suffix: &str, uncorrelated: Option<&str>| {
            let rules = this.compile(
                schema,
                &format!("{path}.{suffix}"),
                value::flag(schema, &["x-kubernetes-embedded-resource"]),
                uncorrelated,
            );
            (!rules.is_empty()).then_some(rules)
        };
        let mut rules = Rules { of: value::text(schema, &["type"]).to_owned(), ..Rules::default() };
        for (name, property) in value::at(schema, &["properties"]).as_object().into_iter().flatten() {
            if let Some(found) = inner(self, property, &format!("properties[{name}]"), uncorrelated) {
                rules.properties.insert(name.clone(), found);
            }
        }
        let additional = value::at(schema, &["additionalProperties"]);
        if additional.is_object() {
            rules.additional = inner(self, additional, "additionalProperties", uncorrelated).map(Box::new);
        }
        let is_map = value::text(schema, &["x-kubernetes-list-type"]) == "map";
        let items = value::at(schema, &["items"]);
        if items.is_object() {
            let uncorrelated = uncorrelated.or(if is_map { None } else { Some(path) });
            rules.items = inner(self, items, "items", uncorrelated).map(Box::new);
        }
        rules.keys = is_map.then(|| {
            let keys = value::texts(schema, &["x-kubernetes-list-map-keys"]);
            keys.into_iter().map(str::to_owned).collect()
        });
        let own = value::items(schema, &["x-kubernetes-validations"]);
        rules.scope = if own.is_empty() { None } else { Scope::of(schema, is_root) };
        if !own.is_empty() && rules.scope.is_none() {
            self.errors.without_type(format!("{path}.x-kubernetes-validations"));
        }
        if let Some(scope) = &rules.scope {
            for (index, rule) in own.iter().enumerate() {
                let path = format!("{path}.x-kubernetes-validations[{index}]");
                rules.own.extend(self.rule(scope, schema, rule, &path, uncorrelated));
            }
        }
        self.check_default(&rules, schema, path);
        rules
    }

    /// Checks that the default of a schema satisfies its rules, as the previous value and as a new value.
    fn check_default(&mut self, rules: &Rules, schema: &Value, path: &str) {
        let default = value::at(schema, &["default"]);
        let path = format!("{path}.default");
        for old in [Some(default), None] {
            let before = self.errors.0.len();
            rules.check(Place { value: default, old, change: Change::default() }, &path, &mut self.errors);
            if self.errors.0.len() > before {
                return;
            }
        }
    }

    fn rule(
        &mut self,
        scope: &Scope,
        schema: &Value,
        rule: &Value,
        path: &str,
        uncorrelated: Option<&str>,
    ) -> Option<Rule> {
        let text = |field: &str| value::text(rule, &[field]);
        let expression = text("rule");
        let optional_old = value::at(rule, &["optionalOldSelf"]);
        let mut compiled = match scope.compile(expression, optional_old == &Value::Bool(true)) {
            Ok(compiled) => compiled,
            Err(error) => {
                self.failed(&format!("{path}.rule"), rule, error);
                return None;
            }
        };
        if !text("messageExpression").is_empty()
            && let Err(error) = scope.add_message(&mut compiled, text("messageExpression"))
        {
            self.failed(&format!("{path}.messageExpression"), rule, error);
        }
        if let (true, Some(list)) = (compiled.uses_old, uncorrelated) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            self.errors.invalid(format!("{path}.rule"), expression, &detail);
        } else if !compiled.uses_old && !optional_old.is_null() {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.invalid(format!("{path}.optionalOldSelf"), optional_old.clone(), detail);
        }
        let message = text("message").trim();
        let shown = if text("message").is_empty() { expression.trim() } else { message };
        Some(Rule {
            compiled,
            shown: shown.to_owned(),
            message: if message.is_empty() { format!("failed rule: {shown}") } else { message.to_owned() },
            reason: text("reason").to_owned(),
            field: custom::rule_field(schema, text("fieldPath")),
        })
    }

    fn failed(&mut self, path: &str, rule: &Value, error: CompileError) {
        match error {
            CompileError::Invalid(why) => self.errors.invalid_json(path, &go_rule(rule), &why),
            CompileError::Unsupported(why) => self.unevaluated.push((path.to_owned(), why)),
        }
    }
}

/// Returns a rule as JSON of upstream's internal type, which errors contain.
fn go_rule(rule: &Value) -> String {
    let fields = [
        ("Rule", "rule", Value::from("")),
        ("Message", "message", Value::from("")),
        ("MessageExpression", "messageExpression", Value::from("")),
        ("Reason", "reason", Value::Null),
        ("FieldPath", "fieldPath", Value::from("")),
        ("OptionalOldSelf", "optionalOldSelf", Value::Null),
    ];
    let fields = fields.map(|(name, field, missing)| {
        let value = go_json::encode(rule.get(field).unwrap_or(&missing));
        format!("{name:?}:{}", String::from_utf8_lossy(&value))
    });
    format!("{{{}}}", fields.join(","))
}

impl Rules {
    /// Adds an error for each rule that an object breaks. `before` is the object before an update, and `correlated`
    /// its correlation with the object.
    pub(crate) fn validate(
        &self,
        object: &Value,
        before: Option<&Value>,
        correlated: Option<Correlated<'_>>,
        errors: &mut FieldErrors,
    ) {
        let change = Change { own: correlated, enclosing: None };
        self.check(Place { value: object, old: before, change }, "", errors);
    }

    /// Returns whether there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.properties.is_empty() && self.additional.is_none() && self.items.is_none()
    }

    fn check(&self, place: Place<'_>, path: &str, errors: &mut FieldErrors) {
        if place.value.is_null() {
            return;
        }
        if let Some(scope) = &self.scope {
            for rule in &self.own {
                self.check_rule(scope, rule, place, path, errors);
            }
        }
        match place.value {
            Value::Array(items) => self.check_items(place, items, path, errors),
            Value::Object(fields) => self.check_fields(place, fields, path, errors),
            _ => {}
        }
    }

    fn check_items(&self, place: Place<'_>, items: &[Value], path: &str, errors: &mut FieldErrors) {
        let Some(rules) = &self.items else { return };
        let previous = PreviousItems::of(self.keys.as_deref(), place.old);
        let correlated = place.change.own.map(Correlated::items).unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let change = place.change.inner(correlated.get(&index).copied());
            let place = Place { value: item, old: previous.get(item), change };
            rules.check(place, &format!("{path}[{index}]"), errors);
        }
    }

    fn check_fields(
        &self,
        place: Place<'_>,
        fields: &Map<String, Value>,
        path: &str,
        errors: &mut FieldErrors,
    ) {
        for (name, value) in fields {
            let old = place.old.and_then(|it| it.get(name)).filter(|it| !it.is_null());
            let inner = Place { value, old, change: place.change.field(name) };
            if let Some(rules) = &self.additional {
                rules.check(inner, &format!("{path}[{name}]"), errors);
            }
            if let Some(rules) = self.properties.get(name) {
                rules.check(inner, &join(path, name), errors);
            }
        }
    }

    fn check_rule(&self, scope: &Scope, rule: &Rule, place: Place<'_>, path: &str, errors: &mut FieldErrors) {
        let at = || if path.is_empty() { ROOT.to_owned() } else { path.to_owned() };
        let message = match scope.evaluate(&rule.compiled, place.value, place.old) {
            Ok(()) => return,
            Err(RuleFailure::Broken(message)) => message,
            Err(RuleFailure::Failed(why)) => {
                let detail = if why.starts_with("no such overload") {
                    let unmatched =
                        "call arguments did not match a supported operator, function or macro signature";
                    format!("'{why}': {unmatched} for rule: {}", rule.shown)
                } else {
                    format!("{why} evaluating rule: {}", rule.shown)
                };
                errors.invalid(at(), self.of.as_str(), &detail);
                return;
            }
        };
        if !rule.compiled.uses_old && place.change.is_none() {
            return;
        }
        let field = rule.field.as_ref().map_or_else(at, |field| join(path, field));
        let detail = message.as_deref().unwrap_or(&rule.message);
        let is_shown = !matches!(self.of.as_str(), "object" | "array");
        match rule.reason.as_str() {
            "FieldValueForbidden" => errors.forbidden(field, detail),
            "FieldValueRequired" => errors.required(field, detail),
            "FieldValueDuplicate" if is_shown => errors.duplicate(field, place.value.clone()),
            "FieldValueDuplicate" => errors.bare_duplicate(field),
            _ if is_shown => errors.invalid(field, place.value.clone(), detail),
            _ => errors.bare_invalid(field, detail),
        }
    }
}

impl<'a> Change<'a> {
    /// Returns the correlation of a field.
    fn field(self, name: &str) -> Change<'a> {
        // Conversion changes the type of the object itself.
        if self.enclosing.is_none() && matches!(name, "apiVersion" | "kind") {
            return Change::default();
        }
        self.inner(self.own.and_then(|it| it.field(name)))
    }

    /// Returns the correlation of a field or an item, whose own is `correlated`.
    fn inner(self, correlated: Option<Correlated<'a>>) -> Change<'a> {
        Change { own: correlated, enclosing: self.own.or(self.enclosing) }
    }

    /// Returns whether nothing has changed.
    fn is_none(self) -> bool {
        self.own.or(self.enclosing).is_some_and(Correlated::is_unchanged)
    }
}
