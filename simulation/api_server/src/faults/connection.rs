//! Transit and processing of one request on its connection, and the effect of a connection reset.
//!
//! The bounds are those of TCP and kube-apiserver. A client that drops a request resets the connection. The kernel then
//! discards its send buffer, so only segments already in the network still arrive. The server cancels the context of a
//! request whose connection was reset. `TCP_USER_TIMEOUT` bounds the delay of data that was not acknowledged.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{self, Either};
use http::Uri;
use windlass_env::{Env, Instant};
use windlass_object::request;

use crate::go_duration::go_duration;

/// Maximum time of a segment in the network.
const IN_NETWORK: Duration = Duration::from_millis(100);
/// Maximum time between the reset of a connection and the effect of its request.
const CANCELLATION: Duration = Duration::from_millis(500);
/// `TCP_USER_TIMEOUT` of fenced clients with the default election.
const USER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the server after the end of the fence, which the `timeout` of a fenced write contains: the lease duration
/// minus the renew deadline and the time above.
const SERVER_ALLOWANCE: Duration = Duration::from_secs(3);

/// Upper bounds on late data and on late resets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    in_network: Duration,
    cancellation: Duration,
    /// Maximum delay of a write with a deadline: TCP closes the connection after this time.
    pub(super) user_timeout: Duration,
    /// Time by which a server ends a write with a deadline early. Clocks with different rates would otherwise let the
    /// write of a sender that cannot reset its connection take effect after the lease.
    pub(super) curtailed: Duration,
}

/// The outcome of transit and processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransitOutcome {
    Through,
    /// The connection was reset; the text states why the request has no effect.
    Reset(&'static str),
    /// Processing exceeded the request's `timeout`.
    TimedOut,
}

/// The times of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Time to establish the connection; no byte is sent earlier.
    pub(super) connect: Duration,
    pub(super) transit: Duration,
    pub(super) processing: Duration,
    /// Time limit of the processing, counted from arrival.
    pub(super) timeout: Option<Duration>,
    /// The client's reset does not reach the server.
    pub(super) half_open: bool,
}

impl Bounds {
    /// Returns the bounds of a network with at most `lateness` delay: the time that clock drift leaves before the lease
    /// ends.
    pub(super) fn within(lateness: Duration) -> Bounds {
        let user_timeout = USER_TIMEOUT.min(lateness);
        Bounds {
            in_network: IN_NETWORK.min(lateness),
            cancellation: CANCELLATION.min(lateness),
            user_timeout,
            curtailed: (SERVER_ALLOWANCE + user_timeout).saturating_sub(lateness),
        }
    }

    /// Carries a request to the point at which it takes effect. `dropped` completes when the client drops the request.
    pub(super) async fn carry(
        self,
        world: &Env,
        times: Times,
        dropped: impl Future<Output = ()> + Unpin,
    ) -> TransitOutcome {
        let mut journey = RequestInTransit { world, dropped, reset: None };
        let unless_half_open = |grace: Duration| (!times.half_open).then_some(grace);
        if !journey.wait_unless_reset(times.connect, Some(Duration::ZERO)).await {
            return TransitOutcome::Reset("dropped before it was connected");
        }
        if !journey.wait_unless_reset(times.transit, unless_half_open(self.in_network)).await {
            return TransitOutcome::Reset("reset in transit");
        }
        let allowed = times.timeout.map_or(times.processing, |timeout| timeout.min(times.processing));
        if !journey.wait_unless_reset(allowed, unless_half_open(self.cancellation)).await {
            return TransitOutcome::Reset("cancelled at the server");
        }
        if allowed < times.processing { TransitOutcome::TimedOut } else { TransitOutcome::Through }
    }
}

/// A request in flight.
struct RequestInTransit<'a, D> {
    world: &'a Env,
    dropped: D,
    /// Time at which the client dropped the request.
    reset: Option<Instant>,
}

impl<D: Future<Output = ()> + Unpin> RequestInTransit<'_, D> {
    /// Waits for `time`. Returns `false` if the connection is reset meanwhile and the remaining time exceeds `grace`,
    /// counted from the reset. With `grace` of `None` the reset does not reach the server.
    async fn wait_unless_reset(&mut self, time: Duration, grace: Option<Duration>) -> bool {
        if time.is_zero() && self.reset.is_none() {
            return true;
        }
        let end = self.world.now() + time;
        if self.reset.is_none() {
            match future::select(pin!(self.world.sleep(time)), &mut self.dropped).await {
                Either::Left(_) => return true,
                Either::Right(_) => self.reset = Some(self.world.now()),
            }
        }
        let goes_on = self.reset.zip(grace).is_none_or(|(reset, grace)| end <= reset + grace);
        if goes_on {
            self.world.sleep_until(end).await;
        }
        goes_on
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds::within(Duration::MAX)
    }
}

/// Returns the parameter `timeout` of a request, unless it is missing, invalid or zero.
pub(super) fn timeout_of(uri: &Uri) -> Option<Duration> {
    let text = request::parameter(uri.query(), "timeout")?;
    go_duration(&text).ok().filter(|timeout| !timeout.is_zero())
}
