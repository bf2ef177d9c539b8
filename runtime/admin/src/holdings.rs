//! What this replica holds of what replicas share, for `/statusz`.

use std::fmt;
use std::sync::Arc;

/// Says what a replica holds, a line for each thing that is shared. The default shares nothing.
#[derive(Clone, Default)]
pub struct OwnershipReport(Option<Arc<dyn Fn() -> Vec<String> + Send + Sync>>);

impl OwnershipReport {
    /// Those that `tell` tells, whenever it is asked.
    pub fn from_fn(tell: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// As of now.
    pub fn lines(&self) -> Vec<String> {
        self.0.as_ref().map(|tell| tell()).unwrap_or_default()
    }
}

impl fmt::Debug for OwnershipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holdings").field(&self.lines()).finish()
    }
}
