//! Parser for the query parameter `shardSelector`, compatible with API servers.
//!
//! The language is a subset of CEL: calls of `shardRange(field, start, end)`, joined by `||`. The parser rejects the
//! same texts as API servers, with the same messages. It does not support CEL's escapes and raw strings.

use std::{fmt, str::FromStr};

use windlass_object::shard::{HashRange, ShardField, parse_bound};

/// A shard selector: selects objects whose field hashes into one of the ranges.
///
/// Servers keep the ranges in their original order and return them in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSelector {
    /// Hashed field.
    pub field: ShardField,
    /// Hash ranges: at least one, in any order.
    pub ranges: Vec<HashRange>,
}

impl ShardSelector {
    /// Returns whether an object whose field has this hash is selected.
    pub fn selects(&self, hash: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(hash))
    }
}

/// Writes the selector in the canonical form of API servers.
impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field.as_str();
        for (at, range) in self.ranges.iter().enumerate() {
            let or = if at == 0 { "" } else { " || " };
            write!(f, "{or}shardRange({field}, '{:#018x}', '{:#018x}')", range.start(), range.end())?;
        }
        Ok(())
    }
}

impl FromStr for ShardSelector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Err(ParseSelectorError::Nothing);
        }
        let mut reader = Reader { tokens: &tokens };
        let expression = reader.expression(NESTING)?;
        if let Some(token) = reader.tokens.first() {
            return Err(token.unexpected());
        }
        let mut requirements = Vec::new();
        requirements_of(expression, &mut requirements)?;
        let field = requirements.first().map_or(ShardField::Namespace, |(field, _)| *field);
        if let Some((other, _)) = requirements.iter().find(|(other, _)| *other != field) {
            return Err(ParseSelectorError::Fields { first: field.as_str(), other: other.as_str() });
        }
        Ok(Self { field, ranges: requirements.into_iter().map(|(_, range)| range).collect() })
    }
}

/// The error for an invalid selector, with the message of API servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSelectorError {
    /// The selector is empty.
    #[error("empty shard selector is not allowed; omit the parameter for unfiltered lists")]
    Nothing,
    /// The text is not a valid expression.
    #[error("CEL parse error: Syntax error: {0}")]
    Syntax(String),
    /// Another function is called.
    #[error("unsupported function {0:?}; only shardRange() and || are allowed")]
    Function(String),
    /// The expression is not a call.
    #[error("unexpected expression kind {0}; expected shardRange() call or || operator")]
    NotACall(u8),
    /// The number of arguments is wrong.
    #[error("shardRange() requires exactly 3 arguments, got {0}")]
    Arguments(usize),
    /// The first argument is not a field.
    #[error(
        "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind {0}"
    )]
    NotAField(u8),
    /// The field is neither namespace nor uid.
    #[error("unsupported field path {0:?}; supported: object.metadata.uid, object.metadata.namespace")]
    Field(String),
    /// A bound is not a string.
    #[error("{which} must be a string literal{found}")]
    NotAText {
        /// `hexStart` or `hexEnd`.
        which: &'static str,
        /// Type of the value.
        found: String,
    },
    /// A bound has the wrong format.
    #[error("{which}{wrong}")]
    Bound {
        /// `hexStart` or `hexEnd`.
        which: &'static str,
        /// Description of the error.
        wrong: String,
    },
    /// The end is not greater than the start.
    #[error("shard range start {start} must be less than end {end}")]
    Order {
        /// Start as written.
        start: String,
        /// End as written.
        end: String,
    },
    /// One selector names two fields.
    #[error("all shard ranges must use the same field, got {first:?} and {other:?}")]
    Fields {
        /// First field.
        first: &'static str,
        /// Other field.
        other: &'static str,
    },
}

/// Maximum nesting of parentheses.
const NESTING: usize = 64;

#[derive(Debug)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Number(&'a str),
    Sign(&'a str),
}

impl Token<'_> {
    fn is(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(found) if *found == sign)
    }

    /// Returns the error for this token. CEL's operators are unsupported functions; all other tokens are syntax
    /// errors.
    fn unexpected(&self) -> ParseSelectorError {
        match self {
            Token::Sign(sign) if OPERATORS.contains(sign) => {
                ParseSelectorError::Function(format!("_{sign}_"))
            }
            Token::Word(text) | Token::Text(text) | Token::Number(text) | Token::Sign(text) => {
                ParseSelectorError::Syntax(format!("unexpected {text:?}"))
            }
        }
    }
}

