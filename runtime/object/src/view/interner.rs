//! Equal values in many views share their memory.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::{Owner, StringMap};

/// Size from which values without holders are removed, each time the size has doubled.
const MIN_SWEEP: usize = 256;

/// The shared values of one decoder. A value that no view holds any more is removed later.
#[derive(Default)]
pub struct Interner {
    texts: Pool<Arc<str>>,
    maps: Pool<StringMap>,
    owners: Pool<Arc<[Owner]>>,
    lists: Pool<Arc<[Arc<str>]>>,
}

/// A value that counts its holders.
trait Counted {
    fn holders(&self) -> usize;
}

impl<T: ?Sized> Counted for Arc<T> {
    fn holders(&self) -> usize {
        Arc::strong_count(self)
    }
}

impl Counted for StringMap {
    fn holders(&self) -> usize {
        self.holders()
    }
}

struct Pool<T> {
    /// The order has no effect: the values are only searched.
    values: HashSet<T, FixedState>,
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { values: HashSet::default(), sweep_at: MIN_SWEEP }
    }
}

impl<T: Counted + Clone + Eq + Hash> Pool<T> {
    /// Returns the value that equals this one.
    fn share(&mut self, value: T) -> T {
        if let Some(known) = self.values.get(&value) {
            return known.clone();
        }
        self.add(value.clone());
        value
    }

    fn add(&mut self, value: T) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| value.holders() > 1);
            self.sweep_at = MIN_SWEEP.max(2 * self.values.len());
        }
        self.values.insert(value);
    }
}

impl Interner {
    /// Returns shared text.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.values.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.texts.add(Arc::clone(&text));
        text
    }

    pub(super) fn map(&mut self, map: StringMap) -> StringMap {
        self.maps.share(map)
    }

    pub(super) fn owners(&mut self, owners: Vec<Owner>) -> Arc<[Owner]> {
        self.owners.share(owners.into())
    }

    pub(super) fn list(&mut self, list: Vec<Arc<str>>) -> Arc<[Arc<str>]> {
        self.lists.share(list.into())
    }
}

impl fmt::Debug for Interner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interner").field("texts", &self.texts.values.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_shared_and_unused_texts_are_removed() {
        let mut interner = Interner::default();
        let kept = interner.text("kept");
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")));
        for number in 0..10 * MIN_SWEEP {
            drop(interner.text(&number.to_string()));
        }
        assert!(interner.texts.values.len() <= 2 * MIN_SWEEP, "{interner:?}");
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")));
    }
}
