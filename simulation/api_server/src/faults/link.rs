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

use super::connection::{Bounds, Times, TransitOutcome, timeout_of};
use super::effects::{ActiveFault, DeliveryOutcome, FaultEffects};
use super::injected_errors;
use super::journal::RecordKind;
use super::plan::FaultAction;
use super::request_summary::RequestSummary;
use super::sender::LinkEndpoint;
use super::shared::NetworkState;
use super::watch::{FaultyWatch, poison};
use crate::body::Body;
use crate::go_json;
use crate::http::prefer_json;
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
    request: Arc<RequestSummary>,
    effects: FaultEffects,
    /// Value of the parameter `timeout`.
    timeout: Option<Duration>,
    /// The sender dies with this write: after the effect, or when the write can no longer take effect.
    fatal: bool,
}

impl Link {
    pub(super) fn new(
        network: &Arc<NetworkState>,
        sender: &Env,
        active_faults: Vec<ActiveFault>,
        bounds: (bool, Bounds),
    ) -> Link {
        Link { end: Arc::new(LinkEndpoint::new(network, sender, active_faults, bounds)) }
    }

    /// Injects the faults that `choose` returns, in addition to those of the plan. Use it for tests that choose
    /// faults by past events and not by time.
    ///
    /// The link calls `choose` for each request that is sent and for each event of a watch. A fault that does not
    /// apply there has no effect. A fault that ends a watch replaces the event. Each call of this method replaces the
    /// previous function.
    pub fn inject_fault(&self, choose: impl FnMut(&RequestSummary) -> Option<FaultAction> + Send + 'static) {
        self.end.inject_fault(Box::new(choose));
    }

    /// Partitions the link until [`Link::heal`]. Requests and responses are lost without an error; an open watch is
    /// reset at its next event.
    pub fn partition(&self) {
        self.end.rng().is_partitioned = true;
    }

    /// Heals the link. Lost traffic stays lost.
    pub fn heal(&self) {
        self.end.rng().is_partitioned = false;
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
            let (mut parts, body) = request.into_parts();
            // Faults, traces and oracles read the responses.
            prefer_json(&mut parts.headers);
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
        let write = if self.counted && self.sender.is_alive() {
            self.network.count_write(&self.process.instance, &asked)
        } else {
            None
        };
        let dies = write.and_then(|number| self.network.dies_at(&self.process.instance, number));
        if dies == Some(false) {
            self.note(format!("dies before {} {}", asked.method, asked.uri));
            self.sender.kill();
        }
        // A process that has exited sends nothing and waits for no response.
        if !self.sender.is_alive() {
            return pending().await;
        }
        let id = self.network.next_request();
        self.record(RecordKind::Sent { id, request: Arc::clone(&asked) });
        let now = self.network.now();
        // Only errors of writes depend on the object.
        let has_object = asked.is_write() && self.network.server_for(None).has_object(&asked);
        let effects = {
            let mut rng = self.rng();
            let mut effects = FaultEffects::generate(&mut rng.active_faults, &asked, now, write, has_object);
            if let Some(active_fault) = rng.choose_injected(&asked)
                && active_fault.is_injected_into(&asked, has_object)
            {
                effects.add(active_fault, &asked);
            }
            if rng.is_partitioned {
                effects.outcome = DeliveryOutcome::LostBeforeEffect { silently: true };
            }
            effects.request_delay += rng.random_latency();
            effects.response_delay += rng.random_latency();
            effects
        };
        let (answer, answered) = oneshot::channel();
        let timeout = timeout_of(&parts.uri);
        let in_flight =
            InFlightRequest { id, request: Arc::clone(&asked), effects, timeout, fatal: dies == Some(true) };
        let carried = Arc::clone(&self).carry(in_flight, Request::from_parts(parts, body), answer);
        drop(self.network.world.spawn("wire", carried));
        match answered.await {
            Ok(Ok(response)) => {
                let code = response.status().as_u16();
                self.record(RecordKind::Answered { id, request: asked, code });
                Ok(response)
            }
            Ok(Err(broken)) => Err(broken),
            // No response: the sender has to time out.
            Err(_) => pending().await,
        }
    }

