//! IP addresses of the running pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Network of the pods: a private range that contains no Service IP.
const NETWORK: u32 = u32::from_be_bytes([10, 128, 0, 0]);

/// Maximum number of pods with an IP: all hosts of a /9 except its first address.
const SIZE: u32 = 1 << 23;

/// Addresses in use, by the UID of their pod.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    by_pod: BTreeMap<String, Ipv4Addr>,
    taken: BTreeSet<Ipv4Addr>,
    /// Position of the search for a free address. A released address is not reused immediately, because caches might
    /// still contain it.
    next: u32,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of the pod, or assigns a free one. `None` if all are in use.
    pub(super) fn of(&self, uid: &str) -> Option<Ipv4Addr> {
        let mut book = self.lock();
        if let Some(address) = book.by_pod.get(uid) {
            return Some(*address);
        }
        let address = book.free()?;
        book.take(uid, address);
        Some(address)
    }

    /// Records the observed address of a pod.
    pub(super) fn seen(&self, uid: &str, address: Ipv4Addr) {
        let mut book = self.lock();
        if book.by_pod.get(uid) != Some(&address) {
            book.release(uid);
            book.take(uid, address);
        }
    }

    /// Releases the address of a pod that is deleted or has completed.
    pub(super) fn release(&self, uid: &str) {
        self.lock().release(uid);
    }
}

impl Book {
    fn free(&mut self) -> Option<Ipv4Addr> {
        for _ in 1..SIZE {
            self.next = self.next % (SIZE - 1) + 1;
            let address = Ipv4Addr::from(NETWORK + self.next);
            if !self.taken.contains(&address) {
                return Some(address);
            }
        }
        None
    }

    fn take(&mut self, uid: &str, address: Ipv4Addr) {
        self.taken.insert(address);
        self.by_pod.insert(uid.to_owned(), address);
    }

    fn release(&mut self, uid: &str) {
        if let Some(address) = self.by_pod.remove(uid) {
            self.taken.remove(&address);
        }
    }
}
