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
use super::journal::RecordKind;
use super::plan::{Fault, FaultAction};
use super::refusals;
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
    line: Arc<LinkEndpoint>,
    id: u64,
    asked: Arc<RequestSummary>,
    source: Body,
    /// The beginning of an event that is still incomplete.
    begun: BytesMut,
    /// Items in flight, in order, with the true time of their arrival.
    under_way: VecDeque<(Duration, StreamItem)>,
    strike: Option<(Duration, FaultAction)>,
    timer: Option<(Duration, BoxFuture<'static, ()>)>,
    source_ended: bool,
    state: State,
    poisoned: Vec<String>,
}

enum StreamItem {
    Event(Bytes, EventHeader),
    End,
    Cut,
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
    fn suffer(&mut self, threat: &mut ActiveFault) {
        match threat.fault.what {
            FaultAction::WatchDelayed { by_ms } => self.late += threat.delay(by_ms),
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
        line: &Arc<LinkEndpoint>,
        id: u64,
        asked: &Arc<RequestSummary>,
        source: Body,
        poisoned: Vec<String>,
    ) -> Self {
        let now = line.network.now();
        let strike = first_strike(&mut line.chance().threats, asked, now);
        FaultyWatch {
            line: Arc::clone(line),
            id,
            asked: Arc::clone(asked),
            source,
            begun: BytesMut::new(),
            under_way: VecDeque::new(),
            strike,
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
                Poll::Ready(Some(Err(BodyError::Truncated))) => self.finish(StreamItem::Cut),
                Poll::Ready(None) => self.finish(StreamItem::End),
            }
        }
    }

    fn finish(&mut self, cargo: StreamItem) {
        self.source_ended = true;
        self.send(cargo, Duration::ZERO);
    }

    /// Splits received bytes into events.
    fn take(&mut self, bytes: Bytes) {
        let whole = self.begun.is_empty() && bytes.last() == Some(&b'\n');
        if whole && bytes.iter().filter(|byte| **byte == b'\n').count() == 1 {
            return self.event(bytes);
        }
        self.begun.extend_from_slice(&bytes);
        while let Some(at) = self.begun.iter().position(|byte| *byte == b'\n') {
            let event = self.begun.split_to(at + 1).freeze();
            self.event(event);
        }
    }

    fn event(&mut self, frame: Bytes) {
        let treatment = self.treatment();
        if let Some(what) = &treatment.end {
            return self.struck(what);
        }
        let frame = if self.poisoned.is_empty() { frame } else { poison_frame(&frame, &self.poisoned) };
        let looked_at = treatment.coalesced || treatment.no_bookmarks || treatment.no_end_bookmark;
        let head = if looked_at {
            serde_json::from_slice(&frame).unwrap_or_default()
        } else {
            EventHeader::default()
        };
        if head.kind == "BOOKMARK" {
            let ends_list = contains(&frame, END_BOOKMARK);
            if if ends_list { treatment.no_end_bookmark } else { treatment.no_bookmarks } {
                return self.line.struck(self.id, "bookmark omitted");
            }
        }
        if treatment.coalesced && head.kind == "DELETED" && self.forget(&head) {
            if self.asked.names("allowWatchBookmarks") {
                self.send(StreamItem::Event(bookmark(&head), EventHeader::default()), treatment.late);
            }
            return;
        }
        if treatment.twice {
            self.line.struck(self.id, "event duplicated");
            self.send(StreamItem::Event(frame.clone(), head.clone()), treatment.late);
        }
        self.send(StreamItem::Event(frame, head), treatment.late);
    }

    /// Removes queued events of a deleted object. Returns whether the client never sees the object.
    fn forget(&mut self, deleted: &EventHeader) -> bool {
        let same = |cargo: &StreamItem| matches!(cargo, StreamItem::Event(_, head) if head.object.metadata.uid == deleted.object.metadata.uid);
        let added = self.under_way.iter().any(|(_, cargo)| {
            same(cargo) && matches!(cargo, StreamItem::Event(_, head) if head.kind == "ADDED")
        });
        if added {
            self.line.struck(self.id, "object added and deleted unseen");
            self.under_way.retain(|(_, cargo)| !same(cargo));
        }
        added
    }

    /// Queues an item behind all earlier items.
    fn send(&mut self, cargo: StreamItem, late: Duration) {
        let leg = self.line.chance().leg();
        let arrival = self.line.delivered_at(&self.asked, self.line.network.now() + leg + late);
        let arrival = self.under_way.back().map_or(arrival, |(last, _)| arrival.max(*last));
        self.under_way.push_back((arrival, cargo));
    }

