//! What an informer is made with, besides what it holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::ByteBudget;
use crate::erased::Object;

/// What the informers of a factory have in common.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InformerSettings {
    /// How often handlers that do not say otherwise are told of everything.
    pub(crate) resync: Option<Duration>,
    /// Whether `managedFields` are kept.
    pub(crate) keep_managed_fields: bool,
    /// How much may be held.
    pub(crate) byte_budget: Option<u64>,
}

/// Changes an object that was just decoded, or says why it must not be stored.
pub(crate) type Transform = Arc<dyn Fn(&mut Object) -> Result<(), String> + Send + Sync>;

/// What stands between the bytes of an object and the store.
#[derive(Clone)]
pub(crate) struct IngestOptions {
    pub(crate) keep_managed_fields: bool,
    pub(crate) transform: Option<Transform>,
    pub(crate) budget: Arc<ByteBudget>,
}

impl fmt::Debug for IngestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("keep_managed_fields", &self.keep_managed_fields)
            .field("transform", &self.transform.is_some())
            .field("budget", &self.budget)
            .finish()
    }
}
