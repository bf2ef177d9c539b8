//! The link between one process and the server.
//!
//! Each request runs in a task of the simulated world, so it can arrive after its sender has died.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::oneshot;
use tower::Service;
use windlass_env::{Env, catch_panic};

use super::connection::{Bounds, Times, Way, timeout_of};
use super::effects::{ActiveFault, DeliveryOutcome, FaultEffects};
use super::journal::RecordKind;
use super::plan::FaultAction;
use super::refusals;
use super::request_summary::RequestSummary;
use super::sender::LinkEndpoint;
use super::shared::Shared;
use super::watch::{FaultyWatch, poison};
use crate::body::Body;
use crate::status::Status;

/// A link to the server; clones share it. A tower `Service` that is always ready.
#[derive(Clone)]
pub struct Link {
    pub(super) end: Arc<LinkEndpoint>,
}

/// The connection was reset: the outcome of the request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was reset")]
pub struct LinkError;

type Answer = Result<Response<Body>, LinkError>;

/// A request in flight.
struct InFlightRequest {
    id: u64,
    asked: Arc<RequestSummary>,
    fate: FaultEffects,
    /// Value of the parameter `timeout`.
    timeout: Option<Duration>,
    /// The sender dies with this write: after the effect, or when the write can no longer take effect.
    fatal: bool,
}

impl Link {
    pub(super) fn new(
        network: &Arc<Shared>,
        sender: &Env,
        threats: Vec<ActiveFault>,
        bounds: (bool, Bounds),
    ) -> Link {
        Link { end: Arc::new(LinkEndpoint::new(network, sender, threats, bounds)) }
    }

    /// Injects the faults that `choose` returns, in addition to those of the plan. Use it for tests that choose
    /// faults by past events and not by time.
    ///
    /// The link calls `choose` for each request that is sent and for each event of a watch. A fault that does not
    /// apply there has no effect. A fault that ends a watch replaces the event. Each call of this method replaces the
    /// previous function.
    pub fn inject_fault(&self, choose: impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static) {
        self.end.meddle(Box::new(choose));
    }

    /// Partitions the link until [`Link::heal`]. Requests and responses are lost without an error; an open watch is
    /// reset at its next event.
    pub fn partition(&self) {
        self.end.chance().cut = true;
    }

    /// Heals the link. Lost traffic stays lost.
    pub fn heal(&self) {
        self.end.chance().cut = false;
    }
}

impl<B> Service<Request<B>> for Link
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Debug,
{
    type Response = Response<Body>;
    type Error = LinkError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let end = Arc::clone(&self.end);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| LinkError)?.to_bytes();
            end.send(Request::from_parts(parts, body)).await
        }
        .boxed()
    }
}

impl LinkEndpoint {
    async fn send(self: Arc<Self>, request: Request<Bytes>) -> Answer {
        let (parts, body) = request.into_parts();
        let asked = Arc::new(RequestSummary::of(&parts));
        let dies = if self.counted && self.sender.is_alive() {
            self.network.count_write(&self.who.instance, &asked)
        } else {
            None
        };
        if dies == Some(false) {
            self.note(format!("dies before {} {}", asked.method, asked.uri));
            self.sender.kill();
        }
        // A process that has exited sends nothing and waits for no response.
        if !self.sender.is_alive() {
            return pending().await;
        }
        let id = self.network.next_request();
        self.record(RecordKind::Sent { id, asked: Arc::clone(&asked) });
        let now = self.network.now();
        let fate = {
            let mut chance = self.chance();
            let mut fate = FaultEffects::draw(&mut chance.threats, &asked, now);
            if let Some(threat) = chance.by_hand(&asked)
                && threat.strikes_at(&asked)
            {
                fate.suffer(threat, &asked);
            }
            if chance.cut {
                fate.end = DeliveryOutcome::LostBefore { silently: true };
            }
            fate.request_delay += chance.leg();
            fate.response_delay += chance.leg();
            fate
        };
        let (answer, answered) = oneshot::channel();
        let timeout = timeout_of(&parts.uri);
        let sent =
            InFlightRequest { id, asked: Arc::clone(&asked), fate, timeout, fatal: dies == Some(true) };
        let carried = Arc::clone(&self).carry(sent, Request::from_parts(parts, body), answer);
        drop(self.network.world.spawn("wire", carried));
        match answered.await {
            Ok(Ok(response)) => {
                let code = response.status().as_u16();
                self.record(RecordKind::Answered { id, asked, code });
                Ok(response)
            }
            Ok(Err(broken)) => Err(broken),
            // No response: the sender has to time out.
            Err(_) => pending().await,
        }
    }

