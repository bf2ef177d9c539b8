//! The tenants whose keys are here, each under a number.
//!
//! A tenant whose last key has gone keeps its number for a while: it is likely to come back, and a name that is known
//! costs no allocation.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// The number of the tenant to which keys belong that have none.
const NOBODY: usize = 0;

/// How many tenants without keys are remembered at least.
const REMEMBERED: usize = 256;

pub(crate) struct Tenants {
    numbers: HashTable<usize>,
    tenants: Vec<TenantRef>,
    /// Numbers to be used again.
    free: Vec<usize>,
    /// How many are remembered without keys.
    idle: usize,
    /// The one that was named last: the next key is likely to be of the same.
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
        let nobody = TenantRef { name: String::new(), hash: 0, keys: 0 };
        Tenants {
            numbers: HashTable::new(),
            tenants: vec![nobody],
            free: Vec::new(),
            idle: 0,
            latest: NOBODY,
            hasher,
        }
    }

    /// Counts one more key of the tenant, and returns the tenant's number.
    #[inline]
    pub(crate) fn enter(&mut self, name: Option<&str>) -> usize {
        let Some(name) = name else { return NOBODY };
        let number = self.number(name);
        let tenant = &mut self.tenants[number];
        if tenant.keys == 0 {
            self.idle -= 1;
        }
        tenant.keys += 1;
        self.latest = number;
        number
    }

    /// One key less belongs to the tenant.
    #[inline]
    pub(crate) fn leave(&mut self, number: usize) {
        if number == NOBODY {
            return;
        }
        self.tenants[number].keys -= 1;
        if self.tenants[number].keys == 0 {
            self.idle += 1;
            // Half of them, so that a sweep is paid for by those who left since the last one.
            if self.idle > REMEMBERED && self.idle > self.numbers.len() / 2 {
                self.sweep();
            }
        }
    }

    /// The tenant called `name`, who is idle if new.
    fn number(&mut self, name: &str) -> usize {
        if self.latest != NOBODY && self.tenants[self.latest].name == name {
            return self.latest;
        }
        let hash = self.hasher.hash_one(name);
        if let Some(number) = self.numbers.find(hash, |number| self.tenants[*number].name == name) {
            return *number;
        }
        self.idle += 1;
        let number = self.settle(name, hash);
        let tenants = &self.tenants;
        self.numbers.insert_unique(hash, number, |number| tenants[*number].hash);
        number
    }

    /// Gives a new tenant a number, one that was used before if there is one.
    fn settle(&mut self, name: &str, hash: u64) -> usize {
        if let Some(number) = self.free.pop() {
            let tenant = &mut self.tenants[number];
            tenant.name.push_str(name);
            tenant.hash = hash;
            return number;
        }
        self.tenants.push(TenantRef { name: name.to_owned(), hash, keys: 0 });
        self.tenants.len() - 1
    }

    /// Forgets everybody who has no keys. Names keep their room for those who get their numbers.
    fn sweep(&mut self) {
        for (number, tenant) in self.tenants.iter_mut().enumerate().skip(NOBODY + 1) {
            if tenant.keys == 0
                && let Ok(found) = self.numbers.find_entry(tenant.hash, |other| *other == number)
            {
                found.remove();
                tenant.name.clear();
                self.free.push(number);
            }
        }
        (self.idle, self.latest) = (0, NOBODY);
    }
}
