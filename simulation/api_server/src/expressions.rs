//! CEL expressions: match conditions of webhooks, and validation rules of custom kinds.
//!
//! Guarantees:
//! - An expression that upstream's compiler rejects is rejected with the same message: unknown names, wrong types,
//!   literals with items of several types, a result of another type than required. Types that a schema describes have
//!   other names than upstream's, which are random.
//! - The functions of CEL's standard library, optional values and upstream's functions for strings are evaluated.
//! - A failed evaluation has upstream's message, except for the details of invalid regular expressions, and for missing
//!   keys inside macros such as `exists`.
//! - The order of lists of type set or map does not affect the result of a rule.
//!
//! Regular expressions have the syntax of the crate `regex`.
//!
//! Non-goals: `authorizer`, times and durations, and upstream's libraries for URLs, IP addresses, quantities, semantic
//! versions, sets and lists. Callers learn about an expression that uses them by [`CompileError::Unsupported`]. The
//! server does not limit the cost of an evaluation. The result of an expression that depends on the order of a map's
//! keys can differ between runs, as upstream.

mod checker;
mod library;
mod schema;
mod types;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, EntryExpr, Expr, operators};
use cel::objects::{Key, OptionalValue};
use cel::{Context, Env, ExecutionError, IdedExpr};
use serde_json::Value;

use self::checker::Checked;
use self::types::Type;

pub(crate) use self::checker::CompileError;
pub(crate) use self::schema::{Rule, RuleFailure, Scope};

/// The variables of match conditions, and their types.
const VARIABLES: &[(&str, &str)] = &[
    ("namespaceObject", "kubernetes.Namespace"),
    ("object", "dyn"),
    ("oldObject", "dyn"),
    ("request", "kubernetes.AdmissionRequest"),
];

/// The functions of expressions.
static LIBRARY: LazyLock<Result<Arc<Env>, String>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings).map_err(unregistered)?;
    Ok(Arc::new(env))
});

/// The function around the operand of a field selection. It replaces values without fields.
const FIELDS_OF: &str = "@fields_of";

/// Compiled match conditions, by their expression.
#[derive(Default)]
pub(crate) struct Conditions(BTreeMap<String, Arc<Condition>>);

/// A compiled match condition.
pub(crate) struct Condition {
    expression: String,
    program: Program,
}

/// A compiled expression.
#[derive(Debug)]
struct Program(IdedExpr);

/// The values of the variables during an evaluation.
pub(crate) struct Variables(Context<'static, 'static>);

impl Conditions {
    /// Returns a compiled condition.
    ///
    /// # Errors
    /// The errors of [`Condition::compile`].
    pub(crate) fn compiled(&mut self, expression: &str) -> Result<Arc<Condition>, String> {
        if let Some(condition) = self.0.get(expression) {
            return Ok(Arc::clone(condition));
        }
        let condition = Arc::new(Condition::compile(expression)?);
        self.0.insert(expression.to_owned(), Arc::clone(&condition));
        Ok(condition)
    }
}

impl Condition {
    /// Compiles an expression, whose result must be a bool.
    ///
    /// # Errors
    /// The upstream message for an invalid expression, or a limit of this server.
    pub(crate) fn compile(expression: &str) -> Result<Condition, String> {
        let variables: Vec<_> = VARIABLES.iter().map(|(name, of)| (*name, Type::parse(of))).collect();
        let failed = |error: CompileError| format!("compilation failed: {}", error.into_message());
        let (program, checked) = Program::compile(expression, &variables).map_err(failed)?;
        if checked.result != Type::named("bool") {
            return Err(format!("must evaluate to bool but got {}", checked.result));
        }
        Ok(Condition { expression: expression.to_owned(), program })
    }

    /// Evaluates the condition.
    ///
    /// # Errors
    /// The upstream message for a failed evaluation.
    pub(crate) fn evaluate(&self, variables: &Variables) -> Result<bool, String> {
        let result = match self.program.evaluate(variables) {
            Ok(cel::Value::Bool(result)) => return Ok(result),
            Ok(_) => "no such overload".to_owned(),
            Err(why) => why,
        };
        Err(format!("expression '{}' resulted in error: {result}", self.expression))
    }
}

