//! Handlers of one informer: initial, late and removed ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_informer::{HandlerHandle, HandlerOptions, SharedInformer};
use windlass_object::ObjectKey;

use super::handler_oracle::{self, CheckingHandler, EventLog, HandlerOracle, TestObject};
use super::history::History;

/// An informer, its handlers, and the violations.
pub(super) struct HandlerSet<T: TestObject> {
    pub(super) informer: SharedInformer<T>,
    pub(super) oracle: Arc<HandlerOracle<T>>,
    pub(super) watchers: Vec<(HandlerHandle, Arc<EventLog>)>,
    history: Arc<History>,
}

impl<T: TestObject> HandlerSet<T> {
    pub(super) fn new(informer: SharedInformer<T>, oracle: HandlerOracle<T>, history: &Arc<History>) -> Self {
        let (oracle, history) = (Arc::new(oracle), Arc::clone(history));
        HandlerSet { informer, oracle, watchers: Vec::new(), history }
    }

    pub(super) fn watch(&mut self, name: &str, panics_every: Option<u64>) -> Arc<EventLog> {
        self.watch_with(name, HandlerOptions::default(), panics_every)
    }

    pub(super) fn watch_with(
        &mut self,
        name: &str,
        options: HandlerOptions,
        panics_every: Option<u64>,
    ) -> Arc<EventLog> {
        let (history, oracle) = (Arc::clone(&self.history), Arc::clone(&self.oracle));
        let (watcher, notes) = CheckingHandler::new(name, history, oracle, options.delivery, panics_every);
        let handle = self.informer.add_handler_with(name, options, watcher).expect("the informer is running");
        let synced = handle.has_synced();
        self.oracle.check(!synced, || format!("{name} is synced before it received an event"));
        self.watchers.push((handle, Arc::clone(&notes)));
        notes
    }

    /// Adds a handler while the informer runs. It must receive events for all objects in the store at that time.
    pub(super) fn watch_late(&mut self) {
        let held = self.informer.lister().list();
        let there = held.iter().map(|it| handler_oracle::identity(&**it)).collect();
        let name = format!("late {}", self.watchers.len());
        self.watch(&name, None).expect_always(there);
    }

    pub(super) fn remove(&mut self, at: usize) {
        if let Some((handle, notes)) = self.watchers.get(at) {
            handle.remove();
            notes.removed.store(true, Ordering::Relaxed);
            self.oracle
                .check(!handle.has_synced(), || "a removed handler reports that it is synced".to_owned());
        }
    }

    /// Performs the checks that hold at any time. A synced handler has received all initial objects, if they
    /// `can_be_read`.
    pub(super) fn check(&self, can_be_read: impl Fn(&ObjectKey, &str) -> bool) {
        self.oracle.check_store();
        for (handle, notes) in self.watchers.iter().filter(|(handle, _)| handle.has_synced()) {
            let owed = notes.missing_events(&can_be_read);
            self.oracle.check(owed.is_empty(), || format!("{handle:?} received no event for {owed:?}"));
        }
    }

    /// Returns a difference of cache or handlers from the expected objects.
    pub(super) fn difference(&self, sound: &BTreeMap<ObjectKey, u64>) -> Option<String> {
        let held = self.informer.lister().list();
        let held: BTreeMap<_, _> =
            held.iter().map(|it| (handler_oracle::key(&**it), handler_oracle::version(&**it))).collect();
        if held != *sound {
            return Some(format!("the cache holds {held:?}, the server {sound:?}"));
        }
        for (handle, notes) in &self.watchers {
            if notes.removed.load(Ordering::Relaxed) || handle.failure().is_some() {
                continue;
            }
            let known = notes.known();
            if known != *sound {
                return Some(format!("{handle:?} knows {known:?}, the server holds {sound:?}"));
            }
            if !handle.has_synced() {
                return Some(format!("{handle:?} is not synced"));
            }
        }
        None
    }

    /// Returns the number of events that handlers received.
    pub(super) fn event_count(&self) -> u64 {
        self.watchers.iter().map(|(_, notes)| notes.log().len() as u64).sum()
    }
}
