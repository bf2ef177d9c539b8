//! The DNS provider.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// DNS provider, in memory. A real provider is called over the network.
#[derive(Clone, Debug, Default)]
pub struct Dns {
    domains: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Dns {
    /// Creates or updates the entry of a domain, so that it points at this cluster.
    ///
    /// # Errors
    /// If no zone of the provider contains the domain. This one has all zones but `invalid`.
    pub async fn point(&self, domain: &str) -> Result<(), io::Error> {
        if domain.ends_with(".invalid") {
            return Err(io::Error::other(format!("no zone contains {domain}")));
        }
        *self.lock().entry(domain.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Removes the entry of a domain when the returned future is polled.
    pub async fn remove(&self, domain: &str) -> Result<(), io::Error> {
        self.lock().remove(domain);
        Ok(())
    }

    /// Returns the domains that point at this cluster.
    pub fn domains(&self) -> BTreeSet<String> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u32>> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
