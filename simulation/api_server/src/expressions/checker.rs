//! The type of an expression, and upstream's messages for an expression that can have none.

use std::collections::BTreeSet;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SourceInfo};

use super::library::{COMPARED, OBJECTS, OVERLOADS, TWO_VARIABLE_MACROS, TYPE_NAMES, UNSUPPORTED};
use super::types::{Substitutions, Type};

/// A check of one expression.
pub(super) struct Checker<'a> {
    source: &'a SourceInfo,
    substitutions: Substitutions,
    /// Visible variables; a later one hides an earlier one of the same name.
    scope: Vec<(&'a str, Type)>,
    /// The number of variables that are not inside a macro.
    globals: usize,
    checked: Checked,
    /// Whether an error is a limit of this server.
    is_limited: bool,
    /// Errors with their positions, in characters from the beginning.
    errors: Vec<(usize, String)>,
    /// Items of literal lists, and keys or values of literal maps.
    aggregates: Vec<Aggregate<'a>>,
    /// Literal arguments of `matches`. Upstream compiles the first one also if it is no pattern.
    patterns: Vec<(&'a IdedExpr, &'a str)>,
}

struct Aggregate<'a> {
    is_list: bool,
    items: Vec<(&'a IdedExpr, Type)>,
}

/// The result of a check.
pub(super) struct Checked {
    pub(super) result: Type,
    /// The names that are used outside of macros' variables: variables and types.
    pub(super) names: BTreeSet<String>,
    /// Whether the result can depend on the order of a list.
    pub(super) is_ordered: bool,
}

/// Reason why an expression cannot be evaluated.
#[derive(Debug)]
pub(crate) enum CompileError {
    /// The upstream message.
    Invalid(String),
    /// A limit of this server.
    Unsupported(String),
}

impl CompileError {
    pub(crate) fn into_message(self) -> String {
        let (Self::Invalid(message) | Self::Unsupported(message)) = self;
        message
    }
}

