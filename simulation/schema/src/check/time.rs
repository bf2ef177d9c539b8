//! Converts times to the Kubernetes form, and reports invalid times with Go's messages.

use jiff::civil::Date;
use jiff::tz::Offset;

/// Precision of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// Whole seconds; fractions are accepted and dropped.
    Second,
    /// Exactly six digits after the second.
    Microsecond,
}

/// Returns a time in canonical form: in UTC, with the digits of its precision.
pub(super) fn canonical(text: &str, precision: Precision) -> Result<String, String> {
    let layout = match precision {
        Precision::Second => "2006-01-02T15:04:05Z07:00",
        Precision::Microsecond => "2006-01-02T15:04:05.000000Z07:00",
    };
    let mut reader = Reader { text, rest: text, layout, out_of_range: None };
    let time = reader.time(precision)?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {:?}", reader.rest));
    }
    let date = Date::new(time.year, time.month, time.day);
    let date = match reader.out_of_range.or(date.is_err().then_some("day")) {
        Some(part) => return Err(format!("parsing time {text:?}: {part} out of range")),
        None => date.map_err(|_| format!("parsing time {text:?}: day out of range"))?,
    };
    let clock = date.at(time.hour, time.minute, time.second, 0);
    let outside = |_| format!("parsing time {text:?}: day out of range");
    let offset = Offset::from_seconds(time.offset_seconds).map_err(outside)?;
    let utc = Offset::UTC.to_datetime(offset.to_timestamp(clock).map_err(outside)?);
    Ok(match precision {
        Precision::Second => format!("{}Z", utc.strftime("%Y-%m-%dT%H:%M:%S")),
        Precision::Microsecond => format!("{}.{:06}Z", utc.strftime("%Y-%m-%dT%H:%M:%S"), time.microsecond),
    })
}

struct Time {
    year: i16,
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    microsecond: u32,
    offset_seconds: i32,
}

/// Parses a time part by part, to report the wrong part.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'a str,
    /// First part with a number out of range; reported only if no syntax error is found.
    out_of_range: Option<&'static str>,
}

impl Reader<'_> {
    fn time(&mut self, precision: Precision) -> Result<Time, String> {
        let year = self.digits(4, 4, "2006")?;
        self.literal("-")?;
        let month = self.ranged(2, "01", "month", 1..=12)?;
        self.literal("-")?;
        let day = self.ranged(2, "02", "day", 1..=31)?;
        self.literal("T")?;
        let hour = self.ranged(1, "15", "hour", 0..=23)?;
        self.literal(":")?;
        let minute = self.ranged(2, "04", "minute", 0..=59)?;
        self.literal(":")?;
        let second = self.ranged(2, "05", "second", 0..=59)?;
        let microsecond = self.fraction(precision)?;
        let offset_seconds = self.offset()?;
        let year = i16::try_from(year).unwrap_or(0);
        Ok(Time { year, month, day, hour, minute, second, microsecond, offset_seconds })
    }

    fn wrong<T>(&self, part: &str) -> Result<T, String> {
        Err(format!(
            "parsing time {:?} as {:?}: cannot parse {:?} as {part:?}",
            self.text, self.layout, self.rest
        ))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.wrong(literal),
        }
    }

    fn digits(&mut self, least: usize, most: usize, part: &str) -> Result<u32, String> {
        let count = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(count);
        match digits.parse() {
            Ok(number) if count >= least => {
                self.rest = rest;
                Ok(number)
            }
            _ => self.wrong(part),
        }
    }

    fn ranged(
        &mut self,
        least: usize,
        part: &str,
        name: &'static str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<i8, String> {
        let number = self.digits(least, 2, part)?;
        if !range.contains(&number) {
            self.out_of_range.get_or_insert(name);
        }
        Ok(i8::try_from(number).unwrap_or(0))
    }

    fn fraction(&mut self, precision: Precision) -> Result<u32, String> {
        let digits = self
            .rest
            .strip_prefix(['.', ','])
            .map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        match (precision, digits) {
            (Precision::Second, Some(digits)) if digits > 0 => {
                self.rest = self.rest.get(digits + 1..).unwrap_or_default();
                Ok(0)
            }
            (Precision::Second, _) => Ok(0),
            (Precision::Microsecond, Some(digits)) if digits >= 6 => {
                self.rest = self.rest.get(1..).unwrap_or_default();
                self.digits(6, 6, ".000000")
            }
            (Precision::Microsecond, _) => self.wrong(".000000"),
        }
    }

    fn offset(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let sign = match self.rest.as_bytes() {
            [b'+', _, _, b':', _, _, ..] => 1,
            [b'-', _, _, b':', _, _, ..] => -1,
            _ => return self.wrong("Z07:00"),
        };
        let number = |range| {
            self.rest.get::<std::ops::Range<usize>>(range).and_then(|digits| digits.parse::<i32>().ok())
        };
        let (Some(hours), Some(minutes)) = (number(1..3), number(4..6)) else { return self.wrong("Z07:00") };
        if hours > 24 || minutes >= 60 {
            self.out_of_range.get_or_insert(if hours > 24 {
                "time zone offset hour"
            } else {
                "time zone offset minute"
            });
            return Ok(0);
        }
        self.rest = self.rest.get(6..).unwrap_or_default();
        Ok(sign * (hours * 60 + minutes) * 60)
    }
}
