//! The types of values. A flag and a field of the file have the same text, so each type has one parser.
//!
//! Guarantees: the serialized form of a value, written into a file, is parsed as the same value; an error states the
//! problem and the remedy.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use jiff::fmt::friendly::{Spacing, SpanParser, SpanPrinter};
use serde::{Serialize, Serializer};
use windlass::client::ClientOptions;
use windlass::object::names::{is_dns_label, is_dns_subdomain};

use super::invalid::InvalidValue;

/// The form of a value on the command line and in the file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueShape {
    /// A boolean. The flag without a value means `true`.
    Switch,
    /// One number or text.
    Scalar,
    /// A list; `a,b` on the command line.
    List,
    /// A mapping of names to booleans; `a=true,b=false` on the command line.
    Map,
}

/// A type of values.
pub(crate) trait Value: Clone + PartialEq + Serialize {
    const SHAPE: ValueShape = ValueShape::Scalar;

    /// Parses the text of a flag. A field has the same text.
    fn parse(text: &str) -> Result<Self, InvalidValue>;

    /// Returns the value of a setting that has this value as a flag and the other one in the file.
    #[must_use]
    fn over(self, _file: Self) -> Self {
        self
    }

    /// Returns lines about the possible values, for `--help`.
    fn choices() -> Vec<String> {
        Vec::new()
    }
}

/// Returns the error about a text that is not of this syntax.
fn expected(syntax: impl Display) -> InvalidValue {
    InvalidValue::new("invalid value", format!("write {syntax}"))
}

impl Value for bool {
    const SHAPE: ValueShape = ValueShape::Switch;

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        // The spellings of Go's strconv.ParseBool.
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err(expected("true or false")),
        }
    }
}

/// Returns a decimal number. Go reads a leading zero as the prefix of an octal number, so it is rejected.
fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.trim_start_matches(['+', '-']);
    if digits.len() > 1 && digits.starts_with('0') { None } else { text.parse().ok() }
}

impl Value for i32 {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        decimal(text)
            .ok_or_else(|| expected(format_args!("a whole number from {} to {}", i32::MIN, i32::MAX)))
    }
}

/// A whole number between two bounds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BoundedInt<const MIN: u32, const MAX: u32>(pub(crate) u32);

/// A number of concurrent reconciles. Ten thousand tasks are cheap; more is a typing error.
pub(crate) type Workers = BoundedInt<1, 10_000>;

impl<const MIN: u32, const MAX: u32> Value for BoundedInt<MIN, MAX> {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let number = decimal(text).filter(|number| (MIN..=MAX).contains(number));
        number.map(Self).ok_or_else(|| expected(format_args!("a whole number from {MIN} to {MAX}")))
    }
}

/// A request rate that the client can keep; negative for no limit.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rate(pub(crate) f64);

impl Value for Rate {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let (least, most) = (ClientOptions::MIN_QPS, ClientOptions::MAX_QPS);
        let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite());
        rate.filter(|rate| *rate < 0.0 || (least..=most).contains(rate))
            .map(Self)
            .ok_or_else(|| expected(format_args!("a rate from {least} to {most}, or -1 for no limit")))
    }
}

/// A length of time in the syntax of Go's `time.ParseDuration`, which is not negative.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct DurationSetting(pub(crate) Duration);

impl Value for DurationSetting {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        // jiff also parses long units and spaces, and durations that overflow Go's.
        let is_go = |c: char| c.is_ascii_digit() || "+.hmsun\u{b5}\u{3bc}".contains(c);
        let longest = Duration::from_nanos(i64::MAX.unsigned_abs());
        // Go permits the Greek letter mu instead of the micro sign.
        let duration = SpanParser::new().parse_unsigned_duration(text.replace('\u{3bc}', "u")).ok();
        duration
            .filter(|duration| text.chars().all(is_go) && *duration <= longest)
            .map(Self)
            .ok_or_else(|| expected("a duration with units, such as 15s, 1m30s, 500ms or 0s"))
    }
}

impl Serialize for DurationSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const PRINTER: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);
        serializer.serialize_str(&PRINTER.unsigned_duration_to_string(&self.0))
    }
}

/// The path of a file or a directory; empty for none.
impl Value for Option<PathBuf> {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "" => Ok(None),
            _ if text.contains('\0') || text.trim().is_empty() => {
                Err(expected("a path such as /etc/windlass/file"))
            }
            _ => Ok(Some(PathBuf::from(text))),
        }
    }
}

/// The URL of a server; empty for none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Server(pub(crate) Option<String>);

