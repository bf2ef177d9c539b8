//! A point in time on the clock of one Env.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time on an Env's clock, as the duration since that clock's origin. Arithmetic saturates and never panics.
///
/// Instants of different clocks are not comparable, but the type does not prevent it. Use an instant only with its Env.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(Duration);

impl Instant {
    /// The origin: the boot of the machine, or the creation of the virtual clock.
    pub const ORIGIN: Instant = Instant(Duration::ZERO);

    /// A deadline that is never reached: sleeping until it arms no timer.
    pub const NEVER: Instant = Instant(Duration::MAX);

    pub(crate) const fn from_origin(elapsed: Duration) -> Instant {
        Instant(elapsed)
    }

    /// Returns the duration since the clock's origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// Returns the duration since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns this instant plus `duration`, or `None` if the result is not representable.
    pub fn checked_add(self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// Returns this instant minus `duration`, or `None` if the result is before the origin.
    pub fn checked_sub(self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at [`Instant::NEVER`].
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// Saturates at [`Instant::ORIGIN`].
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    /// Like [`Instant::saturating_duration_since`].
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}