    async fn carry(
        self: Arc<Self>,
        sent: InFlightRequest,
        request: Request<Bytes>,
        mut answer: oneshot::Sender<Answer>,
    ) {
        let world = &self.network.world;
        let way = self.bounds.carry(world, self.times(&sent), pin!(answer.closed())).await;
        let arrived = match (way, &sent.fate.end) {
            (Way::Reset(why), _) => {
                self.struck(sent.id, why);
                Err(true)
            }
            (_, DeliveryOutcome::LostBefore { silently }) => {
                self.struck(sent.id, "lost before it took effect");
                Err(*silently)
            }
            (_, DeliveryOutcome::Refused(status)) => {
                self.struck(sent.id, format!("rejected with {} {}", status.code, status.reason));
                Ok(refusals::response(status))
            }
            (Way::TimedOut, _) => {
                self.struck(sent.id, "timed out at the server without effect");
                Ok(refusals::response(&refusals::timed_out()))
            }
            (Way::Through, _) => Ok(self.serve(&sent, request).await),
        };
        if sent.fatal {
            return self.die_of(&sent, &arrived);
        }
        let response = match arrived {
            Ok(response) => response,
            Err(silently) => return lose(silently, answer),
        };
        world.sleep(sent.fate.response_delay + transfer_time(&response, sent.fate.ms_per_megabyte)).await;
        match sent.fate.end {
            DeliveryOutcome::LostAfter { silently } => {
                self.struck(sent.id, "lost after it took effect");
                lose(silently, answer);
            }
            DeliveryOutcome::RefusedAfter(status) => {
                self.struck(sent.id, format!("took effect; answered with {}", status.code));
                drop(answer.send(Ok(refusals::response(&status))));
            }
            _ if self.is_cut_off() => self.struck(sent.id, "response lost in a partition"),
            // The receiver is gone if the sender has timed out.
            _ => drop(answer.send(Ok(response))),
        }
    }

    fn times(&self, InFlightRequest { fate, timeout, asked, .. }: &InFlightRequest) -> Times {
        let is_bounded = timeout.is_some() && asked.is_write();
        let transit = fate.request_delay;
        // TCP closes a connection whose data stays unacknowledged for longer.
        let transit = if is_bounded { transit.min(self.bounds.user_timeout) } else { transit };
        Times {
            connect: fate.connect_delay,
            transit,
            processing: fate.processing,
            // A fenced client computes its timeout after it has connected.
            timeout: timeout.map(|timeout| timeout.saturating_sub(fate.connect_delay)),
            half_open: fate.half_open,
        }
    }

    /// Kills the sender at this write, whatever the outcome of the write.
    fn die_of(&self, sent: &InFlightRequest, arrived: &Result<Response<Body>, bool>) {
        let took_effect = arrived.as_ref().is_ok_and(|response| response.status().is_success());
        let how = if took_effect { "after" } else { "without any effect of" };
        self.note(format!("dies {how} #{}", sent.id));
        self.sender.kill();
    }

    async fn serve(self: &Arc<Self>, sent: &InFlightRequest, request: Request<Bytes>) -> Response<Body> {
        let server = self.network.server_for(sent.fate.stale);
        if sent.fate.stale.is_some() {
            self.struck(sent.id, "served by a stale replica");
        }
        let answered = match catch_panic(server.answer(request)).await {
            Ok(response) => response,
            Err(message) => {
                let message = format!("the server panicked: {message}");
                self.record(RecordKind::Broken(message.clone()));
                refusals::response(&Status::internal(message))
            }
        };
        let (parts, body) = answered.into_parts();
        let code = parts.status.as_u16();
        let (id, asked) = (sent.id, Arc::clone(&sent.asked));
        if body.is_stream() {
            self.record(RecordKind::Served { id, asked, code, body: Bytes::new() });
            let watched = FaultyWatch::new(self, sent.id, &sent.asked, body, sent.fate.poisoned.clone());
            return Response::from_parts(parts, Body::stream(watched));
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let kept = if asked.is_write() { body.clone() } else { Bytes::new() };
        self.record(RecordKind::Served { id, asked, code, body: kept });
        let body = if sent.fate.poisoned.is_empty() { body } else { poison_list(&body, &sent.fate.poisoned) };
        Response::from_parts(parts, Body::from_bytes(body))
    }

    /// Returns whether the link is partitioned now.
    fn is_cut_off(&self) -> bool {
        self.chance().cut || self.open_at(self.network.now()) > self.network.now()
    }
}

/// Returns the transfer time of a response of known length.
fn transfer_time(response: &Response<Body>, ms_per_megabyte: u64) -> Duration {
    let bytes = http_body::Body::size_hint(response.body()).exact().unwrap_or_default();
    Duration::from_millis(bytes.saturating_mul(ms_per_megabyte) / 1_000_000)
}

fn lose(silently: bool, answer: oneshot::Sender<Answer>) {
    if !silently {
        drop(answer.send(Err(LinkError)));
    }
}

/// Returns the list with the named objects corrupted.
fn poison_list(body: &Bytes, names: &[String]) -> Bytes {
    let Ok(mut list) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    for item in list["items"].as_array_mut().into_iter().flatten() {
        poison(item, names);
    }
    list.to_string().into()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("who", &self.end.who).finish_non_exhaustive()
    }
}
