//! The conversion of messages to JSON objects.

use windlass_kinds::{Cardinality, Field, FieldType, Message};

use super::reader::{self, Fields, Value};
use super::split::METADATA;
use super::{Envelope, ProtobufError, json};

/// Maximum nesting of messages, greater than that of any upstream message.
const MAX_DEPTH: usize = 64;
/// Nesting of the metadata of an object.
const METADATA_DEPTH: usize = 1;
/// Number of `managedFields` in the metadata.
pub(super) const MANAGED_FIELDS: u64 = 17;

/// The state of one conversion.
pub(super) struct Writer<'a> {
    pub(super) json: &'a mut Vec<u8>,
    /// Maximum length of `json`.
    pub(super) limit: usize,
    pub(super) drops_managed_fields: bool,
    /// Whether a type that is generated from upstream's descriptions is known to decode the JSON. Its required times
    /// must be present, it has a smaller range of times, and limits the depth and the numbers of embedded JSON.
    pub(super) is_decodable: bool,
}

impl Writer<'_> {
    /// Appends an object with its type.
    pub(super) fn object(&mut self, envelope: &Envelope<'_>, message: Message) -> Result<(), ProtobufError> {
        self.json.extend_from_slice(b"{\"apiVersion\":");
        json::string(self.json, envelope.api_version.as_bytes())?;
        self.json.extend_from_slice(b",\"kind\":");
        json::string(self.json, envelope.kind.as_bytes())?;
        self.fields(message, envelope.raw, 0)?;
        self.json.push(b'}');
        Ok(())
    }

    /// Appends an object with its metadata alone.
    pub(super) fn metadata(
        &mut self,
        envelope: &Envelope<'_>,
        message: Message,
    ) -> Result<(), ProtobufError> {
        let Some(FieldType::Message(of)) = message.field("metadata").map(Field::field_type) else {
            return Err(ProtobufError::Malformed);
        };
        let metadata = reader::bytes(envelope.raw, METADATA)?;
        self.json.extend_from_slice(b"{\"metadata\":");
        self.message(of, metadata, METADATA_DEPTH)?;
        self.json.push(b'}');
        Ok(())
    }

    /// Appends a message with braces.
    pub(super) fn message(
        &mut self,
        message: Message,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(), ProtobufError> {
        self.json.push(b'{');
        self.fields(message, bytes, depth)?;
        self.json.push(b'}');
        Ok(())
    }

    /// Appends the fields of a message, without braces.
    ///
    /// Upstream encodes fields in the order of their numbers and the values of a list one after another. A field that
    /// returns later would be a duplicate in JSON, so it is an error.
    fn fields(&mut self, message: Message, bytes: &[u8], depth: usize) -> Result<(), ProtobufError> {
        if depth > MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        let (known, mut seen, mut position) = (message.fields(), 0u128, 0);
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next()? {
            let Some(index) = find(known, number, position) else { continue };
            position = index;
            let field = &known[index];
            if number == MANAGED_FIELDS && depth == METADATA_DEPTH && self.drops(field) {
                continue;
            }
            if seen & (1 << index) != 0 {
                return Err(ProtobufError::Repeated);
            }
            seen |= 1 << index;
            match field.cardinality() {
                Cardinality::One => self.one(field, value, depth)?,
                Cardinality::List => self.list(field, value, &mut fields, depth)?,
                Cardinality::Map => self.map(field, value, &mut fields, depth)?,
            }
        }
        self.is_decodable &= message.required_times() & !seen == 0;
        Ok(())
    }

    fn drops(&self, field: &Field) -> bool {
        self.drops_managed_fields && field.name() == Some("managedFields")
    }

    fn one(&mut self, field: &Field, value: Value<'_>, depth: usize) -> Result<(), ProtobufError> {
        if field.omits_empty() && is_empty(field.field_type(), value)? {
            return Ok(());
        }
        if field.is_required() && is_empty(field.field_type(), value)? {
            self.is_decodable = false;
        }
        match (field.name(), field.field_type(), value) {
            (Some(name), of, value) => {
                self.name(name);
                self.value(of, value, depth)
            }
            (None, FieldType::Message(message), Value::Bytes(bytes)) => {
                self.fields(message, bytes, depth + 1)
            }
            _ => Err(ProtobufError::Malformed),
        }
    }

    fn list(
        &mut self,
        field: &Field,
        first: Value<'_>,
        fields: &mut Fields<'_>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        self.repeated(field, first, fields, *b"[]", |writer, value| {
            writer.item(field.field_type(), value, depth)
        })
    }

    fn map(
        &mut self,
        field: &Field,
        first: Value<'_>,
        fields: &mut Fields<'_>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        self.repeated(field, first, fields, *b"{}", |writer, value| {
            writer.entry(field.field_type(), value, depth)
        })
    }

    /// Appends the values of a list, encoded as fields that follow each other.
    pub(super) fn values(&mut self, of: FieldType, fields: &[u8]) -> Result<(), ProtobufError> {
        self.json.push(b'[');
        let mut fields = Fields::new(fields);
        while let Some((_, value)) = fields.next()? {
            self.item(of, value, 0)?;
        }
        self.close(b']');
        Ok(())
    }

    /// Appends the entries of a map, encoded as fields that follow each other.
    pub(super) fn entries(&mut self, of: FieldType, fields: &[u8]) -> Result<(), ProtobufError> {
        self.json.push(b'{');
        let mut fields = Fields::new(fields);
        while let Some((_, value)) = fields.next()? {
            self.entry(of, value, 0)?;
        }
        self.close(b'}');
        Ok(())
    }

    /// Appends the values of a field, which follow each other. `write` appends a comma after each.
    fn repeated(
        &mut self,
        field: &Field,
        first: Value<'_>,
        fields: &mut Fields<'_>,
        [open, close]: [u8; 2],
        write: impl Fn(&mut Self, Value<'_>) -> Result<(), ProtobufError>,
    ) -> Result<(), ProtobufError> {
        // An empty time among the values is null, which types do not accept there.
        self.is_decodable &= !matches!(field.field_type(), FieldType::Time | FieldType::MicroTime);
        self.name(field.name().unwrap_or_default());
        self.json.push(open);
        let mut next = Some(first);
        while let Some(value) = next {
            write(self, value)?;
            next = fields.next_of(field.number())?;
        }
        self.close(close);
        Ok(())
    }

    /// Appends one value of a list, or several that are packed, each with a comma.
    fn item(&mut self, of: FieldType, value: Value<'_>, depth: usize) -> Result<(), ProtobufError> {
        let numbers = matches!(of, FieldType::Bool | FieldType::Int32 | FieldType::Int64);
        let (true, Value::Bytes(packed)) = (numbers, value) else {
            self.value(of, value, depth)?;
            self.json.push(b',');
            return Ok(());
        };
        let mut packed = Fields::new(packed);
        while !packed.is_empty() {
            self.value(of, Value::Varint(packed.packed_varint()?), depth)?;
            self.json.push(b',');
        }
        Ok(())
    }

    /// Appends an entry of a map with a comma.
    fn entry(&mut self, of: FieldType, value: Value<'_>, depth: usize) -> Result<(), ProtobufError> {
        let Value::Bytes(entry) = value else { return Err(ProtobufError::Malformed) };
        json::string(self.json, reader::bytes(entry, 1)?)?;
        self.json.push(b':');
        self.value(of, Value::Bytes(reader::bytes(entry, 2)?), depth)?;
        self.json.push(b',');
        Ok(())
    }

    /// Appends one value.
    pub(super) fn value(
        &mut self,
        of: FieldType,
        value: Value<'_>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        match (of, value) {
            (FieldType::String, Value::Bytes(bytes)) => json::string(self.json, bytes),
            (FieldType::Bytes, Value::Bytes(bytes)) => json::base64(self.json, bytes),
            (FieldType::Bool, Value::Varint(value)) => {
                self.json.extend_from_slice(if value == 0 { b"false" } else { b"true" });
                Ok(())
            }
            (FieldType::Int32, Value::Varint(value)) => json::integer(self.json, json::int32(value).into()),
            (FieldType::Int64, Value::Varint(value)) => json::integer(self.json, value.cast_signed()),
            (FieldType::Double, Value::Fixed64(bits)) => json::double(self.json, bits),
            (FieldType::Time | FieldType::MicroTime, Value::Bytes(bytes)) => {
                self.is_decodable &= !json::is_late(bytes)?;
                json::time(self.json, bytes, of == FieldType::MicroTime)
            }
            (FieldType::Duration, Value::Bytes(bytes)) => json::duration(self.json, bytes),
            (FieldType::Quantity, Value::Bytes(bytes)) => json::quantity(self.json, bytes),
            (FieldType::IntOrString, Value::Bytes(bytes)) => json::int_or_string(self.json, bytes),
            (FieldType::Json, Value::Bytes(bytes)) => {
                self.is_decodable = false;
                json::embedded(self.json, bytes)
            }
            (FieldType::Strings, Value::Bytes(bytes)) => json::strings(self.json, bytes),
            (FieldType::Message(message), Value::Bytes(bytes)) => self.message(message, bytes, depth + 1),
            _ => Err(ProtobufError::Malformed),
        }?;
        if self.json.len() > self.limit {
            return Err(ProtobufError::TooLarge { limit: self.limit });
        }
        Ok(())
    }

    /// Appends the name of the next field of the innermost object.
    fn name(&mut self, name: &str) {
        if self.json.last() != Some(&b'{') {
            self.json.push(b',');
        }
        self.json.push(b'"');
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\":");
    }

    /// Replaces the last comma, if any, with the end of a list or a map.
    fn close(&mut self, end: u8) {
        self.json.pop_if(|last| *last == b',');
        self.json.push(end);
    }
}

/// Returns the index of a field, with the shortest search if the numbers ascend.
pub(super) fn find(fields: &[Field], number: u64, position: usize) -> Option<usize> {
    let start = if fields.get(position).is_some_and(|it| it.number() <= number) { position } else { 0 };
    let ahead = fields[start..].iter().take_while(|it| it.number() < number).count();
    let index = start + ahead;
    fields.get(index).filter(|it| it.number() == number).map(|_| index)
}

/// Returns whether a value is the empty value of its type.
pub(super) fn is_empty(of: FieldType, value: Value<'_>) -> Result<bool, ProtobufError> {
    Ok(match (of, value) {
        (FieldType::Time | FieldType::MicroTime, Value::Bytes(bytes)) => json::is_zero_time(bytes)?,
        (FieldType::String | FieldType::Bytes, Value::Bytes(bytes)) => bytes.is_empty(),
        (_, Value::Varint(value)) => value == 0,
        (_, Value::Fixed64(bits)) => f64::from_bits(bits) == 0.0,
        _ => false,
    })
}
