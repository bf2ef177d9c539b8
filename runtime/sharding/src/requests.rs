//! The requests of the election in flight, and its watch. No decisions.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{self, BoxFuture};
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::coordination::v1::Lease;
use windlass_client::{FrameStream, RequestError};
use windlass_election::lease::{self, LeaseApi, LeaseError, WatchScope};
use windlass_env::Env;
use windlass_object::wire::Frame;

use crate::engine::{LeaseUpdate, Request, RequestTarget, Response};

/// An input of the engine.
pub(crate) enum Input {
    Response { request_id: u64, target: RequestTarget, response: Box<Response> },
    WatchEvent(Box<LeaseUpdate>),
}

type RequestFuture = BoxFuture<'static, (u64, RequestTarget, Completion)>;

/// The result of a request.
enum Completion {
    Response(Box<Response>),
    Stream(Result<FrameStream, RequestError>),
}

/// The requests in flight, and the open watch.
pub(crate) struct LeaseRequests {
    env: Env,
    api: LeaseApi,
    /// The label selector of all Leases of the election.
    label: String,
    in_flight: FuturesUnordered<RequestFuture>,
    watch: Option<FrameStream>,
}

impl LeaseRequests {
    pub(crate) fn new(env: Env, api: LeaseApi, label: String) -> Self {
        Self { env, api, label, in_flight: FuturesUnordered::new(), watch: None }
    }

    /// Adds a request. It is sent when [`next`](Self::next) is polled.
    pub(crate) fn send(
        &mut self,
        request_id: u64,
        target: RequestTarget,
        request: Request,
        within: Duration,
    ) {
        if let Request::Watch(_) = request {
            self.watch = None;
        }
        let (env, api, label) = (self.env.clone(), self.api.clone(), self.label.clone());
        self.in_flight.push(Box::pin(async move {
            let sent = env.timeout(within, send(&api, &label, request)).await;
            let timeout = || Completion::Response(Box::new(Response::Failed(LeaseError::Timeout(within))));
            (request_id, target, sent.unwrap_or_else(|_| timeout()))
        }));
    }

    pub(crate) fn stop_watch(&mut self) {
        self.watch = None;
    }

    /// Waits for the next response or watch event; `None` if the event has no meaning for the engine.
    ///
    /// # Cancel safety
    /// Safe: requests continue with the next call.
    pub(crate) async fn next(&mut self) -> Option<Input> {
        let (in_flight, watch) = (&mut self.in_flight, &mut self.watch);
        tokio::select! {
            biased;
            Some((request_id, target, completion)) = in_flight.next(), if !in_flight.is_empty() => {
                Some(self.complete(request_id, target, completion))
            }
            frame = next_frame(watch) => self.on_frame(frame).map(|update| Input::WatchEvent(Box::new(update))),
        }
    }

    fn complete(&mut self, request_id: u64, target: RequestTarget, completion: Completion) -> Input {
        let response = match completion {
            Completion::Response(response) => response,
            Completion::Stream(Ok(stream)) => {
                self.watch = Some(stream);
                Box::new(Response::Watching)
            }
            Completion::Stream(Err(error)) => {
                Box::new(Response::Failed(LeaseError::Request(error.to_string())))
            }
        };
        Input::Response { request_id, target, response }
    }

    fn on_frame(&mut self, frame: Option<Result<Frame, RequestError>>) -> Option<LeaseUpdate> {
        let update = match frame {
            Some(Ok(Frame::Added(raw) | Frame::Modified(raw))) => parse(&raw).map(LeaseUpdate::Changed),
            Some(Ok(Frame::Deleted(raw))) => parse(&raw).map(LeaseUpdate::Deleted),
            Some(Ok(Frame::Bookmark { version, .. })) => Some(LeaseUpdate::Progress(version)),
            Some(Ok(Frame::Unknown(_))) => return None,
            Some(Ok(Frame::Error(_)) | Err(_)) | None => None,
        };
        if update.is_none() {
            self.watch = None;
        }
        Some(update.unwrap_or(LeaseUpdate::Ended))
    }
}

async fn send(api: &LeaseApi, label: &str, request: Request) -> Completion {
    let response = match request {
        Request::List => api.list(label).await.map(|(version, leases)| Response::Listed(version, leases)),
        Request::Watch(version) => {
            let version = version.as_ref().map_or("", |version| version.as_str());
            return Completion::Stream(api.watch(WatchScope::Label(label), version).await);
        }
        Request::Get(name) => api.get(&name).await.map(Response::Got),
        Request::Write(write) => api.write(&write).await.map(Response::Written),
        Request::Delete(lease) => api.delete(&lease).await.map(|()| Response::Deleted),
    };
    Completion::Response(Box::new(response.unwrap_or_else(Response::Failed)))
}

/// Waits for the next frame of the watch, forever if there is no watch.
async fn next_frame(watch: &mut Option<FrameStream>) -> Option<Result<Frame, RequestError>> {
    match watch {
        Some(stream) => stream.next().await,
        None => future::pending().await,
    }
}

/// Parses a Lease. An invalid frame ends the watch; the list that follows reports the error.
fn parse(raw: &[u8]) -> Option<Lease> {
    lease::decode(raw).ok()
}
