//! A request on its connection: transit, processing, and what a reset of the connection still stops.
//!
//! The bounds are those of TCP and of kube-apiserver. A client that drops a request resets the connection: the kernel
//! discards its send buffer, so only segments that are in the network still arrive. The server cancels the context of a
//! request whose connection was reset. `TCP_USER_TIMEOUT` bounds how late data arrives whose acknowledgement is missing.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{self, Either};
use http::Uri;
use windlass_env::{Env, Instant};
use windlass_object::request;

use crate::go_duration::go_duration;

/// The longest time that a segment takes through the network.
const IN_NETWORK: Duration = Duration::from_millis(100);
/// How long after the reset of its connection a request can still take effect.
const CANCELLATION: Duration = Duration::from_millis(500);
/// `TCP_USER_TIMEOUT` of fenced clients: lease duration minus renew deadline.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// How late data of a connection can arrive, and how late a reset can work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    in_network: Duration,
    cancellation: Duration,
    /// How late a write with a deadline can arrive: TCP gives the connection up by then.
    pub(super) user_timeout: Duration,
}

/// How a request fared on its way to the point at which it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Through,
    /// The connection was reset: why the request has no effect.
    Reset(&'static str),
    /// Processing took longer than the request's own timeout.
    TimedOut,
}

/// The times of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// Before the connection is established no byte is sent.
    pub(super) connect: Duration,
    pub(super) transit: Duration,
    pub(super) processing: Duration,
    /// From arrival on.
    pub(super) timeout: Option<Duration>,
    /// The client's reset does not reach the server.
    pub(super) half_open: bool,
}

impl Bounds {
    /// The bounds of a network that is never later than `lateness`: what clocks of different rates leave of the lease.
    pub(super) fn within(lateness: Duration) -> Bounds {
        Bounds {
            in_network: IN_NETWORK.min(lateness),
            cancellation: CANCELLATION.min(lateness),
            user_timeout: USER_TIMEOUT.min(lateness),
        }
    }

    /// Takes a request to the point at which it takes effect. `dropped` completes when the client drops the request.
    pub(super) async fn carry(
        self,
        world: &Env,
        times: Times,
        dropped: impl Future<Output = ()> + Unpin,
    ) -> Way {
        let mut journey = Journey { world, dropped, reset: None };
        let unless_half_open = |grace: Duration| (!times.half_open).then_some(grace);
        if !journey.goes_on_for(times.connect, Some(Duration::ZERO)).await {
            return Way::Reset("dropped before it was connected");
        }
        if !journey.goes_on_for(times.transit, unless_half_open(self.in_network)).await {
            return Way::Reset("reset in transit");
        }
        let allowed = times.timeout.map_or(times.processing, |timeout| timeout.min(times.processing));
        if !journey.goes_on_for(allowed, unless_half_open(self.cancellation)).await {
            return Way::Reset("cancelled at the server");
        }
        if allowed < times.processing { Way::TimedOut } else { Way::Through }
    }
}

/// One request under way.
struct Journey<'a, D> {
    world: &'a Env,
    dropped: D,
    /// When the client dropped it.
    reset: Option<Instant>,
}

impl<D: Future<Output = ()> + Unpin> Journey<'_, D> {
    /// Lets this time pass. `false` if the connection is reset meanwhile and the rest takes longer than `grace` after
    /// the reset; `None` for a reset that does not reach the server.
    async fn goes_on_for(&mut self, time: Duration, grace: Option<Duration>) -> bool {
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

/// The parameter `timeout` of a request, unless it is absent, invalid or zero.
pub(super) fn timeout_of(uri: &Uri) -> Option<Duration> {
    let text = request::parameter(uri.query(), "timeout")?;
    go_duration(&text).ok().filter(|timeout| !timeout.is_zero())
}