    async fn carry(
        self: Arc<Self>,
        in_flight: InFlightRequest,
        request: Request<Bytes>,
        mut answer: oneshot::Sender<Answer>,
    ) {
        let world = &self.network.world;
        let way = self.bounds.carry(world, self.times(&in_flight), pin!(answer.closed())).await;
        let arrived = match (way, &in_flight.effects.outcome) {
            (TransitOutcome::Reset(why), _) => {
                self.record_injection(in_flight.id, why);
                Err(true)
            }
            (_, DeliveryOutcome::LostBeforeEffect { silently }) => {
                self.record_injection(in_flight.id, "lost before it took effect");
                Err(*silently)
            }
            (_, DeliveryOutcome::Rejected(status)) => {
                self.record_injection(
                    in_flight.id,
                    format!("rejected with {} {}", status.code, status.reason),
                );
                Ok(injected_errors::response(status))
            }
            (TransitOutcome::TimedOut, _) => {
                self.record_injection(in_flight.id, "timed out at the server without effect");
                Ok(injected_errors::response(&injected_errors::timed_out()))
            }
            (TransitOutcome::Through, _) => Ok(self.serve(&in_flight, request).await),
        };
        if in_flight.fatal {
            return self.kill_sender_at(&in_flight, &arrived);
        }
        let response = match arrived {
            Ok(response) => response,
            Err(silently) => return lose(silently, answer),
        };
        world
            .sleep(
                in_flight.effects.response_delay
                    + transfer_time(&response, in_flight.effects.ms_per_megabyte),
            )
            .await;
        match in_flight.effects.outcome {
            DeliveryOutcome::LostAfterEffect { silently } => {
                self.record_injection(in_flight.id, format!("response {} lost", response.status().as_u16()));
                lose(silently, answer);
            }
            // A server rejects an invalid write before it waits for its storage.
            DeliveryOutcome::RejectedAfterEffect(status) if response.status().is_success() => {
                self.record_injection(in_flight.id, format!("took effect; answered with {}", status.code));
                drop(answer.send(Ok(injected_errors::response(&status))));
            }
            _ if self.is_partitioned() => self.record_injection(in_flight.id, "response lost in a partition"),
            // The receiver is gone if the sender has timed out.
            _ => drop(answer.send(Ok(response))),
        }
    }

    fn times(&self, InFlightRequest { effects, timeout, request, .. }: &InFlightRequest) -> Times {
        let is_bounded = timeout.is_some() && request.is_write();
        let transit = effects.request_delay;
        // TCP closes a connection whose data stays unacknowledged for longer.
        let transit = if is_bounded { transit.min(self.bounds.user_timeout) } else { transit };
        let curtailed = if is_bounded { self.bounds.curtailed } else { Duration::ZERO };
        Times {
            connect: effects.connect_delay,
            transit,
            processing: effects.processing,
            // A fenced client computes its timeout after it has connected.
            timeout: timeout.map(|timeout| timeout.saturating_sub(effects.connect_delay + curtailed)),
            half_open: effects.half_open,
        }
    }

    /// Kills the sender at this write, whatever the outcome of the write.
    fn kill_sender_at(&self, in_flight: &InFlightRequest, arrived: &Result<Response<Body>, bool>) {
        let took_effect = arrived.as_ref().is_ok_and(|response| response.status().is_success());
        let how = if took_effect { "after" } else { "without any effect of" };
        self.note(format!("dies {how} #{}", in_flight.id));
        self.sender.kill();
    }

    async fn serve(self: &Arc<Self>, in_flight: &InFlightRequest, request: Request<Bytes>) -> Response<Body> {
        let server = self.network.server_for(in_flight.effects.stale);
        if in_flight.effects.stale.is_some() {
            self.record_injection(in_flight.id, "served by a stale replica");
        }
        let answered = match catch_panic(server.answer(request)).await {
            Ok(response) => response,
            Err(message) => {
                let message = format!("the server panicked: {message}");
                self.record(RecordKind::Broken(message.clone()));
                injected_errors::response(&Status::internal(message))
            }
        };
        let (parts, body) = answered.into_parts();
        let code = parts.status.as_u16();
        let (id, asked) = (in_flight.id, Arc::clone(&in_flight.request));
        if body.is_stream() {
            self.record(RecordKind::Served { id, request: asked, code, body: Bytes::new() });
            let watched = FaultyWatch::new(
                self,
                in_flight.id,
                &in_flight.request,
                body,
                in_flight.effects.poisoned.clone(),
            );
            return Response::from_parts(parts, Body::stream(watched));
        }
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let kept = if asked.is_write() { body.clone() } else { Bytes::new() };
        self.record(RecordKind::Served { id, request: asked, code, body: kept });
        let body = if in_flight.effects.poisoned.is_empty() {
            body
        } else {
            poison_list(&body, &in_flight.effects.poisoned)
        };
        Response::from_parts(parts, Body::from_bytes(body))
    }

    /// Returns whether the link is partitioned now.
    fn is_partitioned(&self) -> bool {
        self.rng().is_partitioned || self.open_at(self.network.now()) > self.network.now()
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
    go_json::encode(&list).into()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("who", &self.end.process).finish_non_exhaustive()
    }
}
