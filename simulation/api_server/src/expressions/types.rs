//! Types of CEL expressions, and the variables that stand for unknown ones.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// A type by its name, such as `int` or `map`, and its parameters.
    Named(&'static str, Vec<Type>),
    /// The type of the objects that a schema describes.
    Object(Arc<ObjectType>),
    /// A type that other parts of the expression determine.
    Variable(usize),
}

/// The fields of objects, by their names in expressions.
#[derive(Debug)]
pub(super) struct ObjectType {
    pub(super) name: String,
    pub(super) fields: BTreeMap<String, Type>,
}

/// Two schemas describe two types, also if their fields are equal.
impl PartialEq for ObjectType {
    fn eq(&self, other: &ObjectType) -> bool {
        std::ptr::eq(self, other)
    }
}

/// The known types of the variables.
#[derive(Clone, Debug, Default)]
pub(super) struct Substitutions(Vec<Option<Type>>);

impl Type {
    /// The type of values whose type is known only at run time. A part with an error has it too.
    pub(super) const DYNAMIC: Type = Type::named("dyn");

    pub(super) const fn named(name: &'static str) -> Type {
        Type::Named(name, Vec::new())
    }

    /// Parses a type such as `map(string, A)`.
    pub(super) fn parse(text: &'static str) -> Type {
        match text.split_once('(') {
            Some((name, rest)) => Type::Named(name, Type::parse_list(rest.strip_suffix(')').unwrap_or(rest))),
            None => Type::named(text),
        }
    }

    /// Parses types with commas between them.
    pub(super) fn parse_list(text: &'static str) -> Vec<Type> {
        let (mut types, mut depth, mut begin) = (Vec::new(), 0, 0);
        for (index, letter) in text.char_indices() {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    types.push(Type::parse(text[begin..index].trim()));
                    begin = index + 1;
                }
                _ => {}
            }
        }
        if !text[begin..].trim().is_empty() {
            types.push(Type::parse(text[begin..].trim()));
        }
        types
    }

    pub(super) fn list(of: Type) -> Type {
        Type::Named("list", vec![of])
    }

    pub(super) fn optional(of: Type) -> Type {
        Type::Named("optional_type", vec![of])
    }

    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self, Type::Named(own, _) if *own == name)
    }

    fn is_object(&self) -> bool {
        match self {
            Type::Named(name, _) => name.starts_with("kubernetes.") || *name == "optional_type",
            Type::Object(_) => true,
            Type::Variable(_) => false,
        }
    }

    /// Replaces the parameters of a function, such as `A`, by variables.
    pub(super) fn instantiated(&self, variables: &[Type; 2]) -> Type {
        match self {
            Type::Named("A", _) => variables[0].clone(),
            Type::Named("B", _) => variables[1].clone(),
            Type::Named(name, parameters) => {
                Type::Named(name, parameters.iter().map(|it| it.instantiated(variables)).collect())
            }
            Type::Object(_) | Type::Variable(_) => self.clone(),
        }
    }

    fn contains(&self, variable: usize) -> bool {
        match self {
            Type::Named(_, parameters) => parameters.iter().any(|it| it.contains(variable)),
            Type::Object(_) => false,
            Type::Variable(own) => *own == variable,
        }
    }

    fn is_equal_or_less_specific(&self, than: &Type) -> bool {
        match (self, than) {
            (Type::Variable(_), _) => true,
            (own, _) if own.is("dyn") => true,
            (_, Type::Variable(_)) => false,
            (_, other) if other.is("dyn") => false,
            (Type::Named(own, parameters), Type::Named(other, others)) => {
                let pairs = || parameters.iter().zip(others);
                own == other
                    && (*own == "type" || pairs().all(|(it, other)| it.is_equal_or_less_specific(other)))
            }
            (own, other) => own == other,
        }
    }

    /// Returns the more general of two compatible types.
    pub(super) fn most_general(one: Type, other: Type) -> Type {
        if one.is_equal_or_less_specific(&other) { one } else { other }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Named(name, parameters) if parameters.is_empty() => f.write_str(name),
            Type::Named(name, parameters) => {
                let parameters: Vec<_> = parameters.iter().map(Type::to_string).collect();
                write!(f, "{name}({})", parameters.join(", "))
            }
            Type::Object(object) => f.write_str(&object.name),
            Type::Variable(_) => f.write_str("dyn"),
        }
    }
}

impl Substitutions {
    /// Returns a new variable.
    pub(super) fn variable(&mut self) -> Type {
        self.0.push(None);
        Type::Variable(self.0.len() - 1)
    }

    /// Replaces all known variables in a type.
    pub(super) fn apply(&self, to: &Type) -> Type {
        match to {
            Type::Variable(index) => match self.0.get(*index).and_then(Option::as_ref) {
                Some(known) => self.apply(known),
                None => to.clone(),
            },
            Type::Named(name, parameters) => {
                Type::Named(name, parameters.iter().map(|it| self.apply(it)).collect())
            }
            Type::Object(_) => to.clone(),
        }
    }

    /// Replaces all variables in a type; an unknown one by `dyn`.
    pub(super) fn resolved(&self, of: &Type) -> Type {
        match self.apply(of) {
            Type::Variable(_) => Type::DYNAMIC,
            Type::Named(name, parameters) => {
                Type::Named(name, parameters.iter().map(|it| self.resolved(it)).collect())
            }
            object @ Type::Object(_) => object,
        }
    }

    /// Returns whether values of the first types can be used as the others. Records the variables' types if so.
    pub(super) fn assign(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut changed = self.clone();
        let assigned = changed.assign_all(from, to);
        if assigned {
            *self = changed;
        }
        assigned
    }

    fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.assign_one(from, to))
    }

    fn assign_one(&mut self, from: &Type, to: &Type) -> bool {
        match (from, to) {
            (one, other) if one == other => true,
            (known, Type::Variable(index)) | (Type::Variable(index), known) => self.bind(*index, known),
            (one, other) if one.is("dyn") || other.is("dyn") => true,
            (one, other) if one.is("null_type") => other.is_object(),
            (one, other) if other.is("null_type") => one.is_object(),
            (Type::Named(one, from), Type::Named(other, to)) => {
                one == other && (*one == "type" || self.assign_all(from, to))
            }
            _ => false,
        }
    }

    /// Determines a variable; if it is known, the types must be compatible.
    fn bind(&mut self, index: usize, to: &Type) -> bool {
        let to = self.apply(to);
        let bound = match self.0[index].clone() {
            Some(known) if !self.assign_one(&to, &known) => return false,
            Some(known) => Type::most_general(to, known),
            None => to,
        };
        if !self.apply(&bound).contains(index) {
            self.0[index] = Some(bound);
            return true;
        }
        bound == Type::Variable(index)
    }
}
