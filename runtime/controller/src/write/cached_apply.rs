//! Skips applies that would change nothing. Compiled once for objects of any type.

use std::any::Any;
use std::sync::Arc;

use kube::core::ObjectMeta;
use serde_json::Value;
use windlass_env::Env;
use windlass_informer::Lister;
use windlass_object::ObjectKey;

use crate::error::WriteError;
use crate::write::apply_history::ApplyHistory;
use crate::write::caller::Caller;
use crate::write::encoding::{Writable, decoded, encoded};
use crate::write::request::{Answer, Change, Core};

/// An object of any type, shared.
pub(super) type Object = Arc<dyn Any + Send + Sync>;

/// A cache of objects of one type.
trait Cache: Send + Sync {
    fn get(&self, key: &ObjectKey) -> Option<Object>;

    fn epoch(&self) -> u64;

    fn meta<'o>(&self, object: &'o Object) -> &'o ObjectMeta;

    fn encoded(&self, object: &Object) -> Result<Value, WriteError>;

    fn decoded(&self, answer: &Answer) -> Result<Object, WriteError>;
}

/// A cache, and the applies to its objects.
pub(super) struct CachedApply {
    cache: Box<dyn Cache>,
    history: ApplyHistory,
}

/// An apply of a document to the object with this metadata, and this UID if there is one.
pub(super) struct Apply<'a> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) uid: Option<&'a str>,
    pub(super) document: Value,
}

impl CachedApply {
    pub(super) fn new<K: Writable>(env: &Env, lister: &Lister<K>) -> Self {
        Self { cache: Box::new(lister.clone()), history: ApplyHistory::new(env) }
    }

    /// Sends the apply unless it would change nothing. Returns the object, which has the type of the cache.
    pub(super) async fn send(
        &self,
        core: &Core,
        cx: &dyn Caller,
        Apply { meta, uid, document }: Apply<'_>,
    ) -> Result<(Object, Change), WriteError> {
        let Self { cache, history } = self;
        let key = ObjectKey::of(meta);
        let present = cache.get(&key);
        // Read after the object: an epoch that begins in between must not be attributed to the object.
        let epoch = cache.epoch();
        if let Some(object) = present
            && history.is_unchanged(&key, &document, cache.meta(&object), epoch, || cache.encoded(&object))?
        {
            return Ok((object, Change::Unchanged));
        }
        let pending = history.begin(key, &document, epoch, |key| cache.get(key).is_some());
        let answer = core.apply(cx, meta, "", uid, document).await?;
        let object = cache.decoded(&answer)?;
        history.complete(pending, cache.meta(&object), cache.encoded(&object)?);
        Ok((object, answer.change()))
    }
}

impl<K: Writable> Cache for Lister<K> {
    fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.get_lossy(key).map(|object| object as Object)
    }

    fn epoch(&self) -> u64 {
        self.progress().epoch
    }

    fn meta<'o>(&self, object: &'o Object) -> &'o ObjectMeta {
        borrowed::<K>(object).meta()
    }

    fn encoded(&self, object: &Object) -> Result<Value, WriteError> {
        encoded(borrowed::<K>(object))
    }

    fn decoded(&self, answer: &Answer) -> Result<Object, WriteError> {
        Ok(decoded::<K>(&answer.body)?)
    }
}

/// Casts the object to its type.
///
/// # Panics
/// If the object has another type, which is a bug in this module.
pub(super) fn typed<K: Writable>(object: Object) -> Arc<K> {
    object.downcast().expect(ONE_TYPE)
}

fn borrowed<K: Writable>(object: &Object) -> &K {
    object.downcast_ref().expect(ONE_TYPE)
}

const ONE_TYPE: &str = "the objects of a cache have one type";