impl Program {
    /// Compiles an expression with these variables.
    ///
    /// # Errors
    /// The expression is invalid, or this server cannot evaluate it.
    fn compile(
        expression: &str,
        variables: &[(&'static str, Type)],
    ) -> Result<(Program, Checked), CompileError> {
        let compiled = library().map_err(CompileError::Unsupported)?.compile(expression);
        let compiled = compiled.map_err(|errors| CompileError::Invalid(syntax(expression, &errors)))?;
        let checked = checker::check(compiled.expression(), compiled.source_info(), variables)?;
        let mut root = compiled.expression().clone();
        guard_selections(&mut root);
        Ok((Program(root), checked))
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// The upstream message for a failed evaluation.
    fn evaluate(&self, variables: &Variables) -> Result<cel::Value, String> {
        cel::Value::resolve(&self.0, &variables.0).map_err(|error| {
            let first = first_failure(&self.0, &variables.0);
            first.unwrap_or_else(|| message(&error))
        })
    }
}

impl Variables {
    /// Returns the variables of match conditions with these values; the others are null.
    ///
    /// # Errors
    /// The library of functions is unusable.
    pub(crate) fn new(object: &Value, old: &Value, request: &Value) -> Result<Variables, String> {
        Variables::with([
            ("object", converted(object)),
            ("oldObject", converted(old)),
            ("request", converted(request)),
            ("namespaceObject", cel::Value::Null),
        ])
    }

    fn with(values: impl IntoIterator<Item = (&'static str, cel::Value)>) -> Result<Variables, String> {
        let mut context = Context::with_env(library()?);
        context.add_function(FIELDS_OF, fields_of).map_err(unregistered)?;
        for (name, value) in values {
            context.add_variable_from_value(name, value);
        }
        Ok(Variables(context))
    }
}

fn library() -> Result<Arc<Env>, String> {
    LIBRARY.clone()
}

fn unregistered(error: impl std::fmt::Display) -> String {
    format!("functions of CEL not registered: {error}")
}

/// Replaces a value without fields by an empty map. In the crate, `has` fails for such a value; upstream, it is false.
fn fields_of(value: cel::Value) -> Result<cel::Value, ExecutionError> {
    match &value {
        cel::Value::Map(_) => Ok(value),
        cel::Value::List(_) => {
            Err(ExecutionError::function_error(FIELDS_OF, "unsupported index type 'string' in list"))
        }
        cel::Value::Opaque(inner) => match inner.downcast_ref::<OptionalValue>().map(OptionalValue::value) {
            Some(Some(inner)) => {
                let inner = OptionalValue::of(fields_of(inner.clone())?);
                Ok(cel::Value::Opaque(Arc::new(inner)))
            }
            _ => Ok(value),
        },
        _ => Ok(converted(&Value::Object(serde_json::Map::new()))),
    }
}

/// Calls [`fields_of`] for the operands of all selections.
fn guard_selections(part: &mut IdedExpr) {
    match &mut part.expr {
        Expr::Select(select) => guard_operand(&mut select.operand),
        Expr::Call(call) => {
            let mut arguments = call.args.iter_mut();
            if call.func_name == operators::OPT_SELECT {
                arguments.next().into_iter().for_each(guard_operand);
            }
            call.target.as_deref_mut().into_iter().chain(arguments).for_each(guard_selections);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(guard_selections),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    guard_selections(&mut entry.key);
                    guard_selections(&mut entry.value);
                }
            }
        }
        Expr::Comprehension(of) => {
            let before = [&mut of.iter_range, &mut of.accu_init];
            let steps = [&mut of.loop_cond, &mut of.loop_step, &mut of.result];
            before.into_iter().chain(steps).for_each(guard_selections);
        }
        // The checker rejects structures.
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

fn guard_operand(operand: &mut IdedExpr) {
    guard_selections(operand);
    let args = vec![std::mem::take(operand)];
    operand.expr = Expr::Call(CallExpr { func_name: FIELDS_OF.to_owned(), target: None, args });
}

/// Returns the value of CEL for a value of JSON. Integers are `int`, as in upstream's objects.
fn converted(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => cel::Value::Int(integer),
            (None, float) => cel::Value::Float(float.unwrap_or_default()),
        },
        Value::String(text) => cel::Value::from(text.as_str()),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(converted).collect())),
        Value::Object(fields) => map(fields.iter().map(|(name, value)| (name.clone(), converted(value)))),
    }
}

