//! What a controller leaves behind when its start fails, is dropped or never comes.

use std::fmt;

use futures_util::FutureExt as _;
use futures_util::future;
use windlass_env::TaskGroup;
use windlass_informer::InformerFactory;

use crate::enqueue::trigger::Trigger;

/// What may be left of a controller that does not work: informers of its own, polls, and triggers that keep keys
/// for it. From [`Prepared::remains`](crate::host::Prepared::remains), for whoever may drop its start.
#[derive(Clone)]
pub struct Cleanup {
    pub(crate) controller: &'static str,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) informers: Vec<InformerFactory>,
    pub(crate) polls: TaskGroup,
}

impl Cleanup {
    /// Ends everything: triggers refuse keys, and the controller's own informers and polls are gone when this returns. For a controller that works call it once its [`Workers`](crate::host::Workers) have ended, after
    /// which it changes nothing.
    ///
    /// # Cancel safety
    /// Everything has been told to end by then; calling it again waits for the rest.
    pub async fn finish(&self) {
        self.triggers.iter().for_each(|trigger| trigger.abandon(self.controller));
        self.polls.abort();
        let informers = future::join_all(self.informers.iter().map(InformerFactory::shutdown));
        future::join(informers, self.polls.ended()).await;
    }

    /// Tells everything to end, and waits for nothing.
    pub fn begin(&self) {
        // An informer stops at the first look at its shutdown; what is left of it is to wait for its tasks.
        let _waited_for_by_others = self.finish().now_or_never();
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remains")
            .field("controller", &self.controller)
            .field("triggers", &self.triggers)
            .field("informers", &self.informers.len())
            .finish()
    }
}
