//! One process's line to the server.
//!
//! What a process sends becomes a task of the world's, so that it arrives although its sender may be dead by then.

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

/// A line to the server; clones are one line. A tower `Service`, ready at any time.
#[derive(Clone)]
pub struct Link {
    pub(super) end: Arc<LinkEndpoint>,
}

/// The line broke: whether the request took effect, nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was reset")]
pub struct LinkError;

type Answer = Result<Response<Body>, LinkError>;

/// A request on the wire.
struct InFlightRequest {
    id: u64,
    asked: Arc<RequestSummary>,
    fate: FaultEffects,
    /// Its parameter `timeout`.
    timeout: Option<Duration>,
    /// Its sender dies of it: once it has taken effect, or when it is sure that it never will.
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

    /// From now on what `choose` names goes wrong too, next to the plan: for tests that know by what has happened, not
    /// by the time, what is to go wrong.
    ///
    /// It is asked about each request that is sent, and again about each event that a watch is to tell; what does not
    /// concern one of these leaves it alone. What ends a watch comes instead of an event. The next call replaces
    /// what the one before chose.
    pub fn inject_fault(&self, choose: impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static) {
        self.end.meddle(Box::new(choose));
    }

    /// From now on nothing gets through, until [`Link::heal`]: requests and answers are lost silently, and an open
    /// watch breaks off instead of the next event it had to tell.
    pub fn partition(&self) {
        self.end.chance().cut = true;
    }

    /// The line is whole again. What was lost stays lost.
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
        let dies = if self.counted && self.sender.alive() {
            self.network.count_write(&self.who.instance, &asked)
        } else {
            None
        };
        if dies == Some(false) {
            self.note(format!("dies before {} {}", asked.method, asked.uri));
            self.sender.kill();
        }
        // A process that is no more sends nothing, and nobody waits for an answer.
        if !self.sender.alive() {
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
            // Silence: it is for the sender to lose patience.
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
                self.struck(sent.id, format!("refused with {} {}", status.code, status.reason));
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
                self.struck(sent.id, format!("took effect and is answered with {}", status.code));
                drop(answer.send(Ok(refusals::response(&status))));
            }
            _ if self.is_cut_off() => self.struck(sent.id, "answered into a partition"),
            // A sender that lost patience is gone.
            _ => drop(answer.send(Ok(response))),
        }
    }

    fn times(&self, InFlightRequest { fate, timeout, asked, .. }: &InFlightRequest) -> Times {
        let is_bounded = timeout.is_some() && asked.is_write();
        let transit = fate.request_delay;
        // TCP gives a connection up whose data is not acknowledged for longer.
        let transit = if is_bounded { transit.min(self.bounds.user_timeout) } else { transit };
        Times {
            connect: fate.connect_delay,
            transit,
            processing: fate.processing,
            // A fenced client computes its timeout on a connection that is established.
            timeout: timeout.map(|timeout| timeout.saturating_sub(fate.connect_delay)),
            half_open: fate.half_open,
        }
    }

    /// The sender dies at this write, whatever became of it.
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

    /// Whether nothing gets through at this moment.
    fn is_cut_off(&self) -> bool {
        self.chance().cut || self.open_at(self.network.now()) > self.network.now()
    }
}

/// How long a whole answer takes at this pace.
fn transfer_time(response: &Response<Body>, ms_per_megabyte: u64) -> Duration {
    let bytes = http_body::Body::size_hint(response.body()).exact().unwrap_or_default();
    Duration::from_millis(bytes.saturating_mul(ms_per_megabyte) / 1_000_000)
}

fn lose(silently: bool, answer: oneshot::Sender<Answer>) {
    if !silently {
        drop(answer.send(Err(LinkError)));
    }
}

/// A list in which the named objects are broken.
fn poison_list(body: &Bytes, names: &[String]) -> Bytes {
    let Ok(mut list) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    for item in list["items"].as_array_mut().into_iter().flatten() {
        poison(item, names);
    }
    list.to_string().into()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("who", &self.end.who).finish_non_exhaustive()
    }
}