/// A sign comes before its own prefixes.
const SIGNS: [&str; 18] =
    ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", "!"];
const OPERATORS: [&str; 12] = ["&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"];

fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseSelectorError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first == '\'' || first == '"' {
            let within = &rest[1..];
            let unclosed = || ParseSelectorError::Syntax("a text without an end".into());
            let length = within.find(first).ok_or_else(unclosed)?;
            if within[..length].contains(['\\', '\n', '\r']) {
                return Err(ParseSelectorError::Syntax("an escape or a line's end in a text".into()));
            }
            (Token::Text(&within[..length]), length + 2)
        } else if first.is_ascii_digit() {
            let length = rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '.').unwrap_or(rest.len());
            (Token::Number(&rest[..length]), length)
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap_or(rest.len());
            (Token::Word(&rest[..length]), length)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            return Err(ParseSelectorError::Syntax(format!("unexpected {first:?}")));
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// An expression, as far as a selector needs it.
#[derive(Debug)]
enum Expression<'a> {
    Or(Vec<Expression<'a>>),
    Call(&'a str, Vec<Expression<'a>>),
    Path(Vec<&'a str>),
    Text(&'a str),
    /// Another literal, by the type of its value.
    Literal(&'static str),
}

impl Expression<'_> {
    /// Returns CEL's number of the expression kind, which servers' messages contain.
    fn kind(&self) -> u8 {
        match self {
            Expression::Or(_) | Expression::Call(..) => 1,
            Expression::Path(names) if names.len() == 1 => 3,
            Expression::Text(_) | Expression::Literal(_) => 5,
            Expression::Path(_) => 7,
        }
    }
}

struct Reader<'t, 'a> {
    tokens: &'t [Token<'a>],
}

impl<'t, 'a> Reader<'t, 'a> {
    fn expression(&mut self, depth: usize) -> Result<Expression<'a>, ParseSelectorError> {
        let first = self.operand(depth)?;
        if !self.takes("||") {
            return Ok(first);
        }
        let mut any = vec![first, self.operand(depth)?];
        while self.takes("||") {
            any.push(self.operand(depth)?);
        }
        Ok(Expression::Or(any))
    }

    fn operand(&mut self, depth: usize) -> Result<Expression<'a>, ParseSelectorError> {
        let deeper =
            depth.checked_sub(1).ok_or_else(|| ParseSelectorError::Syntax("nested too deeply".into()))?;
        match self.next()? {
            Token::Text(text) => Ok(Expression::Text(text)),
            Token::Number(digits) if digits.contains('.') => Ok(Expression::Literal("float64")),
            Token::Number(_) => Ok(Expression::Literal("int64")),
            Token::Word("true" | "false") => Ok(Expression::Literal("bool")),
            Token::Word(name) if self.takes("(") => Ok(Expression::Call(name, self.arguments(deeper)?)),
            Token::Word(name) => self.path(name),
            token @ Token::Sign(_) if token.is("(") => {
                let within = self.expression(deeper)?;
                self.expect(")").map(|()| within)
            }
            token @ Token::Sign(_) => Err(token.unexpected()),
        }
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<Expression<'a>>, ParseSelectorError> {
        let mut arguments = Vec::new();
        if self.takes(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression(depth)?);
            if !self.takes(",") {
                return self.expect(")").map(|()| arguments);
            }
        }
    }

    fn path(&mut self, first: &'a str) -> Result<Expression<'a>, ParseSelectorError> {
        let mut names = vec![first];
        while self.takes(".") {
            match self.next()? {
                Token::Word(name) => names.push(name),
                token => return Err(token.unexpected()),
            }
        }
        Ok(Expression::Path(names))
    }

    fn next(&mut self) -> Result<&'t Token<'a>, ParseSelectorError> {
        let ended = || ParseSelectorError::Syntax("mismatched input '<EOF>'".into());
        let (first, rest) = self.tokens.split_first().ok_or_else(ended)?;
        self.tokens = rest;
        Ok(first)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let there = self.tokens.first().is_some_and(|token| token.is(sign));
        if there {
            self.tokens = &self.tokens[1..];
        }
        there
    }

    fn expect(&mut self, sign: &str) -> Result<(), ParseSelectorError> {
        let token = self.next()?;
        if token.is(sign) { Ok(()) } else { Err(token.unexpected()) }
    }
}

