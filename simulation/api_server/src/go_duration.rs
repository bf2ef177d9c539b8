//! Durations in Go format.

use std::time::Duration;

/// Parses a duration in Go format: `1h15m30.918s`. Negative durations become zero.
pub(crate) fn go_duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut seconds = 0.0;
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.').len();
        let (digits, after) = rest.split_at(number);
        if !digits.contains(|it: char| it.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return Err(invalid());
        }
        let unit = after.len() - after.trim_start_matches(|it: char| !it.is_ascii_digit() && it != '.').len();
        let (unit, after) = after.split_at(unit);
        let unit = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            unit => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        };
        seconds += digits.parse::<f64>().map_err(|_| invalid())? * unit;
        rest = after;
    }
    let is_negative = text.starts_with('-');
    Ok(Duration::try_from_secs_f64(if is_negative { 0.0 } else { seconds }).unwrap_or(Duration::MAX))
}
