//! A value of an object, in the encoding of the server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::wire::protobuf::{FieldValue, ProtobufError};
use crate::wire::{FrameDecoder, reason_without_values};

/// The error for a value that has another type than its field, or is malformed. It contains no values, because they can
/// be from a Secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value in JSON.
    #[error("{0}")]
    Json(String),
    /// A value in protobuf.
    #[error(transparent)]
    Protobuf(#[from] ProtobufError),
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::Json(reason_without_values(&error))
    }
}

/// A value of an object, in JSON or in protobuf. It is not null.
///
/// The methods fail if the value has another type.
#[derive(Clone, Copy)]
pub struct Value<'a>(pub(super) Encoded<'a>);

#[derive(Clone, Copy)]
pub(super) enum Encoded<'a> {
    Json(&'a RawValue),
    Protobuf(FieldValue<'a>),
}

/// Text, borrowed if it has no escapes.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Value<'a> {
    /// Returns a value in JSON; `None` for null.
    pub(super) fn of_json(value: &'a RawValue) -> Option<Self> {
        (value.get() != "null").then_some(Self(Encoded::Json(value)))
    }

    /// Returns a value in protobuf; `None` for null.
    pub(super) fn of_protobuf(value: FieldValue<'a>) -> Result<Option<Self>, Error> {
        Ok(match value.embedded()? {
            Some(json) => Self::of_json(json),
            None => Some(Self(Encoded::Protobuf(value))),
        })
    }

    fn protobuf(self) -> Option<FieldValue<'a>> {
        match self.0 {
            Encoded::Json(_) => None,
            Encoded::Protobuf(value) => Some(value),
        }
    }

    /// Returns the text. Times, quantities, durations and bytes are text too.
    ///
    /// # Errors
    ///
    /// If the value is not text.
    pub fn text(self) -> Result<Cow<'a, str>, Error> {
        match self.0 {
            Encoded::Json(json) => Ok(serde_json::from_str::<Text<'_>>(json.get())?.0),
            Encoded::Protobuf(value) => match value.text()? {
                Some(text) => Ok(Cow::Borrowed(text)),
                None => self.decode().map(Cow::Owned),
            },
        }
    }

    /// Returns the integer.
    ///
    /// # Errors
    ///
    /// If the value is not an integer, or is out of range.
    pub fn integer<T: TryFrom<i64> + DeserializeOwned>(self) -> Result<T, Error> {
        match self.protobuf().and_then(FieldValue::integer) {
            Some(integer) => T::try_from(integer).map_err(|_| ProtobufError::Malformed.into()),
            None => self.decode(),
        }
    }

    /// Returns the boolean.
    ///
    /// # Errors
    ///
    /// If the value is not a boolean.
    pub fn boolean(self) -> Result<bool, Error> {
        self.protobuf().and_then(FieldValue::boolean).map_or_else(|| self.decode(), Ok)
    }

    /// Returns the time.
    ///
    /// # Errors
    ///
    /// If the value is not a time.
    pub fn time(self) -> Result<Time, Error> {
        match self.protobuf().map(FieldValue::time).transpose()?.flatten() {
            Some(time) => Ok(Time(time)),
            None => self.decode(),
        }
    }

    /// Passes each element of a list; `None` for null.
    ///
    /// # Errors
    ///
    /// If the value is not a list, and each error of `found`.
    pub fn each_element(
        self,
        found: &mut dyn FnMut(Option<Value<'a>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self.0 {
            Encoded::Json(json) => {
                let mut reader = serde_json::Deserializer::from_str(json.get());
                Ok(reader.deserialize_seq(EachElement(found))?)
            }
            Encoded::Protobuf(value) => value.each_element(&mut |element| {
                let element = element.map(Value::of_protobuf).transpose()?.flatten();
                found(element)
            }),
        }
    }

    /// Passes each wanted field of an object with its name, except fields that are null.
    ///
    /// # Errors
    ///
    /// If the value is not an object, and each error of `found`.
    pub fn each_field(
        self,
        wanted: &dyn Fn(&str) -> bool,
        found: &mut dyn FnMut(&str, Value<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self.0 {
            Encoded::Json(json) => {
                let mut reader = serde_json::Deserializer::from_str(json.get());
                Ok(reader.deserialize_map(EachField { wanted, found })?)
            }
            Encoded::Protobuf(value) => value.each_field(wanted, &mut |name, value| {
                Value::of_protobuf(value)?.map_or(Ok(()), |value| found(name, value))
            }),
        }
    }

    /// Returns the entries of a map from text to text, ordered by key; null is empty text.
    pub(super) fn texts(self) -> Result<BTreeMap<Cow<'a, str>, Cow<'a, str>>, Error> {
        let mut texts = BTreeMap::new();
        match self.0 {
            Encoded::Json(json) => {
                let entries: BTreeMap<Text<'_>, Option<Text<'_>>> = serde_json::from_str(json.get())?;
                texts.extend(
                    entries.into_iter().map(|(Text(key), value)| {
                        (key, value.map_or(Cow::Borrowed(""), |Text(value)| value))
                    }),
                );
            }
            Encoded::Protobuf(value) => value.each_field::<Error>(&|_| true, &mut |key, value| {
                texts.insert(Cow::Borrowed(key), Value(Encoded::Protobuf(value)).text()?);
                Ok(())
            })?,
        }
        Ok(texts)
    }

    /// Returns the value as a type that serde reads.
    ///
    /// # Errors
    ///
    /// If the type does not accept the value.
    pub fn decode<T: DeserializeOwned>(self) -> Result<T, Error> {
        match self.0 {
            Encoded::Json(json) => Ok(serde_json::from_str(json.get())?),
            Encoded::Protobuf(value) => {
                Ok(serde_json::from_slice(&value.json(FrameDecoder::DEFAULT_LIMIT)?)?)
            }
        }
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value").finish_non_exhaustive()
    }
}

/// Passes the wanted fields of an object in JSON.
struct EachField<'f, 'a> {
    wanted: &'f dyn Fn(&str) -> bool,
    found: &'f mut dyn FnMut(&str, Value<'a>) -> Result<(), Error>,
}

impl<'de> Visitor<'de> for EachField<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = fields.next_key()? {
            if !(self.wanted)(&name) {
                let IgnoredAny = fields.next_value()?;
            } else if let Some(value) = Value::of_json(fields.next_value()?) {
                (self.found)(&name, value).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Passes the elements of a list in JSON.
struct EachElement<'f, 'a>(&'f mut dyn FnMut(Option<Value<'a>>) -> Result<(), Error>);

impl<'de> Visitor<'de> for EachElement<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            (self.0)(Value::of_json(element)).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