    fn treatment(&self) -> EventFaults {
        let (now, mut treatment) = (self.line.network.now(), EventFaults::default());
        let mut chance = self.line.chance();
        let about_events = |fault: &Fault| {
            matches!(
                fault.what,
                FaultAction::WatchDelayed { .. }
                    | FaultAction::EventDuplicated
                    | FaultAction::Coalesced { .. }
                    | FaultAction::BookmarksMissing
                    | FaultAction::EndBookmarkMissing
            ) && fault.is_on(now)
                && fault.matches(&self.asked)
        };
        for threat in chance.threats.iter_mut().filter(|threat| about_events(&threat.fault)) {
            if !threat.strikes() {
                continue;
            }
            treatment.suffer(threat);
        }
        if let Some(threat) = chance.by_hand(&self.asked) {
            treatment.suffer(threat);
            treatment.end = Some(threat.fault.what.clone()).filter(ends_watches);
        }
        if chance.cut {
            treatment.end = Some(FaultAction::WatchReset);
        }
        treatment
    }

    fn struck(&mut self, what: &FaultAction) {
        self.line.struck(self.id, format!("{what:?}"));
        let cargo = match what {
            FaultAction::WatchStalled => {
                self.state = State::Stalled;
                return;
            }
            FaultAction::WatchExpired => {
                let status = refusals::json(&refusals::expired());
                let event =
                    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", String::from_utf8_lossy(&status));
                self.under_way.clear();
                self.under_way
                    .push_back((Duration::ZERO, StreamItem::Event(event.into(), EventHeader::default())));
                StreamItem::End
            }
            FaultAction::WatchReset => {
                self.under_way.clear();
                StreamItem::Cut
            }
            // Items in flight still arrive.
            _ => StreamItem::End,
        };
        self.source_ended = true;
        let arrival = self.under_way.back().map_or(Duration::ZERO, |(last, _)| *last);
        self.under_way.push_back((arrival, cargo));
    }

    /// Returns the next item that has arrived by now.
    fn arrived(&mut self, now: Duration) -> Option<StreamItem> {
        let due = self.under_way.front().is_some_and(|(arrival, _)| *arrival <= now);
        if due { self.under_way.pop_front().map(|(_, cargo)| cargo) } else { None }
    }

    fn hand_over(&mut self, cargo: StreamItem) -> Option<Result<Bytes, BodyError>> {
        match cargo {
            StreamItem::Event(frame, _) => {
                let (id, asked) = (self.id, Arc::clone(&self.asked));
                self.line.record(RecordKind::WatchEventSent { id, asked, frame: frame.clone() });
                return Some(Ok(frame));
            }
            StreamItem::End | StreamItem::Cut => {}
        }
        self.state = State::Over;
        self.line.record(RecordKind::Ended { id: self.id });
        if matches!(cargo, StreamItem::Cut) { Some(Err(BodyError::Truncated)) } else { None }
    }

    /// Waits for the next arrival or fault. Returns `Ready` if there is work already.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let arrival = self.under_way.front().map(|(arrival, _)| *arrival);
        let strike = self.strike.as_ref().map(|(at, _)| *at);
        let Some(next) = [arrival, strike].into_iter().flatten().min() else {
            self.timer = None;
            return Poll::Pending;
        };
        if self.timer.as_ref().is_none_or(|(at, _)| *at != next) {
            let world = &self.line.network.world;
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
            let now = watched.line.network.now();
            if let Some(cargo) = watched.arrived(now) {
                return Poll::Ready(watched.hand_over(cargo));
            }
            if let Some((_, what)) = watched.strike.take_if(|(at, _)| *at <= now) {
                watched.struck(&what);
                continue;
            }
            if watched.wait(cx).is_pending() {
                return Poll::Pending;
            }
            watched.timer = None;
        }
    }
}

fn ends_watches(what: &FaultAction) -> bool {
    matches!(
        what,
        FaultAction::WatchStalled
            | FaultAction::WatchClosed
            | FaultAction::WatchReset
            | FaultAction::WatchExpired
    )
}

/// Returns the first fault that ends or stalls a watch opened now.
fn first_strike(
    threats: &mut [ActiveFault],
    asked: &RequestSummary,
    now: Duration,
) -> Option<(Duration, FaultAction)> {
    let ending = |fault: &Fault| {
        (ends_watches(&fault.what) || fault.what == FaultAction::ServerDies)
            && fault.matches(asked)
            && fault.ends() > now
            && fault.begins() < now + HORIZON
    };
    let mut first: Option<(Duration, FaultAction)> = None;
    for threat in threats.iter_mut().filter(|threat| ending(&threat.fault)) {
        if !threat.strikes() {
            continue;
        }
        if threat.fault.what == FaultAction::ServerDies {
            if threat.fault.begins() >= now
                && first.as_ref().is_none_or(|(at, _)| threat.fault.begins() < *at)
            {
                first = Some((threat.fault.begins(), FaultAction::WatchStalled));
            }
            continue;
        }
        let begin = threat.fault.begins().max(now);
        let end = threat.fault.ends().min(begin + HORIZON);
        let span = u64::try_from(end.saturating_sub(begin).as_millis()).unwrap_or(u64::MAX).max(1);
        let at = begin + Duration::from_millis(threat.rng.below(span));
        if first.as_ref().is_none_or(|(earlier, _)| at < *earlier) {
            first = Some((at, threat.fault.what.clone()));
        }
    }
    first
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
