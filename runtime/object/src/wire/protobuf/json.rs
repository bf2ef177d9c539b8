//! Writers of JSON values, in the form of upstream's encoder.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;

use super::ProtobufError;
use super::reader::{self, Fields, Value};

const SECONDS_PER_DAY: i64 = 86_400;
/// The zero time of Go: the start of the year 1.
pub(super) const ZERO_TIME: i64 = -62_135_596_800;
/// The first second of the year 10000, which RFC 3339 cannot express.
const END_OF_TIME: i64 = 253_402_300_800;

/// Appends text with quotes and escapes.
pub(super) fn string(json: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ProtobufError> {
    // One pass without an early exit, which is vectorized, finds the usual text: ASCII without escapes.
    let (escapes, ascii) = bytes.iter().fold((false, true), |(escapes, ascii), byte| {
        (escapes | matches!(byte, b'"' | b'\\' | ..0x20), ascii & byte.is_ascii())
    });
    if !ascii || escapes {
        let text = reader::text(bytes)?;
        if escapes {
            return display(serde_json::to_writer(json, text).map_err(std::io::Error::from));
        }
    }
    json.reserve(bytes.len() + 2);
    json.push(b'"');
    json.extend_from_slice(bytes);
    json.push(b'"');
    Ok(())
}

/// Appends bytes as base64.
pub(super) fn base64(json: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ProtobufError> {
    let length = base64::encoded_len(bytes.len(), true).ok_or(ProtobufError::Malformed)?;
    json.push(b'"');
    let start = json.len();
    json.resize(start + length, 0);
    BASE64_STANDARD.encode_slice(bytes, &mut json[start..]).map_err(|_| ProtobufError::Malformed)?;
    json.push(b'"');
    Ok(())
}

/// Appends an integer.
pub(super) fn integer(json: &mut Vec<u8>, value: i64) -> Result<(), ProtobufError> {
    display(serde_json::to_writer(json, &value).map_err(std::io::Error::from))
}

/// Appends a number without a fraction if it has none, as Go does.
pub(super) fn double(json: &mut Vec<u8>, bits: u64) -> Result<(), ProtobufError> {
    let value = f64::from_bits(bits);
    if !value.is_finite() {
        return Err(ProtobufError::Malformed);
    }
    display(write!(json, "{value}"))
}

/// Appends embedded JSON. Empty bytes are null.
pub(super) fn embedded(json: &mut Vec<u8>, message: &[u8]) -> Result<(), ProtobufError> {
    let raw = reader::bytes(message, 1)?;
    if raw.is_empty() {
        json.extend_from_slice(b"null");
        return Ok(());
    }
    let valid: &RawValue = serde_json::from_slice(raw).map_err(|_| ProtobufError::EmbeddedJson)?;
    json.extend_from_slice(valid.get().as_bytes());
    Ok(())
}

/// Appends a message that is a list of text.
pub(super) fn strings(json: &mut Vec<u8>, message: &[u8]) -> Result<(), ProtobufError> {
    let mut fields = Fields::new(message);
    json.push(b'[');
    let mut first = true;
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(bytes)) => {
                if !std::mem::replace(&mut first, false) {
                    json.push(b',');
                }
                string(json, bytes)?;
            }
            (1, _) => return Err(ProtobufError::Malformed),
            _ => {}
        }
    }
    json.push(b']');
    Ok(())
}

pub(super) fn quantity(json: &mut Vec<u8>, message: &[u8]) -> Result<(), ProtobufError> {
    match reader::bytes(message, 1)? {
        b"" => string(json, b"0"),
        text => string(json, text),
    }
}

pub(super) fn int_or_string(json: &mut Vec<u8>, message: &[u8]) -> Result<(), ProtobufError> {
    match reader::number(message, 1)? {
        0 => integer(json, int32(reader::number(message, 2)?).into()),
        1 => string(json, reader::bytes(message, 3)?),
        _ => Err(ProtobufError::Malformed),
    }
}

