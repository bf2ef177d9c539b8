//! Points in time, as text and as JSON.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Serialize;
use windlass_env::{Env, Instant};
use windlass_object::time;

/// A point in time. The wall-clock time is computed from the monotonic distance to now, so it uses the current setting
/// of the wall clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedTime {
    /// The time in RFC 3339 format, in microseconds.
    pub at: MicroTime,
    /// Seconds on the monotonic clock since the boot of the machine.
    pub monotonic_seconds: f64,
    /// Seconds relative to the query; negative for the past.
    pub seconds_from_now: f64,
}

/// The current time on the monotonic clock and on the wall clock.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CurrentTime {
    pub(crate) instant: Instant,
    wall: Timestamp,
}

impl CurrentTime {
    pub(crate) fn of(env: &Env) -> Self {
        Self { instant: env.now(), wall: env.wall() }
    }

    pub(crate) fn observed(&self, at: Instant) -> ObservedTime {
        let (ahead, behind) = (at - self.instant, self.instant - at);
        let seconds_from_now = ahead.as_secs_f64() - behind.as_secs_f64();
        let offset = SignedDuration::try_from(ahead)
            .and_then(|ahead| Ok(ahead - SignedDuration::try_from(behind)?))
            .unwrap_or(SignedDuration::MAX);
        let end = if offset.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
        let wall = self.wall.checked_add(offset).unwrap_or(end);
        let monotonic_seconds = at.since_origin().as_secs_f64();
        ObservedTime { at: time::micros(wall), monotonic_seconds, seconds_from_now }
    }
}

/// `2026-03-01T12:00:00Z (4.2 s ago)`
impl fmt::Display for ObservedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let away = self.seconds_from_now;
        write!(f, "{} (", time::rfc3339_nanos(self.at.0))?;
        if away > 0.0 { write!(f, "in {})", brief(away)) } else { write!(f, "{} ago)", brief(-away)) }
    }
}

/// Formats a duration for people: `4.2 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn brief(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never below zero; saturates"
    )]
    let whole = seconds as u64;
    match whole {
        0 => format!("{:.0} ms", seconds * 1000.0),
        1..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn durations_are_formatted_for_people() {
        let table =
            [(0.0, "0 ms"), (0.0123, "12 ms"), (4.25, "4.2 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")];
        for (seconds, expected) in table {
            assert_eq!(brief(seconds), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn both_clocks_agree_and_no_end_of_time_is_too_far() {
        let env = Env::virtual_time(1);
        env.sleep(Duration::from_secs(100)).await;
        let now = CurrentTime::of(&env);
        let moment = now.observed(env.now() - Duration::from_secs(3));
        assert_eq!((moment.monotonic_seconds, moment.seconds_from_now), (97.0, -3.0));
        let apart = env.wall().duration_since(moment.at.0);
        assert!((apart.as_secs_f64() - 3.0).abs() < 0.001, "{apart}");
        assert_eq!(now.observed(Instant::NEVER).at.0, time::micros(Timestamp::MAX).0);
        let text = serde_json::to_value(&moment).expect("serialized");
        assert!(text["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{text}");
    }
}
