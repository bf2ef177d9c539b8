//! Tenants of the keys in the queue, by number.
//!
//! A tenant without keys keeps its number until the next sweep: it is likely to return, and a known name needs no
//! allocation.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Number of the tenant for keys without a tenant.
const NO_TENANT: usize = 0;

/// Minimum number of tenants without keys that are kept.
const MIN_IDLE_TENANTS: usize = 256;

pub(crate) struct Tenants {
    numbers: HashTable<usize>,
    tenants: Vec<TenantRef>,
    /// Numbers for reuse.
    free: Vec<usize>,
    /// Number of tenants without keys.
    idle: usize,
    /// Most recent tenant: the next key is likely to have the same.
    latest: usize,
    hasher: FixedState,
}

struct TenantRef {
    name: String,
    hash: u64,
    keys: usize,
}

impl Tenants {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let no_tenant = TenantRef { name: String::new(), hash: 0, keys: 0 };
        Tenants {
            numbers: HashTable::new(),
            tenants: vec![no_tenant],
            free: Vec::new(),
            idle: 0,
            latest: NO_TENANT,
            hasher,
        }
    }

    /// Counts one more key of the tenant and returns the tenant's number.
    #[inline]
    pub(crate) fn add_key(&mut self, name: Option<&str>) -> usize {
        let Some(name) = name else { return NO_TENANT };
        let number = self.number(name);
        let tenant = &mut self.tenants[number];
        if tenant.keys == 0 {
            self.idle -= 1;
        }
        tenant.keys += 1;
        self.latest = number;
        number
    }

    /// Counts one key less of the tenant.
    #[inline]
    pub(crate) fn remove_key(&mut self, number: usize) {
        if number == NO_TENANT {
            return;
        }
        self.tenants[number].keys -= 1;
        if self.tenants[number].keys == 0 {
            self.idle += 1;
            // The sweep runs when half of the tenants are idle, which bounds its cost per removed tenant.
            if self.idle > MIN_IDLE_TENANTS && self.idle > self.numbers.len() / 2 {
                self.sweep();
            }
        }
    }

    /// Returns the number of the tenant `name`. A new tenant has no keys.
    fn number(&mut self, name: &str) -> usize {
        if self.latest != NO_TENANT && self.tenants[self.latest].name == name {
            return self.latest;
        }
        let hash = self.hasher.hash_one(name);
        if let Some(number) = self.numbers.find(hash, |number| self.tenants[*number].name == name) {
            return *number;
        }
        self.idle += 1;
        let number = self.assign_number(name, hash);
        let tenants = &self.tenants;
        self.numbers.insert_unique(hash, number, |number| tenants[*number].hash);
        number
    }

    /// Assigns a number to a new tenant, preferably a free one.
    fn assign_number(&mut self, name: &str, hash: u64) -> usize {
        if let Some(number) = self.free.pop() {
            let tenant = &mut self.tenants[number];
            tenant.name.push_str(name);
            tenant.hash = hash;
            return number;
        }
        self.tenants.push(TenantRef { name: name.to_owned(), hash, keys: 0 });
        self.tenants.len() - 1
    }

    /// Removes the tenants without keys. The buffers of their names are kept for reuse.
    fn sweep(&mut self) {
        for (number, tenant) in self.tenants.iter_mut().enumerate().skip(NO_TENANT + 1) {
            if tenant.keys == 0
                && let Ok(found) = self.numbers.find_entry(tenant.hash, |other| *other == number)
            {
                found.remove();
                tenant.name.clear();
                self.free.push(number);
            }
        }
        (self.idle, self.latest) = (0, NO_TENANT);
    }
}
