//! Checks bodies before decoding: duplicate fields, and Go's messages for invalid JSON.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A parsed body.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// Parsed value; the last value of a duplicate field.
    pub value: Value,
    /// Paths of the duplicate fields in the order of the body, without repetition, at most 100.
    pub duplicates: Vec<String>,
}

/// Parses JSON. Invalid UTF-8 becomes replacement characters, as in Go.
///
/// # Errors
///
/// Returns the message of Go's decoder, such as `unexpected end of JSON input`.
pub fn parse(body: &[u8]) -> Result<Parsed, String> {
    let text = String::from_utf8_lossy(body);
    let mut reader = serde_json::Deserializer::from_str(&text);
    let mut seed = ParsePosition { path: String::new(), duplicates: Vec::new(), all: None };
    let value = (&mut seed).deserialize(&mut reader);
    match value.and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok(Parsed { value, duplicates: seed.duplicates }),
        Err(error) => {
            Err(SyntaxScanner { body: text.as_bytes(), at: 0 }.fault().unwrap_or_else(|| error.to_string()))
        }
    }
}

/// Returns the message of Go's decoder for text that is not JSON.
pub fn syntax_error(body: &[u8]) -> Option<String> {
    SyntaxScanner { body, at: 0 }.fault()
}

/// Returns the message that rejects a body that is not an object with a kind (400, `BadRequest`). `why` is the error of
/// [`parse`] or [`version_and_kind`].
pub fn unrecognized(kind: &str, body: &[u8], why: &str) -> String {
    /// Maximum length of the quoted body.
    const LENGTH: usize = 30;
    let start = body.get(..LENGTH).unwrap_or(body);
    let mut quoted = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }),
    };
    if body.len() > LENGTH {
        quoted.push_str(" ...");
    }
    format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} \
         ({quoted})"
    )
}

/// Returns the API version and the kind in a body.
///
/// # Errors
///
/// Returns the message of Go's decoder if they are not strings, or if the body is not an object.
pub fn version_and_kind(value: &Value) -> Result<(Option<&str>, Option<&str>), String> {
    let fields = match value {
        Value::Null => return Ok((None, None)),
        Value::Object(fields) => fields,
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                kind_of(other)
            ));
        }
    };
    let text = |field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field .{field} of type string",
            kind_of(other)
        )),
    };
    Ok((text("apiVersion")?, text("kind")?))
}

/// Returns the name of a value's type in Go's decoder.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats a decoded value as Go prints it.
pub fn go_text(shown: &Value) -> String {
    fn fields(fields: &Map<String, Value>) -> String {
        let fields: Vec<_> = fields.iter().map(|(name, it)| format!("{name}:{}", go_text(it))).collect();
        format!("map[{}]", fields.join(" "))
    }
    match shown {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(it) => fields(it),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        other => other.to_string(),
    }
}

/// Current path, and the duplicates found so far.
struct ParsePosition {
    path: String,
    duplicates: Vec<String>,
    /// Paths of all fields; `None` if the caller does not need them.
    all: Option<Vec<String>>,
}

