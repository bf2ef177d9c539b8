//! What a handler has yet to be told of one object: the path the object took since.
//!
//! Guarantees:
//! - Every state on the path is told, in order and each from the one before it. Whoever reads the store may
//!   have acted on any of them, so none is worth less for being followed by another.
//! - At most [`MAX_STATES`] states wait. Beyond that, states in between are dropped, the oldest first, and
//!   the updates around them become one. The first state (what was told last, or else the addition), the
//!   newest ones and the deletion stay. This is the one thing a slow handler can miss.

use std::collections::VecDeque;

use windlass_object::{ObjectKey, Uid};

use crate::handler::{Cause, DeletionEvidence, Event};

/// How many states of one object wait for a handler at most, its deletion included. More than an ordinary
/// object goes through in its life, so what is dropped are steps of something that changes all the time; and
/// few enough that many objects may wait.
pub(super) const MAX_STATES: usize = 16;

/// The untold changes of one object, that is of one key and UID.
#[derive(Debug)]
pub(super) struct Pending<T> {
    key: ObjectKey,
    uid: Option<Uid>,
    /// What the handler was last told of it; `None` if nothing.
    told: Option<T>,
    /// Whether it begins with the initial list.
    initial: bool,
    /// What became of it since, oldest first. Never empty, and never an end right after an end.
    path: VecDeque<Step<T>>,
}

#[derive(Debug)]
enum Step<T> {
    Present(T, Cause),
    Gone(T, DeletionEvidence, Cause),
}

impl<T: Clone> Pending<T> {
    pub(super) fn new(key: ObjectKey, uid: Option<Uid>, event: Event<T>) -> Self {
        let told = match &event {
            Event::Updated { old, .. } => Some(old.clone()),
            Event::Added { .. } | Event::Deleted { .. } => None,
        };
        let initial = event.cause() == Cause::InitialList;
        Self { key, uid, told, initial, path: VecDeque::from([Step::of(event)]) }
    }

    pub(super) fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Whether it began as a part of the initial list.
    pub(super) fn is_initial(&self) -> bool {
        self.initial
    }

    /// Whether a change of `uid` continues this path. Without identities what follows a deletion may be
    /// another object.
    pub(super) fn takes(&self, uid: Option<&Uid>) -> bool {
        self.uid.as_ref() == uid && (uid.is_some() || !self.path.iter().any(Step::is_gone))
    }

    /// Whether the object came and went without the handler having received an event for it.
    pub(super) fn is_unseen_and_gone(&self) -> bool {
        let came = self.path.front().is_some_and(|step| !step.is_gone());
        self.told.is_none() && came && self.path.back().is_some_and(Step::is_gone)
    }

    /// Continues the path; `false` if a state in between had to be dropped for it.
    pub(super) fn add(&mut self, event: Event<T>) -> bool {
        let step = Step::of(event);
        if step.is_gone() && self.path.back().is_some_and(Step::is_gone) {
            // Of two ends of one object the later knows more.
            self.path.pop_back();
        }
        self.path.push_back(step);
        let fits = self.path.len() <= MAX_STATES;
        if !fits {
            self.shorten();
        }
        fits
    }

    /// The path as it is to be told.
    pub(super) fn into_events(self) -> impl Iterator<Item = Event<T>> {
        let mut known = self.told;
        self.path.into_iter().map(move |step| match step {
            Step::Gone(last, observed, cause) => {
                known = None;
                Event::Deleted { last, observed, cause }
            }
            Step::Present(now, cause) => match known.replace(now.clone()) {
                Some(old) => Event::Updated { old, new: now, cause },
                None => Event::Added { object: now, cause },
            },
        })
    }

    /// Drops the oldest state in between. If there is none, the object did nothing but come and go under one
    /// UID; then its oldest coming and going are dropped, and a later deletion stands for the dropped one.
    fn shorten(&mut self) {
        let is_between = |i: &usize| self.is_update(*i) && i + 1 < self.path.len();
        match (0..self.path.len()).find(is_between) {
            Some(oldest) => drop(self.path.remove(oldest)),
            None => drop(self.path.drain(..2)),
        }
    }

    /// Whether step `i` will be told as an update.
    fn is_update(&self, i: usize) -> bool {
        let follows_a_state = match i.checked_sub(1) {
            Some(before) => !self.path[before].is_gone(),
            None => self.told.is_some(),
        };
        follows_a_state && !self.path[i].is_gone()
    }

    /// How many states wait.
    #[cfg(test)]
    pub(super) fn states(&self) -> usize {
        self.path.len()
    }
}

impl<T> Step<T> {
    fn of(event: Event<T>) -> Self {
        match event {
            Event::Added { object, cause } => Step::Present(object, cause),
            Event::Updated { new, cause, .. } => Step::Present(new, cause),
            Event::Deleted { last, observed, cause } => Step::Gone(last, observed, cause),
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Step::Gone(..))
    }
}
