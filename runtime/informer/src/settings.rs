//! Settings of an informer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::ByteBudget;
use crate::compact::ObjectForm;
use crate::object::Object;

/// The settings that the informers of a factory share.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InformerSettings {
    /// The resync period of handlers that set none.
    pub(crate) resync: Option<Duration>,
    /// Whether `managedFields` are kept.
    pub(crate) keep_managed_fields: bool,
    /// The form in which objects are stored.
    pub(crate) form: ObjectForm,
    /// The maximum number of bytes in the cache.
    pub(crate) byte_budget: Option<u64>,
}

/// A function that changes a newly decoded object, or returns why it must not be stored.
pub(crate) type Transform = Arc<dyn Fn(&mut Object) -> Result<(), String> + Send + Sync>;

/// Returns the transform for objects of one type.
pub(crate) fn transform_of<T: Send + Sync + 'static, E: fmt::Display>(
    change: impl Fn(&mut T) -> Result<(), E> + Send + Sync + 'static,
) -> Transform {
    Arc::new(move |object: &mut Object| match Arc::get_mut(object).and_then(|object| object.downcast_mut()) {
        Some(object) => change(object).map_err(|why| why.to_string()),
        None => Err("the decoder kept a reference to the object, so it cannot be changed".to_owned()),
    })
}

/// The steps between the bytes of an object and the store.
#[derive(Clone)]
pub(crate) struct IngestOptions {
    pub(crate) keep_managed_fields: bool,
    pub(crate) transform: Option<Transform>,
    pub(crate) form: ObjectForm,
    pub(crate) budget: Arc<ByteBudget>,
}

impl fmt::Debug for IngestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngestOptions")
            .field("keep_managed_fields", &self.keep_managed_fields)
            .field("transform", &self.transform.is_some())
            .field("form", &self.form)
            .field("budget", &self.budget)
            .finish()
    }
}
