//! Gives tests access to the caches of processes under test through a controller that only shares their informers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_controller::{
    Context, Controller, FullObject, Outcome, ReconcileError, Registration, Setup, SetupError,
};
use windlass_informer::Lister;
use windlass_object::ObjectKey;

/// Namespace, name and version of objects.
pub(crate) type Versions = BTreeSet<(String, String, String)>;

/// One cache of a running process.
pub(crate) trait Cache: Send + Sync {
    /// Returns group and kind.
    fn kind(&self) -> (String, String);
    fn versions(&self) -> Versions;
}

/// Returns the cache of one kind during the setup of a process.
pub(crate) type CacheInspector = Arc<dyn Fn(&mut Setup) -> Box<dyn Cache> + Send + Sync>;

/// Caches of one process, available after its setup.
#[derive(Clone, Default)]
pub(crate) struct Caches(Arc<Mutex<Vec<Arc<dyn Cache>>>>);

/// Returns an inspector for the caches of `K`.
pub(crate) fn inspector_of<K: FullObject>() -> CacheInspector {
    Arc::new(|setup| Box::new(Typed { lister: setup.watch::<K>().lister() }))
}

/// Returns a controller that exposes the caches that it watches.
pub(crate) fn registration(inspectors: &[CacheInspector], caches: &Caches) -> Registration {
    Registration::controller_with::<CacheProbe>((inspectors.to_vec(), caches.clone()))
}

impl Caches {
    pub(crate) fn all(&self) -> Vec<Arc<dyn Cache>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").field("count", &self.all().len()).finish()
    }
}

struct Typed<K: FullObject> {
    lister: Lister<K>,
}

impl<K: FullObject> Cache for Typed<K> {
    fn kind(&self) -> (String, String) {
        (K::group(&()).into_owned(), K::kind(&()).into_owned())
    }

    fn versions(&self) -> Versions {
        let head = |object: &Arc<K>| {
            let meta = object.meta();
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&meta.namespace), text(&meta.name), text(&meta.resource_version))
        };
        self.lister.list().iter().map(head).collect()
    }
}

struct CacheProbe;

impl Controller for CacheProbe {
    const NAME: &'static str = "cache-probe";
    type Config = (Vec<CacheInspector>, Caches);

    fn setup(setup: &mut Setup, (inspectors, caches): &Self::Config) -> Result<Self, SetupError> {
        let found: Vec<Arc<dyn Cache>> = inspectors.iter().map(|inspect| Arc::from(inspect(setup))).collect();
        *caches.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(CacheProbe)
    }

    async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
        Ok(Outcome::Done)
    }
}
