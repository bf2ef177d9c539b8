//! Reconcile layer that lets the oracle check cache reads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use windlass_api_server::faults::ProcessId;
use windlass_controller::host::{CacheVersions, ReconcileLayer};
use windlass_controller::{Outcome, ReconcileError, Registration};
use windlass_env::Env;
use windlass_object::ObjectKey;

use crate::oracle::Oracle;
use crate::reads::{Polled, Subject};

/// Layer around the reconciles of one controller in one process.
struct Watcher {
    judge: Arc<Oracle>,
    who: ProcessId,
    controller: &'static str,
    caches: Option<CacheVersions>,
}

/// Returns the registration with its reconciles checked by the oracle.
pub(crate) fn judged(registration: Registration, judge: &Arc<Oracle>, env: &Env) -> Registration {
    let (judge, who) =
        (Arc::clone(judge), ProcessId { instance: env.instance().into(), life: env.incarnation() });
    registration.with_layer(move |setup| {
        let (judge, who) = (Arc::clone(&judge), who.clone());
        Arc::new(Watcher { judge, who, controller: setup.descriptor().name, caches: setup.cache_versions() })
    })
}

impl ReconcileLayer for Watcher {
    fn around<'a>(
        &'a self,
        key: &'a ObjectKey,
        reconcile: BoxFuture<'a, Result<Outcome, ReconcileError>>,
    ) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        let subject = Subject { who: self.who.clone(), controller: self.controller, key: key.clone() };
        Box::pin(async move {
            if let Some(caches) = &self.caches {
                let flaw = self.judge.reads(|reads| reads.begins(&subject, caches));
                flaw.into_iter().for_each(|flaw| self.judge.object(flaw));
            }
            let mut reconcile = pin!(reconcile);
            poll_fn(|cx| {
                let _polled = Polled::by(&subject);
                reconcile.as_mut().poll(cx)
            })
            .await
        })
    }
}
