//! The values of fields, read without a conversion of the object.

use jiff::Timestamp;
use serde_json::value::RawValue;
use windlass_kinds::{Cardinality, Field, FieldType, Message};

use super::reader::{self, Fields, Value};
use super::transcode::{Writer, find, is_empty};
use super::{Envelope, ProtobufError, json};

/// A value that JSON contains and that is not null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldValue<'a> {
    of: FieldType,
    encoded: Encoded<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Encoded<'a> {
    One(Value<'a>),
    /// The values of a list, which follow each other as fields.
    List(&'a [u8]),
    /// The entries of a map, which follow each other as fields.
    Map(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    /// Returns an object as a value.
    pub(crate) fn object(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let envelope = Envelope::read(body)?;
        Ok(Self::one(FieldType::Message(envelope.message()?), Value::Bytes(envelope.raw)))
    }

    const fn one(of: FieldType, value: Value<'a>) -> Self {
        Self { of, encoded: Encoded::One(value) }
    }

    /// Returns a value; `None` if it is null in JSON.
    fn present(of: FieldType, value: Value<'a>) -> Result<Option<Self>, ProtobufError> {
        let is_null = match (of, value) {
            (FieldType::Time | FieldType::MicroTime, Value::Bytes(time)) => json::is_zero_time(time)?,
            _ => false,
        };
        Ok((!is_null).then_some(Self::one(of, value)))
    }

    /// Passes each wanted field of a message, or each wanted entry of a map, with its name. Fields that JSON lacks are
    /// omitted. The values of other fields are not read.
    pub(crate) fn each_field<E: From<ProtobufError>>(
        self,
        wanted: &dyn Fn(&str) -> bool,
        found: &mut dyn FnMut(&'a str, FieldValue<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        match (self.encoded, self.of) {
            (Encoded::One(Value::Bytes(bytes)), FieldType::Message(of)) => {
                each_field(of, bytes, wanted, found)
            }
            (Encoded::Map(entries), of) => each_entry(of, entries, wanted, found),
            _ => Err(ProtobufError::Malformed.into()),
        }
    }

    /// Passes each value of a list; `None` for null.
    pub(crate) fn each_element<E: From<ProtobufError>>(
        self,
        found: &mut dyn FnMut(Option<FieldValue<'a>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (bytes, of) = match (self.encoded, self.of) {
            (Encoded::List(bytes), of) => (bytes, of),
            (Encoded::One(Value::Bytes(bytes)), FieldType::Strings) => (bytes, FieldType::String),
            _ => return Err(ProtobufError::Malformed.into()),
        };
        let is_number = matches!(of, FieldType::Bool | FieldType::Int32 | FieldType::Int64);
        let is_text_message = matches!(self.encoded, Encoded::One(_));
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next()? {
            match value {
                // A newer server adds other fields.
                _ if is_text_message && number != 1 => {}
                Value::Bytes(packed) if is_number => {
                    let mut packed = Fields::new(packed);
                    while !packed.is_empty() {
                        found(Some(Self::one(of, Value::Varint(packed.packed_varint()?))))?;
                    }
                }
                value => found(Self::present(of, value)?)?,
            }
        }
        Ok(())
    }

    /// Returns text; `None` for values that are text only in JSON.
    pub(crate) fn text(self) -> Result<Option<&'a str>, ProtobufError> {
        match (self.of, self.encoded) {
            (FieldType::String, Encoded::One(Value::Bytes(text))) => reader::text(text).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns an integer; `None` for other types.
    pub(crate) fn integer(self) -> Option<i64> {
        match (self.of, self.encoded) {
            (FieldType::Int32, Encoded::One(Value::Varint(value))) => Some(json::int32(value).into()),
            (FieldType::Int64, Encoded::One(Value::Varint(value))) => Some(value.cast_signed()),
            _ => None,
        }
    }

    /// Returns a boolean; `None` for other types.
    pub(crate) fn boolean(self) -> Option<bool> {
        match (self.of, self.encoded) {
            (FieldType::Bool, Encoded::One(Value::Varint(value))) => Some(value != 0),
            _ => None,
        }
    }

    /// Returns a time in seconds; `None` for other types, and if the time is out of range.
    pub(crate) fn time(self) -> Result<Option<Timestamp>, ProtobufError> {
        match (self.of, self.encoded) {
            (FieldType::Time, Encoded::One(Value::Bytes(time))) => {
                let seconds = reader::number(time, 1)?.cast_signed();
                Ok(Timestamp::from_second(seconds).ok().filter(|_| seconds >= json::ZERO_TIME))
            }
            _ => Ok(None),
        }
    }

    /// Returns embedded JSON; empty bytes are null. `None` for other types.
    pub(crate) fn embedded(self) -> Result<Option<&'a RawValue>, ProtobufError> {
        let (FieldType::Json, Encoded::One(Value::Bytes(message))) = (self.of, self.encoded) else {
            return Ok(None);
        };
        match reader::bytes(message, 1)? {
            b"" => Ok(Some(RawValue::NULL)),
            raw => serde_json::from_slice(raw).map(Some).map_err(|_| ProtobufError::EmbeddedJson),
        }
    }

    /// Returns the value in JSON, of at most about `limit` bytes.
    pub(crate) fn json(self, limit: usize) -> Result<Vec<u8>, ProtobufError> {
        let mut json = Vec::new();
        let mut writer = Writer { json: &mut json, limit, drops_managed_fields: false, is_decodable: true };
        match self.encoded {
            Encoded::One(value) => writer.value(self.of, value, 0)?,
            Encoded::List(values) => writer.values(self.of, values)?,
            Encoded::Map(entries) => writer.entries(self.of, entries)?,
        }
        Ok(json)
    }
}

fn each_field<'a, E: From<ProtobufError>>(
    message: Message,
    bytes: &'a [u8],
    wanted: &dyn Fn(&str) -> bool,
    found: &mut dyn FnMut(&'a str, FieldValue<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let (known, mut seen, mut position) = (message.fields(), 0u128, 0);
    let (mut fields, mut start) = (Fields::new(bytes), bytes);
    while let Some((number, value)) = fields.next()? {
        let from = std::mem::replace(&mut start, fields.rest());
        let Some(index) = find(known, number, position) else { continue };
        position = index;
        let field = &known[index];
        if field.name().is_some_and(|name| !wanted(name)) {
            continue;
        }
        if seen & (1 << index) != 0 {
            return Err(ProtobufError::Repeated.into());
        }
        seen |= 1 << index;
        match (field.name(), field.field_type(), value) {
            (Some(name), ..) => {
                let value = value_of(field, value, from, &mut fields)?;
                start = fields.rest();
                value.map_or(Ok(()), |value| found(name, value))?;
            }
            (None, FieldType::Message(inlined), Value::Bytes(bytes)) => {
                each_field(inlined, bytes, wanted, found)?;
            }
            (None, ..) => return Err(ProtobufError::Malformed.into()),
        }
    }
    Ok(())
}

/// Returns the value of a field, of which the first value was read from the start of `from`. Reads the other values of
/// a list or a map.
fn value_of<'a>(
    field: &Field,
    first: Value<'a>,
    from: &'a [u8],
    fields: &mut Fields<'a>,
) -> Result<Option<FieldValue<'a>>, ProtobufError> {
    let (of, cardinality) = (field.field_type(), field.cardinality());
    if cardinality == Cardinality::One {
        let is_omitted = field.omits_empty() && is_empty(of, first)?;
        return if is_omitted { Ok(None) } else { FieldValue::present(of, first) };
    }
    while fields.next_of(field.number())?.is_some() {}
    let values = &from[..from.len() - fields.len()];
    let encoded = if cardinality == Cardinality::List { Encoded::List(values) } else { Encoded::Map(values) };
    Ok(Some(FieldValue { of, encoded }))
}

fn each_entry<'a, E: From<ProtobufError>>(
    of: FieldType,
    entries: &'a [u8],
    wanted: &dyn Fn(&str) -> bool,
    found: &mut dyn FnMut(&'a str, FieldValue<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let mut fields = Fields::new(entries);
    while let Some((_, value)) = fields.next()? {
        let Value::Bytes(entry) = value else { return Err(ProtobufError::Malformed.into()) };
        let key = reader::bytes(entry, 1)?;
        if std::str::from_utf8(key).is_ok_and(|key| !wanted(key)) {
            continue;
        }
        if let Some(value) = FieldValue::present(of, Value::Bytes(reader::bytes(entry, 2)?))? {
            found(reader::text(key)?, value)?;
        }
    }
    Ok(())
}
