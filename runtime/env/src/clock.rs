//! Clock readings, sleeps and wall time: those of the machine, or tokio's paused clock with an integer rate.
//!
//! True time is the time of tokio's timer, in whole milliseconds. Local time is the reading of the instance:
//! `floor(true * numerator / denominator)`. The deadline of a sleep is converted back with `ceil` and rounded up to the
//! timer's resolution, because a floored deadline would usually be early.

use std::future::pending;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

use crate::Instant;

/// The wall time at the origin of a virtual clock: 2026-01-01T00:00:00Z, in seconds since the Unix epoch.
const VIRTUAL_EPOCH_SECONDS: i64 = 1_767_225_600;

const NANOS_PER_SECOND: u128 = 1_000_000_000;
const NANOS_PER_MILLISECOND: u128 = 1_000_000;

/// A clock that advances while the machine sleeps. Miri does not support it, and interprets programs on a machine that
/// does not sleep.
const BOOT_CLOCK: ClockId = if cfg!(miri) { ClockId::Monotonic } else { ClockId::Boottime };

/// Maximum duration of one timer of tokio; longer sleeps use several. One year is within the range of its timer wheel.
const MAX_STEP: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Copy, Clone, Debug)]
pub(crate) enum Clock {
    System,
    Virtual { origin: tokio::time::Instant, rate: Rate, wall_offset: SignedDuration },
}

/// Ratio of local time to true time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    numerator: u32,
    denominator: u32,
}

impl Clock {
    pub(crate) fn system() -> Clock {
        Clock::System
    }

    pub(crate) fn virtual_time() -> Clock {
        Clock::Virtual {
            origin: tokio::time::Instant::now(),
            rate: Rate { numerator: 1, denominator: 1 },
            wall_offset: SignedDuration::ZERO,
        }
    }

    pub(crate) fn with_rate(self, numerator: u32, denominator: u32) -> Clock {
        assert!(
            numerator > 0 && denominator > 0,
            "invalid clock rate {numerator}/{denominator}: both numbers must be positive"
        );
        match self {
            Clock::System => panic!("cannot set the rate of the system clock"),
            Clock::Virtual { origin, wall_offset, .. } => {
                Clock::Virtual { origin, rate: Rate { numerator, denominator }, wall_offset }
            }
        }
    }

    pub(crate) fn with_wall_offset(self, wall_offset: SignedDuration) -> Clock {
        match self {
            Clock::System => panic!("cannot set the wall offset of the system clock"),
            Clock::Virtual { origin, rate, .. } => Clock::Virtual { origin, rate, wall_offset },
        }
    }

    #[inline]
    pub(crate) fn is_virtual(self) -> bool {
        matches!(self, Clock::Virtual { .. })
    }

    #[inline]
    pub(crate) fn now(self) -> Instant {
        match self {
            Clock::System => Instant::from_origin(boot_time()),
            Clock::Virtual { origin, rate, .. } => virtual_time(origin, rate),
        }
    }

    pub(crate) fn wall(self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Virtual { wall_offset, .. } => virtual_wall(self.now(), wall_offset),
        }
    }

    pub(crate) async fn sleep_until(self, at: Instant) {
        // The reading decides, not the timer: the machine can have slept, the step can have been shortened, and tokio's
        // clock differs from this one.
        while self.now() < at {
            match self.next_step(at) {
                Some(wake) => tokio::time::sleep_until(wake).await,
                None => pending().await,
            }
        }
    }

    /// Returns the time at which tokio's timer must fire for a sleep until `at`; `None` if `at` is never reached.
    fn next_step(self, at: Instant) -> Option<tokio::time::Instant> {
        let now = tokio::time::Instant::now();
        let wake = match self {
            Clock::System if at == Instant::NEVER => None,
            Clock::System => now.checked_add(at.saturating_duration_since(self.now()).min(MAX_STEP)),
            Clock::Virtual { origin, rate, .. } => {
                origin.checked_add(whole_milliseconds(rate.true_time(at)?)?)
            }
        }?;
        Some(wake.min(now + MAX_STEP))
    }
}

impl Rate {
    /// Returns the local reading at a true time, rounded down.
    fn local(self, true_time: Duration) -> Duration {
        let nanos = true_time.as_nanos() * u128::from(self.numerator) / u128::from(self.denominator);
        from_nanos(nanos).unwrap_or(Duration::MAX)
    }

    /// Returns the first true time at which the local reading is `at`, rounded up. `None` if it is not representable.
    fn true_time(self, at: Instant) -> Option<Duration> {
        let scaled = at.since_origin().as_nanos() * u128::from(self.denominator);
        from_nanos(scaled.div_ceil(u128::from(self.numerator)))
    }
}

/// Rounds `duration` up to the resolution of tokio's timer. Returns `None` if the result is not representable.
fn whole_milliseconds(duration: Duration) -> Option<Duration> {
    from_nanos(duration.as_nanos().div_ceil(NANOS_PER_MILLISECOND) * NANOS_PER_MILLISECOND)
}

fn from_nanos(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).ok()?;
    let rest = u32::try_from(nanos % NANOS_PER_SECOND).ok()?;
    Some(Duration::new(seconds, rest))
}

fn virtual_time(origin: tokio::time::Instant, rate: Rate) -> Instant {
    Instant::from_origin(rate.local(origin.elapsed()))
}

/// Returns the time since boot, including sleep: a leader must notice that it slept past the end of its lease.
#[inline]
fn boot_time() -> Duration {
    Duration::try_from(clock_gettime(BOOT_CLOCK)).unwrap_or(Duration::ZERO)
}

/// Returns the wall time of a virtual clock. Saturates at the limits of `Timestamp`.
fn virtual_wall(now: Instant, offset: SignedDuration) -> Timestamp {
    let elapsed = SignedDuration::try_from(now.since_origin()).unwrap_or(SignedDuration::MAX);
    let since_epoch =
        SignedDuration::from_secs(VIRTUAL_EPOCH_SECONDS).saturating_add(elapsed).saturating_add(offset);
    let end = if since_epoch.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_duration(since_epoch).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn true_time_of_deadline_is_first_time_local_clock_reaches_it(
            numerator in 1u32.., denominator in 1u32.., nanos in 1u64..,
        ) {
            let rate = Rate { numerator, denominator };
            let at = Instant::from_origin(Duration::from_nanos(nanos));
            let true_time = rate.true_time(at).expect("within representable time");
            prop_assert!(rate.local(true_time) >= at.since_origin());
            if let Some(before) = true_time.checked_sub(Duration::from_nanos(1)) {
                prop_assert!(rate.local(before) < at.since_origin());
            }
        }

        #[test]
        fn rounding_to_timer_grid_never_rounds_down(nanos: u64) {
            let exact = Duration::from_nanos(nanos);
            let rounded = whole_milliseconds(exact).expect("within representable time");
            prop_assert!(rounded >= exact && rounded - exact < Duration::from_millis(1));
            prop_assert_eq!(rounded.subsec_nanos() % 1_000_000, 0);
        }
    }
}
