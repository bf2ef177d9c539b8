//! The values that the parts of a controller share in one process.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

type Value = Arc<dyn Any + Send + Sync>;

/// The shared values of one process, by controller and type. Clones share them.
#[derive(Clone, Default)]
pub struct SharedValues(Arc<Mutex<BTreeMap<(&'static str, TypeId), Value>>>);

impl SharedValues {
    /// Returns the value of this type of a controller. The first call creates it.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self, controller: &'static str) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry((controller, TypeId::of::<T>())).or_insert_with(|| Arc::new(T::default()));
        // The key contains the type, so the value has it.
        Arc::clone(value).downcast().unwrap_or_default()
    }
}

impl fmt::Debug for SharedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValues").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn value_is_shared_within_a_controller_and_type() {
        let values = SharedValues::default();
        values.get::<AtomicUsize>("jobs").store(7, Ordering::Relaxed);
        assert_eq!(values.clone().get::<AtomicUsize>("jobs").load(Ordering::Relaxed), 7);
        assert_eq!(values.get::<AtomicUsize>("other").load(Ordering::Relaxed), 0);
        assert!(values.get::<Mutex<Vec<u8>>>("jobs").lock().is_ok_and(|it| it.is_empty()));
    }
}
