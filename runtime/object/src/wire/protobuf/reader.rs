//! Reader for the fields of encoded messages.

use super::ProtobufError;

/// The value of a field, as encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

/// An iterator over the fields of one message, in the order of the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns number and value of the next field; `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => {
                let (value, rest) = self.0.split_first_chunk::<8>().ok_or(ProtobufError::Truncated)?;
                self.0 = rest;
                Value::Fixed64(u64::from_le_bytes(*value))
            }
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| ProtobufError::Truncated)?;
                let (value, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
                self.0 = rest;
                Value::Bytes(value)
            }
            5 => {
                let (_, rest) = self.0.split_first_chunk::<4>().ok_or(ProtobufError::Truncated)?;
                self.0 = rest;
                Value::Fixed32
            }
            // Upstream's messages have no groups.
            _ => return Err(ProtobufError::Malformed),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Returns the next field if it has this number.
    pub(super) fn next_of(&mut self, number: u64) -> Result<Option<Value<'a>>, ProtobufError> {
        let mut ahead = *self;
        match ahead.next()? {
            Some((next, value)) if next == number => {
                *self = ahead;
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes that are left.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the number of bytes that are left.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the next varint of a packed list.
    pub(super) fn packed_varint(&mut self) -> Result<u64, ProtobufError> {
        varint(&mut self.0)
    }
}

/// Returns the bytes of the last field with this number, as protobuf defines; empty if it is absent.
pub(super) fn bytes(message: &[u8], number: u64) -> Result<&[u8], ProtobufError> {
    let (mut fields, mut found) = (Fields::new(message), &[][..]);
    while let Some((next, value)) = fields.next()? {
        if let (true, Value::Bytes(bytes)) = (next == number, value) {
            found = bytes;
        }
    }
    Ok(found)
}

/// Returns the varint of the last field with this number; zero if it is absent.
pub(super) fn number(message: &[u8], number: u64) -> Result<u64, ProtobufError> {
    let (mut fields, mut found) = (Fields::new(message), 0);
    while let Some((next, value)) = fields.next()? {
        if let (true, Value::Varint(value)) = (next == number, value) {
            found = value;
        }
    }
    Ok(found)
}

/// Returns text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::InvalidUtf8)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut found = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(ProtobufError::Truncated)?;
        *bytes = rest;
        found |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(found);
        }
    }
    Err(ProtobufError::Malformed)
}