fn requirements_of(
    expression: Expression<'_>,
    requirements: &mut Vec<(ShardField, HashRange)>,
) -> Result<(), ParseSelectorError> {
    match expression {
        Expression::Or(any) => any.into_iter().try_for_each(|one| requirements_of(one, requirements)),
        Expression::Call("shardRange", arguments) => {
            requirements.push(requirement(&arguments)?);
            Ok(())
        }
        Expression::Call(name, _) => Err(ParseSelectorError::Function(name.into())),
        other => Err(ParseSelectorError::NotACall(other.kind())),
    }
}

fn requirement(arguments: &[Expression<'_>]) -> Result<(ShardField, HashRange), ParseSelectorError> {
    let [field, start, end] = arguments else { return Err(ParseSelectorError::Arguments(arguments.len())) };
    let field = match field {
        Expression::Path(names) => names.join("."),
        other => return Err(ParseSelectorError::NotAField(other.kind())),
    };
    let known = [ShardField::Uid, ShardField::Namespace].into_iter().find(|it| it.as_str() == field);
    let field = known.ok_or(ParseSelectorError::Field(field))?;
    let (start, start_text) = written_bound("hexStart", start)?;
    let (end, end_text) = written_bound("hexEnd", end)?;
    let start = u64::try_from(start).ok().and_then(|start| HashRange::new(start, end));
    let range =
        start.ok_or_else(|| ParseSelectorError::Order { start: start_text.into(), end: end_text.into() })?;
    Ok((field, range))
}

fn written_bound<'a>(
    which: &'static str,
    expression: &Expression<'a>,
) -> Result<(u128, &'a str), ParseSelectorError> {
    let text = match expression {
        Expression::Text(text) => *text,
        Expression::Literal(kind) => {
            return Err(ParseSelectorError::NotAText { which, found: format!(", got {kind}") });
        }
        other => {
            let found = format!(" (e.g. '0xff'), got expression kind {}", other.kind());
            return Err(ParseSelectorError::NotAText { which, found });
        }
    };
    let wrong = || ParseSelectorError::Bound { which, wrong: wrong_with(text) };
    parse_bound(text).map(|bound| (bound, text)).ok_or_else(wrong)
}

