//! A watch stream with faults: delays, omits and duplicates events in order, and ends the watch.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::future::{BoxFuture, FutureExt as _};
use http_body::Body as _;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_env::Instant;

use super::effects::ActiveFault;
use super::injected_errors;
use super::journal::RecordKind;
use super::plan::{Fault, FaultAction};
use super::request_summary::RequestSummary;
use super::sender::LinkEndpoint;
use crate::body::{Body, BodyError};

/// A fault that ends a watch is injected within this time after the watch opens: clients reopen watches every few
/// minutes.
const HORIZON: Duration = Duration::from_secs(300);

/// Marks the bookmark that ends an initial list.
const END_BOOKMARK: &str = "k8s.io/initial-events-end";

/// The events of one watch.
pub(super) struct FaultyWatch {
    link: Arc<LinkEndpoint>,
    id: u64,
    request: Arc<RequestSummary>,
    source: Body,
    /// The beginning of an event that is still incomplete.
    incomplete_event: BytesMut,
    /// Items in flight, in order, with the true time of their arrival.
    under_way: VecDeque<(Duration, StreamItem)>,
    scheduled_fault: Option<(Duration, FaultAction)>,
    timer: Option<(Duration, BoxFuture<'static, ()>)>,
    source_ended: bool,
    state: State,
    poisoned: Vec<String>,
}

enum StreamItem {
    Event(Bytes, EventHeader),
    End,
    Reset,
}

impl StreamItem {
    /// Returns the header of an event, which is missing in the item if no fault required it.
    fn header(&self) -> Option<EventHeader> {
        match self {
            Self::Event(frame, head) if head.kind.is_empty() => Some(header(frame)),
            Self::Event(_, head) => Some(head.clone()),
            Self::End | Self::Reset => None,
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum State {
    Open,
    /// Sends no more data.
    Stalled,
    Over,
}

/// Header of an event, parsed only if a fault requires it.
#[derive(Clone, Debug, Default, Deserialize)]
struct EventHeader {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    object: ObjectHead,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ObjectHead {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: MetaHead,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct MetaHead {
    #[serde(default)]
    uid: String,
    #[serde(rename = "resourceVersion", default)]
    version: String,
}

/// Effects of the current faults on one event.
#[derive(Default)]
struct EventFaults {
    late: Duration,
    twice: bool,
    coalesced: bool,
    no_bookmarks: bool,
    no_end_bookmark: bool,
    /// The fault that ends the watch instead of this event.
    end: Option<FaultAction>,
}

impl EventFaults {
    fn add(&mut self, active_fault: &mut ActiveFault) {
        match active_fault.fault.action {
            FaultAction::WatchDelayed { by_ms } => self.late += active_fault.delay(by_ms),
            FaultAction::EventDuplicated => self.twice = true,
            FaultAction::Coalesced { within_ms } => {
                self.coalesced = true;
                self.late += Duration::from_millis(within_ms);
            }
            FaultAction::BookmarksMissing => self.no_bookmarks = true,
            FaultAction::EndBookmarkMissing => self.no_end_bookmark = true,
            _ => {}
        }
    }
}

impl FaultyWatch {
    pub(super) fn new(
        link: &Arc<LinkEndpoint>,
        id: u64,
        request: &Arc<RequestSummary>,
        source: Body,
        poisoned: Vec<String>,
    ) -> Self {
        let now = link.network.now();
        let scheduled_fault = first_scheduled_fault(&mut link.rng().active_faults, request, now);
        FaultyWatch {
            link: Arc::clone(link),
            id,
            request: Arc::clone(request),
            source,
            incomplete_event: BytesMut::new(),
            under_way: VecDeque::new(),
            scheduled_fault,
            timer: None,
            source_ended: false,
            state: State::Open,
            poisoned,
        }
    }

    /// Reads the available data of the server and queues it.
    fn load(&mut self, cx: &mut Context<'_>) {
        while !self.source_ended {
            match Pin::new(&mut self.source).poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.take(bytes);
                    }
                }
                Poll::Ready(Some(Err(BodyError::Truncated))) => self.finish(StreamItem::Reset),
                Poll::Ready(None) => self.finish(StreamItem::End),
            }
        }
    }

    fn finish(&mut self, item: StreamItem) {
        self.source_ended = true;
        self.send(item, Duration::ZERO);
    }

    /// Splits received bytes into events.
    fn take(&mut self, bytes: Bytes) {
        let whole = self.incomplete_event.is_empty() && bytes.last() == Some(&b'\n');
        if whole && bytes.iter().filter(|byte| **byte == b'\n').count() == 1 {
            return self.event(bytes);
        }
        self.incomplete_event.extend_from_slice(&bytes);
        while let Some(at) = self.incomplete_event.iter().position(|byte| *byte == b'\n') {
            let event = self.incomplete_event.split_to(at + 1).freeze();
            self.event(event);
        }
    }

    fn event(&mut self, frame: Bytes) {
        let event_faults = self.event_faults();
        if let Some(action) = &event_faults.end {
            return self.apply_ending_fault(action);
        }
        let frame = if self.poisoned.is_empty() { frame } else { poison_frame(&frame, &self.poisoned) };
        let looked_at = event_faults.coalesced || event_faults.no_bookmarks || event_faults.no_end_bookmark;
        let head = if looked_at { header(&frame) } else { EventHeader::default() };
        if head.kind == "BOOKMARK" {
            let ends_list = contains(&frame, END_BOOKMARK);
            if if ends_list { event_faults.no_end_bookmark } else { event_faults.no_bookmarks } {
                return self.link.record_injection(self.id, "bookmark omitted");
            }
        }
        if event_faults.coalesced && head.kind == "DELETED" && self.forget(&head) {
            if self.request.names("allowWatchBookmarks") {
                self.send(StreamItem::Event(bookmark(&head), EventHeader::default()), event_faults.late);
            }
            return;
        }
        if event_faults.twice {
            self.link.record_injection(self.id, "event duplicated");
            self.send(StreamItem::Event(frame.clone(), head.clone()), event_faults.late);
        }
        self.send(StreamItem::Event(frame, head), event_faults.late);
    }

    /// Removes queued events of a deleted object. Returns whether the client never sees the object.
    fn forget(&mut self, deleted: &EventHeader) -> bool {
        let is_same = |head: &EventHeader| head.object.metadata.uid == deleted.object.metadata.uid;
        let mut events = self.under_way.iter().filter_map(|(_, item)| item.header()).filter(is_same);
        let added = events.any(|head| head.kind == "ADDED");
        if added {
            self.link.record_injection(self.id, "object added and deleted unseen");
            self.under_way.retain(|(_, item)| !item.header().is_some_and(|head| is_same(&head)));
        }
        added
    }

    /// Queues an item behind all earlier items.
    fn send(&mut self, item: StreamItem, late: Duration) {
        let random_latency = self.link.rng().random_latency();
        let arrival = self.link.delivered_at(&self.request, self.link.network.now() + random_latency + late);
        let arrival = self.under_way.back().map_or(arrival, |(last, _)| arrival.max(*last));
        self.under_way.push_back((arrival, item));
    }

    fn event_faults(&self) -> EventFaults {
        let (now, mut event_faults) = (self.link.network.now(), EventFaults::default());
        let mut rng = self.link.rng();
        let about_events = |fault: &Fault| {
            matches!(
                fault.action,
                FaultAction::WatchDelayed { .. }
                    | FaultAction::EventDuplicated
                    | FaultAction::Coalesced { .. }
                    | FaultAction::BookmarksMissing
                    | FaultAction::EndBookmarkMissing
            ) && fault.is_on(now)
                && fault.matches(&self.request)
        };
        for active_fault in
            rng.active_faults.iter_mut().filter(|active_fault| about_events(&active_fault.fault))
        {
            if !active_fault.is_injected_now() {
                continue;
            }
            event_faults.add(active_fault);
        }
        if let Some(active_fault) = rng.choose_injected(&self.request) {
            event_faults.add(active_fault);
            event_faults.end = Some(active_fault.fault.action.clone()).filter(ends_watches);
        }
        if rng.is_partitioned {
            event_faults.end = Some(FaultAction::WatchReset);
        }
        event_faults
    }

    fn apply_ending_fault(&mut self, action: &FaultAction) {
        self.link.record_injection(self.id, format!("{action:?}"));
        let item = match action {
            FaultAction::WatchStalled => {
                self.state = State::Stalled;
                return;
            }
            FaultAction::WatchExpired => {
                let status = injected_errors::json(&injected_errors::expired());
                let event =
                    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", String::from_utf8_lossy(&status));
                self.under_way.clear();
                self.under_way
                    .push_back((Duration::ZERO, StreamItem::Event(event.into(), EventHeader::default())));
                StreamItem::End
            }
            FaultAction::WatchReset => {
                self.under_way.clear();
                StreamItem::Reset
            }
            // Items in flight still arrive.
            _ => StreamItem::End,
        };
        self.source_ended = true;
        let arrival = self.under_way.back().map_or(Duration::ZERO, |(last, _)| *last);
        self.under_way.push_back((arrival, item));
    }

    /// Returns the next item that has arrived by now.
    fn arrived(&mut self, now: Duration) -> Option<StreamItem> {
        let due = self.under_way.front().is_some_and(|(arrival, _)| *arrival <= now);
        if due { self.under_way.pop_front().map(|(_, item)| item) } else { None }
    }

    fn deliver(&mut self, item: StreamItem) -> Option<Result<Bytes, BodyError>> {
        match item {
            StreamItem::Event(frame, _) => {
                let (id, request) = (self.id, Arc::clone(&self.request));
                self.link.record(RecordKind::WatchEventSent { id, request, frame: frame.clone() });
                return Some(Ok(frame));
            }
            StreamItem::End | StreamItem::Reset => {}
        }
        self.state = State::Over;
        self.link.record(RecordKind::Ended { id: self.id });
        if matches!(item, StreamItem::Reset) { Some(Err(BodyError::Truncated)) } else { None }
    }

    /// Waits for the next arrival or fault. Returns `Ready` if there is work already.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let arrival = self.under_way.front().map(|(arrival, _)| *arrival);
        let scheduled_fault = self.scheduled_fault.as_ref().map(|(at, _)| *at);
        let Some(next) = [arrival, scheduled_fault].into_iter().flatten().min() else {
            self.timer = None;
            return Poll::Pending;
        };
        if self.timer.as_ref().is_none_or(|(at, _)| *at != next) {
            let world = &self.link.network.world;
            self.timer = Some((next, world.sleep_until(Instant::ORIGIN + next).boxed()));
        }
        match &mut self.timer {
            Some((_, timer)) => timer.poll_unpin(cx),
            None => Poll::Pending,
        }
    }
}

impl Stream for FaultyWatch {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watched = &mut *self;
        loop {
            match watched.state {
                State::Over => return Poll::Ready(None),
                State::Stalled => return Poll::Pending,
                State::Open => {}
            }
            watched.load(cx);
            let now = watched.link.network.now();
            if let Some(item) = watched.arrived(now) {
                return Poll::Ready(watched.deliver(item));
            }
            if let Some((_, action)) = watched.scheduled_fault.take_if(|(at, _)| *at <= now) {
                watched.apply_ending_fault(&action);
                continue;
            }
            if watched.wait(cx).is_pending() {
                return Poll::Pending;
            }
            watched.timer = None;
        }
    }
}

fn ends_watches(action: &FaultAction) -> bool {
    matches!(
        action,
        FaultAction::WatchStalled
            | FaultAction::WatchClosed
            | FaultAction::WatchReset
            | FaultAction::WatchExpired
    )
}

/// Returns the first fault that ends or stalls a watch opened now.
fn first_scheduled_fault(
    active_faults: &mut [ActiveFault],
    request: &RequestSummary,
    now: Duration,
) -> Option<(Duration, FaultAction)> {
    let ending = |fault: &Fault| {
        (ends_watches(&fault.action) || fault.action == FaultAction::ServerDies)
            && fault.matches(request)
            && fault.ends() > now
            && fault.begins() < now + HORIZON
    };
    let mut first: Option<(Duration, FaultAction)> = None;
    for active_fault in active_faults.iter_mut().filter(|active_fault| ending(&active_fault.fault)) {
        if !active_fault.is_injected_now() {
            continue;
        }
        if active_fault.fault.action == FaultAction::ServerDies {
            if active_fault.fault.begins() >= now
                && first.as_ref().is_none_or(|(at, _)| active_fault.fault.begins() < *at)
            {
                first = Some((active_fault.fault.begins(), FaultAction::WatchStalled));
            }
            continue;
        }
        let begin = active_fault.fault.begins().max(now);
        let end = active_fault.fault.ends().min(begin + HORIZON);
        let span = u64::try_from(end.saturating_sub(begin).as_millis()).unwrap_or(u64::MAX).max(1);
        let at = begin + Duration::from_millis(active_fault.rng.below(span));
        if first.as_ref().is_none_or(|(earlier, _)| at < *earlier) {
            first = Some((at, active_fault.fault.action.clone()));
        }
    }
    first
}

fn header(frame: &Bytes) -> EventHeader {
    serde_json::from_slice(frame).unwrap_or_default()
}

/// Returns the bookmark that replaces an omitted object.
fn bookmark(head: &EventHeader) -> Bytes {
    let ObjectHead { api_version, kind, metadata } = &head.object;
    let object = json!({
        "kind": kind, "apiVersion": api_version, "metadata": { "resourceVersion": metadata.version },
    });
    format!("{}\n", json!({ "type": "BOOKMARK", "object": object })).into()
}

fn poison_frame(frame: &Bytes, names: &[String]) -> Bytes {
    let Ok(mut event) = serde_json::from_slice::<Value>(frame) else { return frame.clone() };
    if !poison(&mut event["object"], names) {
        return frame.clone();
    }
    format!("{event}\n").into()
}

/// Corrupts an object with one of these names: kind and metadata stay, all other fields become numbers. Returns
/// whether the name matches.
pub(super) fn poison(object: &mut Value, names: &[String]) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let hit = names.iter().any(|poisoned| poisoned == name);
    if let Some(fields) = object.as_object_mut().filter(|_| hit) {
        fields.entry("spec").or_insert(Value::Null);
        for (name, value) in fields.iter_mut() {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                *value = json!(7);
            }
        }
    }
    hit
}

fn contains(frame: &Bytes, text: &str) -> bool {
    frame.windows(text.len()).any(|window| window == text.as_bytes())
}