/// Returns a map. The library's maps have no order: macros visit the keys in random order, as upstream's do.
fn map(fields: impl IntoIterator<Item = (String, cel::Value)>) -> cel::Value {
    let fields = fields.into_iter().map(|(name, value)| (Key::from(name), value)).collect();
    cel::Value::Map(cel::objects::Map { map: Arc::new(fields) })
}

fn syntax(source: &str, errors: &cel::ParseErrors) -> String {
    let errors: Vec<_> = errors
        .errors
        .iter()
        .map(|error| {
            let line = usize::try_from(error.pos.0 - 1).unwrap_or_default();
            let column = usize::try_from(error.pos.1 - 1).unwrap_or_default();
            let before: usize = source.split_inclusive('\n').take(line).map(|it| it.chars().count()).sum();
            checker::shown(source, before + column, &error.msg)
        })
        .collect();
    errors.join("\n")
}

/// Returns the message for the first part that fails, which upstream reports; `None` if the expression does not fail.
fn first_failure(part: &IdedExpr, context: &Context<'_, '_>) -> Option<String> {
    let error = cel::Value::resolve(part, context).err()?;
    let first = |parts: &[&IdedExpr]| parts.iter().find_map(|it| first_failure(it, context));
    let inner = match &part.expr {
        Expr::Select(select) => first(&[&*select.operand]),
        Expr::Comprehension(comprehension) => first(&[&comprehension.iter_range]),
        Expr::List(list) => list.elements.iter().find_map(|it| first_failure(it, context)),
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            ("_?_:_", [condition, yes, no]) => {
                let is_met = cel::Value::resolve(condition, context) == Ok(cel::Value::Bool(true));
                first(&[condition, if is_met { yes } else { no }])
            }
            (_, arguments) => {
                call.target.as_deref().into_iter().chain(arguments).find_map(|it| first_failure(it, context))
            }
        },
        _ => None,
    };
    Some(inner.unwrap_or_else(|| match &part.expr {
        Expr::Select(select) => format!("no such key: {}", select.field),
        _ => message(&error),
    }))
}

/// Returns the upstream message for an error at run time.
fn message(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(cel::Value::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, message } if message.starts_with("string parse error") => {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => "no such overload".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evaluated(expression: &str) -> Result<bool, String> {
        let object = json!({"replicas": 3, "big": 1.5, "labels": {"team": "a"}, "none": null});
        let request = json!({"operation": "CREATE"});
        let variables = Variables::new(&object, &Value::Null, &request)?;
        Conditions::default().compiled(expression)?.evaluate(&variables)
    }

    #[test]
    fn expression_outside_of_library_is_rejected_with_limit() {
        for (expression, name) in [
            ("authorizer.group('').resource('pods').check('get').allowed()", "authorizer"),
            ("timestamp(object.at) > timestamp('2020-01-01T00:00:00Z')", "timestamp"),
            ("quantity(object.memory).isGreaterThan(quantity('1Gi'))", "quantity"),
            ("sets.contains([1], [1])", "sets"),
        ] {
            let error = evaluated(expression).unwrap_err();
            let limit =
                format!("this server does not evaluate '{name}'; test the expression on a real API server");
            assert!(error.contains(&limit), "{error}");
        }
    }

    #[test]
    fn numbers_of_objects_are_ints_and_doubles() {
        assert_eq!(evaluated("type(object.replicas) == int && type(object.big) == double"), Ok(true));
        assert_eq!(evaluated("object.replicas > 2 && object.replicas < 3.5"), Ok(true));
    }

    #[test]
    fn first_failed_part_is_reported() {
        let failure = |expression: &str| evaluated(expression).unwrap_err();
        assert!(failure("oldObject.spec.a == 1").ends_with("resulted in error: no such key: spec"));
        assert!(failure("object.a == 1 || object.b == 1").ends_with("resulted in error: no such key: a"));
        assert!(failure("(true || object.a) && object.b").ends_with("resulted in error: no such key: b"));
        assert!(failure("(false ? object.a : object.b) == 1").ends_with("resulted in error: no such key: b"));
    }
}
