//! String formats that upstream knows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;

/// Formats that only upstream checks: here every text matches.
const UNCHECKED: [&str; 7] =
    ["bsonobjectid", "creditcard", "isbn", "isbn10", "isbn13", "password", "rgbcolor"];

/// Returns whether text matches a format, or `None` for an unknown format.
pub(super) fn holds(format: &str, text: &str) -> Option<bool> {
    let format = format.replace('-', "");
    if UNCHECKED.contains(&format.as_str()) {
        return Some(true);
    }
    let holds = match format.as_str() {
        "datetime" => is_date_time(text),
        "date" => is_date(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "duration" => is_duration(text),
        "byte" => text.len().is_multiple_of(4) && matches("byte", text),
        "k8sshortname" => text.len() <= 63 && matches("k8sshortname", text),
        "k8slongname" => text.len() <= 253 && matches("k8slongname", text),
        "hostname" => text.len() <= 255 && matches("hostname", text),
        other => PATTERNS.iter().any(|(name, _)| *name == other).then(|| matches(other, text))?,
    };
    Some(holds)
}

/// Formats that are patterns, upstream's or equivalent ones.
static PATTERNS: LazyLock<Vec<(&str, Option<Regex>)>> = LazyLock::new(|| {
    let patterns = [
        ("byte", r"^[A-Za-z0-9+/]*={0,2}$"),
        ("hexcolor", r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        (
            "hostname",
            r"^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?$",
        ),
        ("k8slongname", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
        ("k8sshortname", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        ("mac", r"^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}([:-][0-9A-Fa-f]{2}){0,2}$"),
        ("ssn", r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
        ("uuid", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        ("uuid3", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        ("uuid4", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        ("uuid5", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
    ];
    patterns.into_iter().map(|(name, pattern)| (name, Regex::new(pattern).ok())).collect()
});

fn matches(name: &str, text: &str) -> bool {
    let pattern = PATTERNS.iter().find(|(known, _)| *known == name);
    pattern.and_then(|(_, pattern)| pattern.as_ref()).is_some_and(|pattern| pattern.is_match(text))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Date::strptime("%Y-%m-%d", text).is_ok()
}

/// Checks a time in RFC 3339 format.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    let zone = time.find(['Z', 'z', '+', '-']).map(|at| time.split_at(at));
    let Some((clock, zone)) = zone else { return false };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let parts: Vec<_> = clock.split(':').collect();
    let two = |part: &str, most: u8| part.len() == 2 && part.parse::<u8>().is_ok_and(|number| number <= most);
    let zoned = match zone.strip_prefix(['+', '-']) {
        Some(offset) => {
            offset.split_once(':').is_some_and(|(hours, minutes)| two(hours, 23) && two(minutes, 59))
        }
        None => zone.eq_ignore_ascii_case("z"),
    };
    let clocked = matches!(parts.as_slice(), [hour, minute, second] if two(hour, 23) && two(minute, 59) && two(second, 60));
    is_date(date)
        && clocked
        && zoned
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(user, domain)| {
        !user.is_empty()
            && !domain.is_empty()
            && !text.contains(char::is_whitespace)
            && !domain.starts_with('.')
    })
}

/// Checks an absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    let absolute = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|other| other.is_ascii_alphanumeric() || "+-.".contains(other));
    (absolute || text.starts_with('/')) && !text.contains(|other: char| other.is_control() || other == ' ')
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most)
}

/// Checks a duration in the format of Go or Scala: `1h30m`, `22 ns`.
fn is_duration(text: &str) -> bool {
    static GO: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$").ok());
    static SCALA: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let units = "ns|nanos?|nanoseconds?|us|µs|μs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?\
                     |minutes?|h|hrs?|hours?|d|days?|w|weeks?|wks?";
        Regex::new(&format!(r"^\d+\s*({units})$")).ok()
    });
    [&GO, &SCALA].into_iter().any(|pattern| pattern.as_ref().is_some_and(|pattern| pattern.is_match(text)))
}
