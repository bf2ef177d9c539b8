//! Turns events, triggers, timers, polls and streams into keys on the queue, and holds the reasons for which keys are
//! not reconciled.

pub(crate) mod enqueuer;
pub(crate) mod history;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod pause;
pub(crate) mod poll;
pub mod predicate;
pub(crate) mod quarantine;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod timer;
pub(crate) mod trigger;
pub(crate) mod undecodable;
pub(crate) mod watch;
pub(crate) mod watches;
pub(crate) mod wiring;
