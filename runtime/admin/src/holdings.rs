//! Leases and shards that this replica holds, for `/statusz`.

use std::fmt;
use std::sync::Arc;

/// Lists the leases and shards that a replica holds, one line each. The default lists none.
#[derive(Clone, Default)]
pub struct OwnershipReport(Option<Arc<dyn Fn() -> Vec<String> + Send + Sync>>);

impl OwnershipReport {
    /// Returns a report of the lines that `tell` returns at each request.
    pub fn from_fn(lines: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(lines)))
    }

    /// Returns the current lines.
    pub fn lines(&self) -> Vec<String> {
        self.0.as_ref().map(|lines| lines()).unwrap_or_default()
    }
}

impl fmt::Debug for OwnershipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnershipReport").field(&self.lines()).finish()
    }
}
