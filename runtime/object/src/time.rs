//! Timestamps in the precision of the API.
//!
//! The API's time types hold nanoseconds in memory but serialize fewer digits. A value taken from a clock therefore
//! never equals the copy that the server returns, and a controller that compares the two would update the object
//! forever. Values created here are rounded to the serialized precision.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

/// Returns a `Time`, rounded down to whole seconds.
pub fn seconds(at: Timestamp) -> Time {
    Time(floor(at, NANOS_PER_SECOND))
}

/// Returns a `MicroTime`, rounded down to whole microseconds.
pub fn micros(at: Timestamp) -> MicroTime {
    MicroTime(floor(at, NANOS_PER_MICROSECOND))
}

/// Formats a time as Go does at full precision: UTC, `Z`, the fraction without trailing zeros.
pub fn rfc3339_nanos(at: Timestamp) -> String {
    at.to_string()
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_MICROSECOND: i128 = 1_000;

/// Rounds down to a multiple of `unit`; returns `at` if the result would be before the minimum timestamp.
fn floor(at: Timestamp, unit: i128) -> Timestamp {
    let nanos = at.as_nanosecond();
    Timestamp::from_nanosecond(nanos - nanos.rem_euclid(unit)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates times from year 1 to year 9999, the range of RFC 3339.
    fn any_time() -> impl Strategy<Value = Timestamp> {
        (-62_135_596_800i64..253_402_207_200, 0i32..1_000_000_000).prop_map(|(second, nano)| {
            Timestamp::from_nanosecond(i128::from(second) * 1_000_000_000 + i128::from(nano)).unwrap()
        })
    }

    fn read_back<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
        serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn timestamp_survives_serialization(at in any_time()) {
            prop_assert_eq!(read_back(&seconds(at)), seconds(at));
            prop_assert_eq!(read_back(&micros(at)), micros(at));
        }

        #[test]
        fn rounded_time_is_less_than_one_unit_in_the_past(at in any_time()) {
            let (second, micro) = (seconds(at).0, micros(at).0);
            prop_assert!(second <= micro && micro <= at);
            prop_assert!(at.as_nanosecond() - second.as_nanosecond() < 1_000_000_000);
            prop_assert!(at.as_nanosecond() - micro.as_nanosecond() < 1_000);
        }

        #[test]
        fn full_precision_survives_formatting(at in any_time()) {
            prop_assert_eq!(rfc3339_nanos(at).parse::<Timestamp>().unwrap(), at);
        }
    }

    #[test]
    fn full_precision_is_formatted_like_go() {
        let print = |text: &str| rfc3339_nanos(text.parse().unwrap());
        assert_eq!(print("2026-03-01T12:00:00Z"), "2026-03-01T12:00:00Z");
        assert_eq!(print("2026-03-01T12:00:00.120Z"), "2026-03-01T12:00:00.12Z");
        assert_eq!(print("2026-03-01T13:00:00.000000009+01:00"), "2026-03-01T12:00:00.000000009Z");
    }
}
