//! Which IP each running pod has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pods' network: a private one, where no Service has its IPs.
const NETWORK: u32 = u32::from_be_bytes([10, 128, 0, 0]);

/// How many pods can have an IP at once: all hosts of a /9 but its first address.
const SIZE: u32 = 1 << 23;

/// The addresses in use, by the UID of their pod.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    by_pod: BTreeMap<String, Ipv4Addr>,
    taken: BTreeSet<Ipv4Addr>,
    /// Where to look for a free one next: an address is not given again at once, as caches may still hold it.
    next: u32,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of that pod: the one it has, or else a free one. None if all are taken.
    pub(super) fn of(&self, uid: &str) -> Option<Ipv4Addr> {
        let mut book = self.lock();
        if let Some(address) = book.by_pod.get(uid) {
            return Some(*address);
        }
        let address = book.free()?;
        book.take(uid, address);
        Some(address)
    }

    /// Notes the address that a pod is seen to have.
    pub(super) fn seen(&self, uid: &str, address: Ipv4Addr) {
        let mut book = self.lock();
        if book.by_pod.get(uid) != Some(&address) {
            book.release(uid);
            book.take(uid, address);
        }
    }

    /// The pod is gone, or has ended for good.
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
