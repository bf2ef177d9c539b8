//! What this replica holds of what replicas share: leases and shards, in a line each.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

use windlass_election::Leadership;
use windlass_env::cell::Observer;

use crate::shards::{self, Table};

/// What a replica holds. It is looked at whenever it is asked for.
#[derive(Clone)]
pub(crate) enum Holding {
    /// One Lease, or not.
    Lease(String, Observer<Leadership>),
    /// Some of so many shards.
    Shards(Table, NonZeroU16),
}

/// Says what a replica holds, a line for each thing that is shared. The default shares nothing.
#[derive(Clone, Default)]
pub struct Holdings(Option<Arc<dyn Fn() -> Vec<String> + Send + Sync>>);

impl Holdings {
    /// Those that `tell` tells, whenever it is asked.
    pub fn told_by(tell: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(crate) fn of(holding: Option<Holding>) -> Self {
        Self::told_by(move || holding.iter().map(ToString::to_string).collect())
    }

    /// As of now.
    pub fn lines(&self) -> Vec<String> {
        self.0.as_ref().map(|tell| tell()).unwrap_or_default()
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(lease, leadership) => match leadership.get() {
                Leadership::Leading => write!(f, "Lease {lease}: held here"),
                Leadership::Lost => write!(f, "Lease {lease}: lost"),
                Leadership::Following { holder: Some(holder) } => {
                    write!(f, "Lease {lease}: held by {holder}")
                }
                Leadership::Following { holder: None } => {
                    write!(f, "Lease {lease}: nobody is known to hold it")
                }
            },
            Self::Shards(table, all) => write!(f, "Shards: {}, of {all}", shards::held(table)),
        }
    }
}

impl fmt::Debug for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holdings").field(&self.lines()).finish()
    }
}
