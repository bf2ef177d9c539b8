//! The network between engines and server: delays, losses, and the watches.

use std::time::Duration;

use windlass_election::lease::LeaseError;
use windlass_object::ResourceVersion;

use super::{Event, LATEST, MILLI, SECOND, Wire, World};
use crate::engine::{LeaseUpdate, Request, RequestTarget, Response};

/// The watch of one replica.
pub(super) struct Watcher {
    id: u64,
    pub(super) replica: usize,
    last: u64,
    pub(super) stalled: bool,
}

impl World {
    pub(super) fn send(
        &mut self,
        number: usize,
        request_id: u64,
        target: RequestTarget,
        request: Request,
        within: Duration,
    ) {
        let timeout = self.when(number, self.local(number) + within);
        let answer = Response::Failed(LeaseError::Timeout(within));
        self.at(timeout, number, Event::Answer { request_id, target, answer, watch: None });
        let short = |world: &mut Self| world.between(MILLI, 8 * MILLI);
        let (there, back, lost) = match self.replicas[number].wire {
            Wire::Good => (short(self), Some(short(self)), false),
            Wire::ResponsesLate => {
                let back = self.between(SECOND, 8 * SECOND);
                (short(self), Some(back).filter(|_| !self.chance(30)), false)
            }
            Wire::RequestsLate => (self.between(SECOND, LATEST), Some(short(self)), self.chance(20)),
            Wire::Cut => (0, None, true),
        };
        if !lost {
            self.at(self.now + there, number, Event::Arrive { request_id, target, request, back });
        }
    }

    pub(super) fn arrive(
        &mut self,
        number: usize,
        request_id: u64,
        target: RequestTarget,
        request: Request,
        back: Option<u64>,
    ) {
        let mut watch = None;
        let answer = if self.outage {
            Response::Failed(LeaseError::Request("503: the server is not there".to_owned()))
        } else if let Request::Watch(from) = &request {
            watch = Some(self.sequence);
            let shown_from = self.now + back.unwrap_or(0);
            self.watch(number, self.sequence, from.as_ref(), shown_from);
            Response::Watching
        } else {
            let written = matches!(request, Request::Write(_));
            let answer = self.server.serve(request).unwrap_or_else(Response::Failed);
            self.figures.writes += u64::from(written);
            self.figures.conflicts += u64::from(matches!(answer, Response::Failed(LeaseError::Conflict)));
            self.broadcast();
            answer
        };
        if let Some(back) = back {
            self.at(self.now + back, number, Event::Answer { request_id, target, answer, watch });
        }
    }

    fn watch(&mut self, replica: usize, id: u64, from: Option<&ResourceVersion>, shown_from: u64) {
        let from: u64 = from.and_then(|version| version.as_str().parse().ok()).unwrap_or(0);
        self.watchers.retain(|watcher| watcher.replica != replica);
        let missed: Vec<LeaseUpdate> = self
            .server
            .log
            .iter()
            .filter(|(version, _)| *version > from)
            .map(|(_, lease_update)| lease_update.clone())
            .collect();
        self.watchers.push(Watcher { id, replica, last: shown_from, stalled: false });
        for lease_update in missed {
            self.show(self.watchers.len() - 1, lease_update);
        }
    }

    /// Shows all new writes to all watches.
    pub(super) fn broadcast(&mut self) {
        while let Some(lease_update) = self.server.unshown() {
            for watcher in 0..self.watchers.len() {
                self.show(watcher, lease_update.clone());
            }
        }
    }

    fn show(&mut self, watcher: usize, lease_update: LeaseUpdate) {
        let delay = self.between(MILLI, 8 * MILLI);
        let Watcher { id, replica, last, .. } = self.watchers[watcher];
        let delay = match self.replicas[replica].wire {
            Wire::Cut => {
                self.watchers[watcher].stalled = true;
                delay
            }
            Wire::ResponsesLate => delay * 100,
            Wire::Good | Wire::RequestsLate => delay,
        };
        if !self.watchers[watcher].stalled {
            let at = (self.now + delay).max(last + 1);
            self.watchers[watcher].last = at;
            self.at(at, replica, Event::Shown { watch: id, lease_update });
        }
    }

    /// Ends the watch of a replica.
    pub(in super::super) fn end_watch(&mut self, replica: usize) {
        let ended: Vec<u64> = self
            .watchers
            .iter()
            .filter(|watcher| watcher.replica == replica)
            .map(|watcher| watcher.id)
            .collect();
        self.watchers.retain(|watcher| watcher.replica != replica);
        for watch in ended {
            self.at(self.now + MILLI, replica, Event::Shown { watch, lease_update: LeaseUpdate::Ended });
        }
    }
}