impl Value for Server {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let is_server = |uri: &Uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        };
        match text.parse().ok().filter(is_server) {
            _ if text.is_empty() => Ok(Self(None)),
            Some(_) if !text.contains('@') => Ok(Self(Some(text.to_owned()))),
            _ => Err(expected("https://host:port, and name the user in the kubeconfig")),
        }
    }
}

/// A name of an object in the API: an RFC 1123 subdomain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ObjectName(pub(crate) String);

impl Value for ObjectName {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        match is_dns_subdomain(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(expected(
                "a name of lowercase letters, digits and dashes, with single dots inside, such as windlass",
            )),
        }
    }
}

/// Names of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Namespaces(pub(crate) Vec<String>);

impl Value for Namespaces {
    const SHAPE: ValueShape = ValueShape::List;

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let mut names = Vec::new();
        for entry in entries(text) {
            if !is_dns_label(entry) {
                let remedy = "write at most 63 lowercase letters, digits and dashes";
                return Err(InvalidValue::new(format!("{entry:?} is not the name of a namespace"), remedy));
            }
            if names.iter().any(|name| name == entry) {
                return Err(InvalidValue::new(format!("{entry:?} is listed twice"), "remove one entry"));
            }
            names.push(entry.to_owned());
        }
        Ok(Self(names))
    }
}

impl Value for IpAddr {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        text.parse().map_err(|_| expected("an IP address such as 127.0.0.1 or ::1"))
    }
}

/// The kind of object that holds the lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LockKind {
    Leases,
}

impl Value for LockKind {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        if text == "leases" { Ok(Self::Leases) } else { Err(expected("leases")) }
    }
}

/// The format of log lines.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Text,
    Json,
}

impl Value for Format {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(expected("text or json")),
        }
    }
}

/// Paths of an HTTP server; a `*` at the end matches every suffix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UrlPaths(pub(crate) Vec<String>);

impl Value for UrlPaths {
    const SHAPE: ValueShape = ValueShape::List;

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let is_path = |path: &str| {
            let stem = path.strip_suffix('*').unwrap_or(path);
            let is_legal = |byte: u8| byte.is_ascii_graphic() && !b"*?#".contains(&byte);
            path.starts_with('/') && stem.bytes().all(is_legal)
        };
        match entries(text).find(|entry| !is_path(entry)) {
            None => Ok(Self(entries(text).map(str::to_owned).collect())),
            Some(entry) => {
                let remedy = "write paths such as /healthz, or /healthz/* for all paths below it";
                Err(InvalidValue::new(format!("{entry:?} is not a path"), remedy))
            }
        }
    }
}

/// Returns the entries of a list. Spaces and empty entries are ignored.
pub(super) fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_the_meaning_of_go() {
        for (text, nanos, written) in [
            ("0", 0, "0s"),
            ("+5s", 5_000_000_000, "5s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("1h15m30.5s", 4_530_500_000_000, "1h15m30s500ms"),
            ("1.5h", 5_400_000_000_000, "1h30m"),
            ("12h0m0s", 43_200_000_000_000, "12h"),
            ("100ms", 100_000_000, "100ms"),
            ("10us", 10_000, "10\u{b5}s"),
            ("10\u{b5}s", 10_000, "10\u{b5}s"),
            ("10\u{3bc}s", 10_000, "10\u{b5}s"),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001, "1h1m1s1ms1\u{b5}s1ns"),
            ("9223372036854775807ns", i64::MAX.unsigned_abs(), ""),
        ] {
            let period = DurationSetting::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(period.0, Duration::from_nanos(nanos), "{text}");
            let json = serde_json::json!(period);
            assert!(written.is_empty() || json == written, "{text}: {json}");
            assert_eq!(DurationSetting::parse(json.as_str().expect("text")), Ok(period), "{json}");
        }
    }

    #[test]
    fn duration_is_rejected_if_go_rejects_it() {
        for text in [
            "",
            " ",
            "+",
            "5",
            "-1s",
            "-0",
            "3d",
            "abc",
            ".s",
            "s",
            "1m30",
            "15 s",
            "1h 30m",
            "5S",
            "1min",
            "2 hours",
            "PT1H",
            "01:30:00",
            "1h,30m",
            "1h ago",
            "1h-1m",
            "1e3s",
            "\u{ff11}s",
            "9223372036854775808ns",
            "3000000h",
            "99999999999999999999s",
        ] {
            assert!(DurationSetting::parse(text).is_err(), "{text:?}");
        }
    }
}