/// Returns the error message for an invalid bound.
fn wrong_with(text: &str) -> String {
    let Some(digits) = text.strip_prefix("0x") else {
        return format!(" must have '0x' prefix, got {text:?}");
    };
    let invalid_digit = digits.chars().find(|it| !matches!(it, '0'..='9' | 'a'..='f'));
    match (digits.len(), invalid_digit) {
        (0, _) => ": hex value is required after '0x'".into(),
        (length @ 18.., _) => format!(": hex value too long ({length} chars, max 17): {digits:?}"),
        (_, Some(digit)) => format!(": invalid hex character {:?} in {text:?}", digit.to_string()),
        (17, None) => format!(": 17-digit hex value must be '0x10000000000000000' (2^64), got {text:?}"),
        (_, None) => {
            let meant = format!("0x{digits:0>16}");
            format!(" must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean {meant:?}?)")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZERO: &str = "0x0000000000000000";
    const HALF: &str = "0x8000000000000000";
    const END: &str = "0x10000000000000000";

    fn parsed(text: &str) -> Result<ShardSelector, ParseSelectorError> {
        text.parse()
    }

    fn any_selector() -> impl Strategy<Value = ShardSelector> {
        let range = (0u64..u64::MAX, 1u128..(1 << 64))
            .prop_filter_map("a range", |(start, width)| HashRange::new(start, u128::from(start) + width));
        let field = prop_oneof![Just(ShardField::Namespace), Just(ShardField::Uid)];
        (field, prop::collection::vec(range, 1..4))
            .prop_map(|(field, ranges)| ShardSelector { field, ranges })
    }

    proptest! {
        #[test]
        fn displayed_shard_selector_parses_to_itself(selector in any_selector()) {
            prop_assert_eq!(parsed(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn shard_selector_parser_never_panics(text in "[a-z(),.'\" |&0-9x!-]{0,60}") {
            let _ = parsed(&text);
        }
    }

    #[test]
    fn spaces_quotes_and_parentheses_do_not_change_the_selector() {
        let plain = format!("shardRange(object.metadata.uid, '{ZERO}', '{HALF}')");
        let odd = format!("  (( shardRange(object . metadata\n.uid,\"{ZERO}\" ,'{HALF}' )))\t");
        assert_eq!(parsed(&odd).unwrap().to_string(), plain);
        let both = parsed(&format!("({plain} || {plain}) || {plain}")).unwrap();
        assert_eq!(both.ranges.len(), 3);
    }

    // parity: sharded-list-watch-gate
    #[test]
    fn invalid_shard_selectors_get_api_server_messages() {
        let uid = "object.metadata.uid";
        let call = |field: &str, start: &str, end: &str| format!("shardRange({field}, {start}, {end})");
        let text = |it: &str| format!("'{it}'");
        let cases = [
            (" ".to_owned(), "empty shard selector is not allowed; omit the parameter for unfiltered lists"),
            (
                call(uid, "'0x0'", &text(HALF)),
                "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
            ),
            (
                call(uid, &text(ZERO), "'0xff'"),
                "hexEnd must be a 0x-prefixed 16-digit hex value, got \"0xff\" (did you mean \"0x00000000000000ff\"?)",
            ),
            (call(uid, "'0'", "'1'"), "hexStart must have '0x' prefix, got \"0\""),
            (call(uid, "'0x'", "'1'"), "hexStart: hex value is required after '0x'"),
            (call(uid, "'0x0g'", "'1'"), "hexStart: invalid hex character \"g\" in \"0x0g\""),
            (
                call(uid, "'0x000000000000000000'", "'1'"),
                "hexStart: hex value too long (18 chars, max 17): \"000000000000000000\"",
            ),
            (
                call(uid, &text(ZERO), "'0x20000000000000000'"),
                "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
            ),
            (call(uid, "0", "8"), "hexStart must be a string literal, got int64"),
            (
                call(uid, "hex(0)", "8"),
                "hexStart must be a string literal (e.g. '0xff'), got expression kind 1",
            ),
            (
                call(uid, &text(HALF), &text(HALF)),
                "shard range start 0x8000000000000000 must be less than end 0x8000000000000000",
            ),
            (
                call(uid, &text(END), &text(HALF)),
                "shard range start 0x10000000000000000 must be less than end 0x8000000000000000",
            ),
            (
                call("object.metadata.name", "'0x00'", "'0x80'"),
                "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace",
            ),
            (
                call("'uid'", "'0x00'", "'0x80'"),
                "shardRange() first argument: expected field path (e.g. object.metadata.uid), got expression kind 5",
            ),
            (format!("shardRange({uid}, '0x0')"), "shardRange() requires exactly 3 arguments, got 2"),
            (
                call(uid, "'a'", "'b'").replace("shard", "other"),
                "unsupported function \"otherRange\"; only shardRange() and || are allowed",
            ),
            (
                format!("{} && {}", call(uid, "'a'", "'b'"), call(uid, "'a'", "'b'")),
                "unsupported function \"_&&_\"; only shardRange() and || are allowed",
            ),
            (format!("{uid} > '0x0'"), "unsupported function \"_>_\"; only shardRange() and || are allowed"),
            (uid.to_owned(), "unexpected expression kind 7; expected shardRange() call or || operator"),
            (
                format!(
                    "{} || {}",
                    call(uid, &text(ZERO), &text(HALF)),
                    call("object.metadata.namespace", &text(HALF), &text(END))
                ),
                "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
            ),
        ];
        for (written, message) in cases {
            assert_eq!(parsed(&written).unwrap_err().to_string(), message, "{written}");
        }
    }

    #[test]
    fn invalid_expressions_are_rejected_at_any_depth() {
        for broken in ["shardRange(", "'", "||", "a ||", "(a", "a b", "a.", "shardRange(a,)", "#"] {
            assert!(matches!(parsed(broken).unwrap_err(), ParseSelectorError::Syntax(_)), "{broken}");
        }
        assert!(parsed(&"(".repeat(100_000)).is_err());
    }
}