/// Determines the type of an expression with these variables.
///
/// # Errors
/// The expression is invalid, or this server cannot evaluate it.
pub(super) fn check(
    expression: &IdedExpr,
    source: &SourceInfo,
    variables: &[(&'static str, Type)],
) -> Result<Checked, CompileError> {
    let names = TYPE_NAMES.iter().map(|(name, of)| (*name, Type::parse(of)));
    let scope: Vec<_> = names.chain(variables.iter().cloned()).collect();
    let checked = Checked { result: Type::DYNAMIC, names: BTreeSet::new(), is_ordered: false };
    let mut checker = Checker {
        source,
        substitutions: Substitutions::default(),
        globals: scope.len(),
        scope,
        checked,
        is_limited: false,
        errors: Vec::new(),
        aggregates: Vec::new(),
        patterns: Vec::new(),
    };
    let found = checker.check(expression);
    if checker.errors.is_empty() {
        checker.validate();
    }
    if checker.errors.is_empty() {
        return Ok(Checked { result: checker.substitutions.apply(&found), ..checker.checked });
    }
    let is_limited = checker.is_limited;
    let message = checker.message();
    Err(if is_limited { CompileError::Unsupported(message) } else { CompileError::Invalid(message) })
}

impl<'a> Checker<'a> {
    fn message(mut self) -> String {
        self.errors.sort_by_key(|(offset, _)| *offset);
        let errors: Vec<_> =
            self.errors.iter().map(|(offset, text)| shown(&self.source.source, *offset, text)).collect();
        errors.join("\n")
    }

    fn fail(&mut self, at: &IdedExpr, why: String) -> Type {
        let offset = self.source.offset_for(at.id).map_or(0, |(begin, _)| begin as usize);
        self.errors.push((offset, why));
        Type::DYNAMIC
    }

    fn undeclared(&mut self, at: &IdedExpr, name: &str) -> Type {
        if UNSUPPORTED.contains(&name) {
            return self.unsupported(at, name);
        }
        self.fail(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn unsupported(&mut self, at: &IdedExpr, name: &str) -> Type {
        self.is_limited = true;
        self.fail(
            at,
            format!("this server does not evaluate '{name}'; test the expression on a real API server"),
        )
    }

    /// Checks the literals of an expression without type errors, as upstream's validators.
    fn validate(&mut self) {
        for (part, pattern) in std::mem::take(&mut self.patterns) {
            if regex::Regex::new(pattern).is_err() {
                // RE2 accepts some patterns that the crate does not, such as `{` without a number.
                if ["{", "[[", "\\"].iter().any(|it| pattern.contains(it)) {
                    self.unsupported(part, pattern);
                } else {
                    self.fail(part, "invalid matches argument".to_owned());
                }
            }
        }
        for Aggregate { is_list, items } in std::mem::take(&mut self.aggregates) {
            let mut types = items.into_iter().map(|(item, of)| (item, self.substitutions.resolved(&of)));
            let Some((_, expected)) = types.next() else { continue };
            let others: Vec<_> = types.filter(|(_, found)| *found != expected).collect();
            let reported = if is_list { 1 } else { others.len() };
            for (item, found) in others.into_iter().take(reported) {
                self.fail(item, format!("expected type '{expected}' but found '{found}'"));
            }
        }
    }

    fn check(&mut self, part: &'a IdedExpr) -> Type {
        match self.check_part(part) {
            Type::Named(name @ ("duration" | "timestamp"), _) => self.unsupported(part, name),
            other => other,
        }
    }

    fn check_part(&mut self, part: &'a IdedExpr) -> Type {
        match &part.expr {
            Expr::Unspecified => Type::DYNAMIC,
            Expr::Literal(literal) => Type::named(literal_type(literal)),
            Expr::Ident(name) => {
                let Some(index) = self.scope.iter().rposition(|(own, _)| own == name) else {
                    return self.undeclared(part, name);
                };
                if index < self.globals {
                    self.checked.names.insert(name.clone());
                }
                self.scope[index].1.clone()
            }
            Expr::Select(select) => {
                let field = self.select(part, &select.operand, &select.field, false);
                if select.test { Type::named("bool") } else { field }
            }
            Expr::Call(call) => self.call(part, call),
            Expr::List(list) => {
                let items = list
                    .elements
                    .iter()
                    .enumerate()
                    .map(|(index, item)| (item, list.optional_indices.contains(&index)));
                Type::list(self.join(items.collect(), true))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Vec::new(), Vec::new());
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys.push((&entry.key, false));
                        values.push((&entry.value, entry.optional));
                    }
                }
                Type::Named("map", vec![self.join(keys, false), self.join(values, false)])
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(object) => self.undeclared(part, &object.type_name),
        }
    }

    /// Returns the common type of the items of a list or map. The flag marks an optional item.
    fn join(&mut self, items: Vec<(&'a IdedExpr, bool)>, is_list: bool) -> Type {
        let (mut common, mut joined): (Option<Type>, Vec<_>) = (None, Vec::new());
        for (item, is_optional) in items {
            let mut of = self.check(item);
            if is_optional {
                let was_optional;
                (of, was_optional) = unwrapped(of);
                if !was_optional && !of.is("dyn") {
                    let expected = Type::optional(of.clone());
                    self.fail(item, format!("expected type '{expected}' but found '{of}'"));
                }
            }
            joined.push((item, of.clone()));
            common = Some(match common {
                None => of,
                Some(previous) => self.joined(item, previous, of),
            });
        }
        self.aggregates.push(Aggregate { is_list, items: joined });
        common.unwrap_or_else(|| self.substitutions.variable())
    }

    fn joined(&mut self, item: &IdedExpr, previous: Type, of: Type) -> Type {
        if self.substitutions.assign(std::slice::from_ref(&previous), std::slice::from_ref(&of)) {
            return Type::most_general(previous, of);
        }
        let [previous, of] = [previous, of].map(|it| self.substitutions.apply(&it));
        self.fail(item, format!("expected type '{previous}' but found '{of}'"))
    }

    fn select(&mut self, at: &IdedExpr, operand: &'a IdedExpr, field: &str, is_optional: bool) -> Type {
        let of = self.check(operand);
        let (of, was_optional) = unwrapped(self.substitutions.apply(&of));
        let found = match &of {
            Type::Named("map", parameters) => parameters[1].clone(),
            Type::Named("dyn", _) => Type::DYNAMIC,
            Type::Variable(_) => {
                self.substitutions.assign(&[Type::DYNAMIC], std::slice::from_ref(&of));
                Type::DYNAMIC
            }
            Type::Object(object) => match object.fields.get(field) {
                Some(of) => of.clone(),
                None => self.fail(at, format!("undefined field '{field}'")),
            },
            Type::Named(name, _) => match field_type(name, field) {
                Some(Some(of)) => of,
                Some(None) => self.fail(at, format!("undefined field '{field}'")),
                None => self.fail(at, format!("type '{of}' does not support field selection")),
            },
        };
        let found = self.substitutions.apply(&found);
        if is_optional || was_optional { Type::optional(found) } else { found }
    }

    fn call(&mut self, at: &IdedExpr, call: &'a CallExpr) -> Type {
        let name = call.func_name.as_str();
        if let ("_?._", [operand, field]) = (name, call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(field)) = &field.expr
        {
            return self.select(at, operand, field.inner(), true);
        }
        if call.target.is_some() && call.args.len() == 3 && TWO_VARIABLE_MACROS.contains(&name) {
            return self.unsupported(at, name);
        }
        let mut arguments: Vec<Type> = call.args.iter().map(|it| self.check(it)).collect();
        if name == "matches" {
            self.patterns.extend(call.args.iter().filter_map(|it| match &it.expr {
                Expr::Literal(LiteralValue::String(pattern)) => Some((it, pattern.inner())),
                _ => None,
            }));
        }
        if matches!(name, "_&&_" | "_||_") {
            return self.logical(&call.args, &arguments);
        }
        let Some(target) = &call.target else {
            self.note_order(name, &call.args, &arguments);
            return self.overload(at, name, false, &arguments);
        };
        if let Expr::Ident(namespace) = &target.expr {
            let qualified = format!("{namespace}.{name}");
            if OVERLOADS.iter().any(|it| it.0 == qualified) {
                return self.overload(at, &qualified, false, &arguments);
            }
        }
        arguments.insert(0, self.check(target));
        if matches!(name, "indexOf" | "lastIndexOf") && self.is_list(&arguments[0]) {
            return self.unsupported(at, name);
        }
        self.note_order(name, &[], &arguments);
        self.overload(at, name, true, &arguments)
    }

    /// Records whether the result of a call can depend on the order of a list. Two values of the same field are
    /// compared in the same order.
    fn note_order(&mut self, name: &str, parts: &[IdedExpr], arguments: &[Type]) {
        let has_list = arguments.iter().any(|it| self.is_list(it));
        let is_ordered = match (name, parts) {
            ("_[_]" | "_[?_]" | "join", _) => arguments.first().is_some_and(|it| self.is_list(it)),
            // The list that a macro builds.
            ("_+_", [IdedExpr { expr: Expr::Ident(name), .. }, _]) if name == "@result" => false,
            ("_+_", _) => has_list,
            ("_==_" | "_!=_", [one, other]) => has_list && (path(one).is_none() || path(one) != path(other)),
            ("@in" | "dyn", _) => arguments.first().is_some_and(|it| self.is_list(it)),
            _ => false,
        };
        self.checked.is_ordered |= is_ordered;
    }

    /// Returns whether values of a type can be lists, or optional lists.
    fn is_list(&self, of: &Type) -> bool {
        match self.substitutions.apply(of) {
            Type::Named("list", _) => true,
            Type::Named("optional_type", parameters) => parameters.iter().any(|it| self.is_list(it)),
            Type::Named(..) | Type::Object(_) | Type::Variable(_) => false,
        }
    }

    fn logical(&mut self, parts: &[IdedExpr], types: &[Type]) -> Type {
        for (part, of) in parts.iter().zip(types) {
            if !self.substitutions.assign(std::slice::from_ref(of), &[Type::named("bool")]) {
                let of = self.substitutions.apply(of);
                self.fail(part, format!("expected type 'bool' but found '{of}'"));
            }
        }
        Type::named("bool")
    }

    fn overload(&mut self, at: &IdedExpr, name: &str, is_member: bool, arguments: &[Type]) -> Type {
        let candidates: Vec<(&'static str, &'static str)> = match name {
            "_<_" | "_<=_" | "_>_" | "_>=_" => COMPARED.iter().map(|it| (*it, "bool")).collect(),
            _ => {
                let named = OVERLOADS.iter().filter(|it| it.0 == name);
                if named.clone().next().is_none() {
                    return self.undeclared(at, name);
                }
                named.filter(|it| it.1 == is_member).map(|it| (it.2, it.3)).collect()
            }
        };
        let mut found: Option<Type> = None;
        for (parameters, result) in candidates {
            let variables = [self.substitutions.variable(), self.substitutions.variable()];
            let parameters: Vec<_> =
                Type::parse_list(parameters).iter().map(|it| it.instantiated(&variables)).collect();
            if !self.substitutions.assign(arguments, &parameters) {
                continue;
            }
            let result = self.substitutions.apply(&Type::parse(result).instantiated(&variables));
            found = match found {
                Some(other) if other != result => Some(Type::DYNAMIC),
                _ => Some(result),
            };
        }
        found.unwrap_or_else(|| self.no_overload(at, name, is_member, arguments))
    }

    fn no_overload(&mut self, at: &IdedExpr, name: &str, is_member: bool, arguments: &[Type]) -> Type {
        let given: Vec<_> = arguments.iter().map(|it| self.substitutions.apply(it).to_string()).collect();
        let signature = match given.split_first() {
            Some((target, rest)) if is_member => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", given.join(", ")),
        };
        self.fail(at, format!("found no matching overload for '{name}' applied to '{signature}'"))
    }

    fn comprehension(&mut self, of: &'a ComprehensionExpr) -> Type {
        let range = self.check(&of.iter_range);
        let range = self.substitutions.apply(&range);
        let accumulated = self.check(&of.accu_init);
        let before = self.scope.len();
        self.scope.push((&of.accu_var, accumulated.clone()));
        let (first, second) = match &range {
            Type::Named("list", parameters) => (Type::named("int"), parameters[0].clone()),
            Type::Named("map", parameters) => (parameters[0].clone(), parameters[1].clone()),
            Type::Named("dyn", _) | Type::Variable(_) => {
                self.substitutions.assign(&[Type::DYNAMIC], std::slice::from_ref(&range));
                (Type::DYNAMIC, Type::DYNAMIC)
            }
            Type::Named(..) | Type::Object(_) => {
                let why = format!(
                    "expression of type '{range}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.fail(&of.iter_range, why);
                (Type::DYNAMIC, Type::DYNAMIC)
            }
        };
        let inside = self.scope.len();
        match &of.iter_var2 {
            Some(name) => self.scope.extend([(of.iter_var.as_str(), first), (name.as_str(), second)]),
            None if range.is("list") => self.scope.push((&of.iter_var, second)),
            None => self.scope.push((&of.iter_var, first)),
        }
        self.expect(&of.loop_cond, &Type::named("bool"));
        self.expect(&of.loop_step, &accumulated);
        self.scope.truncate(inside);
        let result = self.check(&of.result);
        self.scope.truncate(before);
        self.substitutions.apply(&result)
    }

    fn expect(&mut self, part: &'a IdedExpr, expected: &Type) {
        let found = self.check(part);
        if !self.substitutions.assign(std::slice::from_ref(&found), std::slice::from_ref(expected)) {
            let [expected, found] = [expected, &found].map(|it| self.substitutions.apply(it));
            self.fail(part, format!("expected type '{expected}' but found '{found}'"));
        }
    }
}

/// Returns the fields of a selection, without its variable; `None` for other expressions.
fn path(part: &IdedExpr) -> Option<Vec<&str>> {
    match &part.expr {
        Expr::Ident(_) => Some(Vec::new()),
        Expr::Select(select) => {
            let mut fields = path(&select.operand)?;
            fields.push(&select.field);
            Some(fields)
        }
        _ => None,
    }
}

fn literal_type(literal: &LiteralValue) -> &'static str {
    match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::Null => "null_type",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
    }
}

/// Returns the type inside an optional type, and whether the type is optional.
fn unwrapped(of: Type) -> (Type, bool) {
    match of {
        Type::Named("optional_type", mut parameters) => (parameters.remove(0), true),
        other => (other, false),
    }
}

/// Returns the type of a field: `None` if the type has no fields, and `Some(None)` if it has others.
fn field_type(of: &str, field: &str) -> Option<Option<Type>> {
    let (_, fields) = OBJECTS.iter().find(|(name, _)| *name == of)?;
    Some(fields.iter().find(|(name, _)| *name == field).map(|(_, of)| Type::parse(of)))
}

/// Returns an error with its line, as upstream prints it.
pub(super) fn shown(source: &str, offset: usize, text: &str) -> String {
    let (mut line, mut begin) = (1, 0);
    for (index, letter) in source.chars().enumerate().take(offset) {
        if letter == '\n' {
            (line, begin) = (line + 1, index + 1);
        }
    }
    let column = offset - begin;
    let snippet = source.lines().nth(line - 1).unwrap_or_default().replace('\t', " ");
    let wide = |it: char, narrow: char, wide: char| if it.len_utf8() > 1 { wide } else { narrow };
    let dots: String = snippet.chars().take(column).map(|it| wide(it, '.', '．')).collect();
    let mark = snippet.chars().nth(column).map_or('^', |it| wide(it, '^', '＾'));
    format!("ERROR: <input>:{line}:{}: {text}\n | {snippet}\n | {dots}{mark}", column + 1)
}
