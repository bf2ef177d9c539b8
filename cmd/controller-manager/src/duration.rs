//! Durations as Go and Kubernetes write them on a command line and in files: `15s`, `1m30s`, `500ms`, `1.5h`, `0`.
//!
//! Guarantees: everything `time.ParseDuration` accepts and a process can wait for is accepted, with the same
//! meaning to the nanosecond; digits beyond a nanosecond are dropped. Refuses negative durations: no setting of
//! this process has a use for one.

use std::time::Duration;

/// The units, longest name first so that `ms` is not read as `m`.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),  // micro sign
    ("\u{3bc}s", 1_000), // Greek letter mu
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// The longest duration Go can hold, about 292 years.
const LONGEST: u64 = i64::MAX.unsigned_abs();

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DurationError {
    /// There is nothing to read.
    #[error("it is empty")]
    Empty,
    /// It begins with a minus sign.
    #[error("it is negative")]
    Negative,
    /// A number was expected at this point.
    #[error("there is no number before {0:?}")]
    NoNumber(String),
    /// A number without a unit.
    #[error("the unit is missing after {0}")]
    NoUnit(String),
    /// Letters that are no unit.
    #[error("{0:?} is not a unit (ns, us, ms, s, m and h are)")]
    UnknownUnit(String),
    /// More than 292 years.
    #[error("it is longer than 292 years")]
    TooLong,
}

/// Reads a duration in Go's syntax.
///
/// # Errors
/// Says what is wrong with the text; the caller knows where it came from.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    match text {
        "" => return Err(DurationError::Empty),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    let mut nanos = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (term, after) = term(rest)?;
        nanos = nanos.checked_add(term).filter(|sum| *sum <= LONGEST).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Writes a duration so that [`parse`] reads the same: `12h`, `1m30s`, `1s500ms`, `0s`.
pub(crate) fn format(duration: Duration) -> String {
    // Micro is written once: as letters that every keyboard has.
    const WRITTEN: [(&str, u128); 6] = [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, scale) in WRITTEN {
        if rest >= scale {
            text.push_str(&format!("{}{unit}", rest / scale));
            rest %= scale;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn term(text: &str) -> Result<(u64, &str), DurationError> {
    let (whole, after) = digits(text);
    let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::NoNumber(text.to_owned()));
    }
    let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
    let (unit, rest) = after.split_at(end);
    if unit.is_empty() {
        return Err(DurationError::NoUnit(text[..text.len() - after.len()].to_owned()));
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(DurationError::UnknownUnit(unit.to_owned()));
    };
    let nanos =
        scaled(whole, *scale)?.checked_add(fraction_of(fraction, *scale)).ok_or(DurationError::TooLong)?;
    Ok((nanos, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn scaled(whole: &str, scale: u64) -> Result<u64, DurationError> {
    if whole.is_empty() {
        return Ok(0);
    }
    whole.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or(DurationError::TooLong)
}

/// The nanoseconds in `0.<digits>` units of `scale`; exact integer arithmetic, digit by digit.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    // Fifteen digits are below a nanosecond even for hours, and their product with the scale fits.
    let digits = &digits[..digits.len().min(15)];
    let Ok(value) = digits.parse::<u128>() else { return 0 };
    let ten_to = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(15));
    u64::try_from(value * u128::from(scale) / ten_to).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> u128 {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).as_nanos()
    }

    #[test]
    fn what_go_accepts_means_the_same_here() {
        for (text, expected) in [
            ("0", 0),
            ("0s", 0),
            ("+5s", 5_000_000_000),
            ("15s", 15_000_000_000),
            ("1m30s", 90_000_000_000),
            ("500ms", 500_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("12h0m0s", 43_200_000_000_000),
            ("10us", 10_000),
            ("10\u{b5}s", 10_000),
            ("10\u{3bc}s", 10_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("0.100000000000000000000h", 360_000_000_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again_as_the_same() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500_000_000, "1s500ms"),
            (90_000_000_000, "1m30s"),
            (43_200_000_000_000, "12h"),
            (LONGEST, "2562047h47m16s854ms775us807ns"),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(format(duration), text);
            assert_eq!(parse(text), Ok(duration));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        use DurationError::*;
        for (text, expected) in [
            ("", Empty),
            ("+", Empty),
            ("-1s", Negative),
            ("abc", NoNumber("abc".into())),
            (".s", NoNumber(".s".into())),
            ("15", NoUnit("15".into())),
            ("1m30", NoUnit("30".into())),
            ("3d", UnknownUnit("d".into())),
            ("15 s", UnknownUnit(" s".into())),
            ("5S", UnknownUnit("S".into())),
            ("9223372036854775808ns", TooLong),
            ("3000000h", TooLong),
            ("99999999999999999999s", TooLong),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
