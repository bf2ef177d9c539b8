//! Label selectors in query format: `a=b,c!=d,e in (x,y),!f,g,h>3`.
//!
//! Guarantee: error messages are those of upstream.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::status::Status;

/// A parsed label selector. The default selects all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Parses the selector of a request.
    ///
    /// # Errors
    /// 400, with the upstream message.
    pub fn parse(text: &str) -> Result<LabelSelector, Status> {
        let mut parser = Parser { tokens: scan(text), next: 0 };
        parser.selector().map(|requirements| LabelSelector { requirements }).map_err(Status::bad_request)
    }

    /// Returns whether the selector selects all objects.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the selector matches these labels; `None` for an object without labels.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.requirements.iter().all(|it| {
            let value = labels.and_then(|labels| labels.get(&it.key)).and_then(Value::as_str);
            it.test.passes(value)
        })
    }
}

/// Writes the selector in query format, sorted by key.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { key, test }) in self.requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match test {
                Test::In(values) => write!(f, "{comma}{key} in ({})", listed(values))?,
                Test::NotIn(values) => write!(f, "{comma}{key} notin ({})", listed(values))?,
                Test::Exists => write!(f, "{comma}{key}")?,
                Test::Missing => write!(f, "{comma}!{key}")?,
                Test::Greater(bound) => write!(f, "{comma}{key}>{bound}")?,
                Test::Less(bound) => write!(f, "{comma}{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn listed(values: &BTreeSet<String>) -> String {
    values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

impl Test {
    fn passes(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|it| it.parse::<i64>().ok());
        match self {
            Test::In(values) => value.is_some_and(|it| values.contains(it)),
            Test::NotIn(values) => value.is_none_or(|it| !values.contains(it)),
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|it| it > *bound),
            Test::Less(bound) => number().is_some_and(|it| it < *bound),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Identifier,
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Not,
    Comma,
    Open,
    Close,
    End,
}

#[derive(Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

fn scan(text: &str) -> Vec<Token<'_>> {
    const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
    const SYMBOLS: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];
    const KINDS: [(&str, Kind); 9] = [
        ("==", Kind::DoubleEquals),
        ("!=", Kind::NotEquals),
        ("=", Kind::Equals),
        ("!", Kind::Not),
        ("(", Kind::Open),
        (")", Kind::Close),
        (",", Kind::Comma),
        (">", Kind::Greater),
        ("<", Kind::Less),
    ];
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start_matches(SPACE));
    while !rest.is_empty() {
        let symbol = KINDS.iter().find(|(symbol, _)| rest.starts_with(symbol));
        let (kind, length) = match symbol {
            Some((symbol, kind)) => (*kind, symbol.len()),
            None => {
                let end = |it: char| SPACE.contains(&it) || SYMBOLS.contains(&it);
                let length = rest.find(end).unwrap_or(rest.len());
                match &rest[..length] {
                    "in" => (Kind::In, length),
                    "notin" => (Kind::NotIn, length),
                    _ => (Kind::Identifier, length),
                }
            }
        };
        let (text, behind) = rest.split_at(length);
        tokens.push(Token { kind, text });
        rest = behind.trim_start_matches(SPACE);
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

type Parsed<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn selector(&mut self) -> Parsed<Vec<Requirement>> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Kind::Identifier | Kind::Not, _) => {}
                (Kind::End, _) => break,
                (_, text) => {
                    return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
                }
            }
            let requirement =
                self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            match self.take() {
                (Kind::End, _) => break,
                (Kind::Comma, _) => match self.peek() {
                    (Kind::Identifier | Kind::Not, _) => {}
                    (_, text) => return Err(format!("found '{text}', expected: identifier after ','")),
                },
                (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
            }
        }
        requirements.sort_by(|one, two| one.key.cmp(&two.key));
        Ok(requirements)
    }

    fn requirement(&mut self) -> Parsed<Requirement> {
        let (mut kind, mut key) = self.take();
        let negated = kind == Kind::Not;
        if negated {
            (kind, key) = self.take();
        }
        if kind != Kind::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check_key(key, "<nil>")?;
        let alone = matches!(self.peek().0, Kind::End | Kind::Comma);
        if negated || alone {
            // The caller rejects every token except a comma after a negated key.
            let test = if negated { Test::Missing } else { Test::Exists };
            return Ok(Requirement { key: key.to_owned(), test });
        }
        let (operator, text) = self.take_operator();
        let values = match operator {
            Kind::In | Kind::NotIn => self.values()?,
            Kind::Equals | Kind::DoubleEquals | Kind::NotEquals | Kind::Greater | Kind::Less => {
                self.value()?
            }
            _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let test = test(operator, key, values)?;
        Ok(Requirement { key: key.to_owned(), test })
    }

    fn values(&mut self) -> Parsed<BTreeSet<String>> {
        let (kind, text) = self.take();
        if kind != Kind::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        match self.peek() {
            (Kind::Identifier | Kind::Comma, _) => {
                let first = self.peek().1;
                let values = self.value_list()?;
                match self.take().0 {
                    Kind::Close => Ok(values),
                    _ => Err(format!("found '{first}', expected: ')'")),
                }
            }
            (Kind::Close, _) => {
                self.take();
                Ok(BTreeSet::from([String::new()]))
            }
            (_, text) => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    /// Parses the values between parentheses. A missing value is the empty one.
    fn value_list(&mut self) -> Parsed<BTreeSet<String>> {
        let mut values = BTreeSet::new();
        loop {
            match self.take() {
                (Kind::Identifier, value) => {
                    values.insert(value.to_owned());
                    match self.peek() {
                        (Kind::Comma, _) => {}
                        (Kind::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Kind::Comma, _) => {
                    let next = self.peek().0;
                    if values.is_empty() || matches!(next, Kind::Close | Kind::Comma) {
                        values.insert(String::new());
                    }
                    if next == Kind::Close {
                        return Ok(values);
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn value(&mut self) -> Parsed<BTreeSet<String>> {
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.take() {
            (Kind::Identifier, value) => Ok(BTreeSet::from([value.to_owned()])),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    /// Returns the next token, with `in` and `notin` as identifiers.
    fn peek(&self) -> (Kind, &'a str) {
        match self.tokens.get(self.next) {
            Some(Token { kind: Kind::In | Kind::NotIn, text }) => (Kind::Identifier, text),
            Some(token) => (token.kind, token.text),
            None => (Kind::End, ""),
        }
    }

    fn take(&mut self) -> (Kind, &'a str) {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Returns the next token, with `in` and `notin` as operators.
    fn take_operator(&mut self) -> (Kind, &'a str) {
        let token = self.tokens.get(self.next).map_or((Kind::End, ""), |token| (token.kind, token.text));
        self.next += 1;
        token
    }
}

fn test(operator: Kind, key: &str, values: BTreeSet<String>) -> Parsed<Test> {
    let mut wrong = Vec::new();
    let bound = values.first().and_then(|it| it.parse::<i64>().ok());
    if let (Kind::Greater | Kind::Less, None) = (operator, bound) {
        let value = values.first().map_or("", String::as_str);
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        wrong.push(format!("values[0]: Invalid value: {value:?}: {why}"));
    }
    for (at, value) in values.iter().enumerate() {
        if let Some(why) = value_errors(value) {
            wrong.push(format!("values[{at}][{key}]: Invalid value: {value:?}: {why}"));
        }
    }
    match wrong.as_slice() {
        [] => {}
        [one] => return Err(one.clone()),
        many => return Err(format!("[{}]", many.join(", "))),
    }
    Ok(match operator {
        Kind::Greater => Test::Greater(bound.unwrap_or_default()),
        Kind::Less => Test::Less(bound.unwrap_or_default()),
        Kind::NotIn | Kind::NotEquals => Test::NotIn(values),
        _ => Test::In(values),
    })
}

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

fn check_key(key: &str, field: &str) -> Parsed<()> {
    let mut wrong = Vec::new();
    let parts: Vec<_> = key.split('/').collect();
    let name = match *parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            wrong.extend(prefix_errors(prefix).into_iter().map(|it| format!("prefix part {it}")));
            name
        }
        _ => {
            let why = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return Err(format!("{field}: Invalid value: {key:?}: a valid label key {NAME} {why}"));
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        wrong.push(format!("name part {NAME}"));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{field}: Invalid value: {key:?}: {}", wrong.join("; "))),
    }
}

fn prefix_errors(prefix: &str) -> Vec<&'static str> {
    const FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
        '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if prefix.is_empty() {
        return vec!["must be non-empty"];
    }
    let mut wrong = Vec::new();
    if prefix.len() > 253 {
        wrong.push("must be no more than 253 bytes");
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |it: &str| !it.is_empty() && it.bytes().all(inner) && !it.starts_with('-') && !it.ends_with('-');
    if !prefix.split('.').all(label) {
        wrong.push(FORM);
    }
    wrong
}

fn value_errors(value: &str) -> Option<String> {
    const FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
        and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
        used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_name(value) {
        wrong.push(FORM);
    }
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.bytes().all(inner) && ends(text.as_bytes().first()) && ends(text.as_bytes().last())
}
