//! Asking a reflector for a fresh look at its source, for who cannot trust that the watch tells everything.
//!
//! A watch that is stalled, or that is fed by a server whose own cache has stopped, looks like one of a quiet
//! cluster. Only a consistent list tells the two apart.

use windlass_env::cell::{Observer, Publisher, cell};
use windlass_object::ResourceVersion;

/// Both ends of the wish. Cheap to clone; clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Refresh {
    asked: Publisher<u64>,
    given: Publisher<Given>,
}

/// The newest wish that was granted, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    ticket: u64,
    fresh: Option<Fresh>,
}

/// How a wish was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// By a consistent list of this version.
    At(ResourceVersion),
    /// By the answer that there is nothing to list (the kind is not served, or this process must not read it), where
    /// nothing is held either.
    Nothing,
}

/// The reflector's end: what it has to see to.
#[derive(Debug)]
pub(crate) struct Wishes {
    asked: Observer<u64>,
    given: Publisher<Given>,
    /// What had been asked for when the last look began.
    looked: u64,
}

impl Refresh {
    pub(crate) fn new() -> Self {
        Self { asked: cell(0).0, given: cell(Given::default()).0 }
    }

    pub(crate) fn wishes(&self) -> Wishes {
        Wishes { asked: self.asked.observe(), given: self.given.clone(), looked: 0 }
    }

    /// Asks for a consistent list that begins after this moment, and does not wait for it.
    pub(crate) fn ask(&self) {
        self.asked.update(|asked| *asked += 1);
    }

    /// Asks for a consistent list that begins after this moment, and waits until it has been passed on. Never ends if
    /// the reflector is gone.
    ///
    /// # Cancel safety
    /// The list is made even if nobody waits for it any more.
    pub(crate) async fn granted(&self) -> Option<Fresh> {
        self.ask();
        let ticket = self.asked.get();
        let given = self.given.observe().wait_until(|given| given.ticket >= ticket).await;
        given.ok().and_then(|given| given.fresh)
    }
}

impl Wishes {
    /// A look begins. What has been asked for by now: a list that begins now grants it.
    pub(crate) fn look(&mut self) -> u64 {
        self.looked = self.asked.get();
        self.looked
    }

    /// Whether something has been asked for that was not granted.
    pub(crate) fn are_open(&self) -> bool {
        self.asked.get() > self.given.get().ticket
    }

    /// Waits until something is asked for that was not granted.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn opened(&mut self) {
        self.passed(self.given.get().ticket).await;
    }

    /// Waits until something is asked for that the last look cannot grant, for it began before that.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait.
    pub(crate) async fn opened_since_look(&mut self) {
        self.passed(self.looked.max(self.given.get().ticket)).await;
    }

    async fn passed(&mut self, ticket: u64) {
        if self.asked.wait_until(|asked| *asked > ticket).await.is_err() {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
    }

    /// What began when `ticket` was read has come to this.
    pub(crate) fn grant(&self, ticket: u64, fresh: Fresh) {
        self.given.set(Given { ticket, fresh: Some(fresh) });
    }
}