impl ParsePosition {
    fn found_twice(&mut self) {
        /// Maximum number of duplicates that upstream reports.
        const MAX_DUPLICATES: usize = 100;
        if self.duplicates.len() < MAX_DUPLICATES && !self.duplicates.contains(&self.path) {
            self.duplicates.push(self.path.clone());
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut ParsePosition {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut ParsePosition {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is too large"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let length = self.path.len();
        let mut list = Vec::new();
        loop {
            let _ = write!(self.path, "[{}]", list.len());
            let item = items.next_element_seed(&mut *self)?;
            self.path.truncate(length);
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let length = self.path.len();
        let mut fields = Map::new();
        while let Some(field) = entries.next_key::<String>()? {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&field);
            if let Some(all) = &mut self.all {
                all.push(self.path.clone());
            }
            let value = entries.next_value_seed(&mut *self)?;
            if fields.contains_key(&field) {
                self.found_twice();
            }
            fields.insert(field, value);
            self.path.truncate(length);
        }
        if self.path.len() == length {
            Ok(Value::Object(fields))
        } else {
            Err(A::Error::custom("the path is lost"))
        }
    }
}

/// Returns the paths of all fields in the order of the body.
pub fn fields_in_order(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let mut reader = serde_json::Deserializer::from_str(&text);
    let mut seed = ParsePosition { path: String::new(), duplicates: Vec::new(), all: Some(Vec::new()) };
    // A body that is not JSON has no order.
    let _ = (&mut seed).deserialize(&mut reader);
    seed.all.unwrap_or_default()
}

/// Finds the first syntax error in a body, with the messages of Go's scanner.
struct SyntaxScanner<'a> {
    body: &'a [u8],
    at: usize,
}

/// Maximum nesting of lists and objects: the limit of `serde_json`; Go allows 10,000.
///
/// The limit bounds every recursion over client data, here and in other crates. JSON patches can nest values deeper
/// after parsing and check the same limit. YAML and protobuf readers have their own limits, and storage rejects values
/// that its readers could not decode.
const DEPTH: usize = 127;

impl SyntaxScanner<'_> {
    fn fault(mut self) -> Option<String> {
        let fault = self.value(0).and_then(|()| match self.peek() {
            None => Ok(()),
            Some(byte) => Err(unexpected(byte, "after top-level value")),
        });
        fault.err()
    }

    /// Returns the next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.body.get(self.at) {
            self.at += 1;
        }
        self.body.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.body.get(self.at).copied().ok_or("unexpected end of JSON input")?;
        self.at += 1;
        Ok(byte)
    }

    /// Returns the next byte of a token, or a space at the end of the body, with which Go's scanner ends tokens.
    fn inside(&mut self) -> u8 {
        let byte = self.body.get(self.at).copied().unwrap_or(b' ');
        self.at += 1;
        byte
    }

    fn token(&mut self) -> Result<u8, String> {
        self.peek();
        self.next()
    }

    fn value(&mut self, depth: usize) -> Result<(), String> {
        match self.token()? {
            b'{' | b'[' if depth >= DEPTH => Err("exceeded max depth".to_owned()),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            digit @ (b'-' | b'0'..=b'9') => self.number(digit),
            other => Err(unexpected(other, "looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), String> {
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            match self.token()? {
                b'"' => self.string()?,
                other => return Err(unexpected(other, "looking for beginning of object key string")),
            }
            match self.token()? {
                b':' => self.value(depth + 1)?,
                other => return Err(unexpected(other, "after object key")),
            }
            match self.token()? {
                b',' => {}
                b'}' => return Ok(()),
                other => return Err(unexpected(other, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            match self.token()? {
                b',' => {}
                b']' => return Ok(()),
                other => return Err(unexpected(other, "after array element")),
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.inside() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.inside();
                            if !digit.is_ascii_hexdigit() {
                                return Err(unexpected(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    other => return Err(unexpected(other, "in string escape code")),
                },
                control @ 0..=0x1f => return Err(unexpected(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        for expected in literal.bytes().skip(1) {
            let byte = self.inside();
            if byte != expected {
                let context = format!("in literal {literal} (expecting {})", quoted(expected));
                return Err(unexpected(byte, &context));
            }
        }
        Ok(())
    }

    fn number(&mut self, mut digit: u8) -> Result<(), String> {
        if digit == b'-' {
            digit = self.inside();
            if !digit.is_ascii_digit() {
                return Err(unexpected(digit, "in numeric literal"));
            }
        }
        if digit != b'0' {
            self.digits();
        }
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.expect_digit("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.body.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.body.get(self.at) {
                self.at += 1;
            }
            self.expect_digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn expect_digit(&mut self, context: &str) -> Result<(), String> {
        let byte = self.inside();
        if !byte.is_ascii_digit() {
            return Err(unexpected(byte, context));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.body.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }
}

fn unexpected(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted(byte))
}

/// Returns a byte as Go quotes it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        0..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0x9f | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}