/// Returns the 32 bits of a varint that are an integer of 32 bits.
pub(super) const fn int32(varint: u64) -> i32 {
    let [a, b, c, d, ..] = varint.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Returns whether a time is Go's zero time, which has no JSON form.
pub(super) fn is_zero_time(message: &[u8]) -> Result<bool, ProtobufError> {
    Ok(message.is_empty() || reader::number(message, 1)?.cast_signed() == ZERO_TIME)
}

/// Appends a time in seconds, or in microseconds if it is `precise`; null for the zero time.
pub(super) fn time(json: &mut Vec<u8>, message: &[u8], precise: bool) -> Result<(), ProtobufError> {
    if is_zero_time(message)? {
        json.extend_from_slice(b"null");
        return Ok(());
    }
    let micros = int32(reader::number(message, 2)?) / 1000;
    let carry = if precise { i64::from(micros.div_euclid(1_000_000)) } else { 0 };
    let seconds = reader::number(message, 1)?.cast_signed().saturating_add(carry);
    if !(ZERO_TIME..END_OF_TIME).contains(&seconds) {
        return Err(ProtobufError::Malformed);
    }
    let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    json.push(b'"');
    for (value, digits, separator) in [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (second / 3600, 2, b':'),
        (second / 60 % 60, 2, b':'),
        (second % 60, 2, if precise { b'.' } else { b'Z' }),
    ] {
        padded(json, value, digits);
        json.push(separator);
    }
    if precise {
        padded(json, micros.rem_euclid(1_000_000).into(), 6);
        json.push(b'Z');
    }
    json.push(b'"');
    Ok(())
}

/// Returns whether a time can be later than the types of k8s-openapi allow: their range ends a day before that of Go.
pub(super) fn is_late(message: &[u8]) -> Result<bool, ProtobufError> {
    // The nanoseconds are 32 bits, so they add at most two seconds.
    Ok(reader::number(message, 1)?.cast_signed() >= jiff::Timestamp::MAX.as_second() - 2)
}

/// Returns year, month and day of a day since 1970, in the proleptic Gregorian calendar. The calculation uses years
/// that start in March, in eras of 400 years, so that leap days are last.
const fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// Appends a number that is not negative, with leading zeros.
fn padded(json: &mut Vec<u8>, mut value: i64, digits: usize) {
    let start = json.len();
    json.resize(start + digits, b'0');
    for digit in json[start..].iter_mut().rev() {
        *digit += u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
    }
}

/// Appends a duration in nanoseconds as Go formats it.
pub(super) fn duration(json: &mut Vec<u8>, message: &[u8]) -> Result<(), ProtobufError> {
    let nanoseconds = reader::number(message, 1)?.cast_signed();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let whole = nanoseconds.unsigned_abs();
    let text = match whole {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{whole}ns"),
        1_000..1_000_000 => format!("{sign}{}\u{b5}s", decimal(whole, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(whole, 1_000_000)),
        _ => {
            let minutes = whole / 60_000_000_000;
            let seconds = decimal(whole % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    string(json, text.as_bytes())
}

/// Formats `value / unit` without trailing zeros; `unit` is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let fraction = format!("{:0width$}", value % unit, width = unit.ilog10() as usize);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        digits => format!("{}.{digits}", value / unit),
    }
}

/// Writing to memory does not fail.
fn display(written: std::io::Result<()>) -> Result<(), ProtobufError> {
    written.map_err(|_| ProtobufError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(number: u8, mut value: u64) -> Vec<u8> {
        let mut bytes = vec![number << 3];
        while value >= 0x80 {
            bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        bytes.push(u8::try_from(value).unwrap());
        bytes
    }

    fn written(write: impl Fn(&mut Vec<u8>) -> Result<(), ProtobufError>) -> String {
        let mut json = Vec::new();
        write(&mut json).expect("a valid value");
        String::from_utf8(json).expect("text")
    }

    proptest! {
        #[test]
        fn times_equal_those_of_jiff(
            seconds in ZERO_TIME + 1..jiff::Timestamp::MAX.as_second(), nanoseconds in 0..1_000_000_000i32,
        ) {
            let nanos = u64::try_from(nanoseconds).unwrap();
            let message = [encoded(1, seconds.cast_unsigned()), encoded(2, nanos)].concat();
            let expected = jiff::Timestamp::new(seconds, 0).unwrap();
            prop_assert_eq!(written(|json| time(json, &message, false)), format!("\"{expected:.0}\""));
            let expected = jiff::Timestamp::new(seconds, nanoseconds / 1000 * 1000);
            if let Ok(expected) = expected {
                prop_assert_eq!(written(|json| time(json, &message, true)), format!("\"{expected:.6}\""));
            }
        }
    }

    #[test]
    fn zero_times_are_null_and_impossible_times_are_rejected() {
        for zero in [Vec::new(), encoded(1, ZERO_TIME.cast_unsigned())] {
            assert_eq!(written(|json| time(json, &zero, true)), "null");
        }
        for bad in [ZERO_TIME - 1, END_OF_TIME, i64::MIN, i64::MAX] {
            let message = encoded(1, bad.cast_unsigned());
            assert_eq!(time(&mut Vec::new(), &message, false), Err(ProtobufError::Malformed), "{bad}");
        }
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (nanoseconds, expected) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5\u{b5}s"),
            (250_000_000, "250ms"),
            (90_500_000_000, "1m30.5s"),
            (-3_600_000_000_000, "-1h0m0s"),
            (i64::MAX, "2562047h47m16.854775807s"),
        ] {
            let message = encoded(1, i64::cast_unsigned(nanoseconds));
            assert_eq!(written(|json| duration(json, &message)), format!("\"{expected}\""));
        }
    }

    #[test]
    fn numbers_have_no_needless_fraction() {
        assert_eq!(written(|json| double(json, 1f64.to_bits())), "1");
        assert_eq!(written(|json| double(json, 0.25f64.to_bits())), "0.25");
        assert_eq!(double(&mut Vec::new(), f64::NAN.to_bits()), Err(ProtobufError::Malformed));
    }

    #[test]
    fn text_is_escaped_and_must_be_utf8() {
        assert_eq!(written(|json| string(json, "é\"\\\n\u{1}".as_bytes())), r#""é\"\\\n\u0001""#);
        assert_eq!(string(&mut Vec::new(), b"\xff"), Err(ProtobufError::InvalidUtf8));
    }
}
