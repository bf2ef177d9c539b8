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
use crate::reads::{Polled, ReconcileId};

/// Layer around the reconciles of one controller in one process.
struct ReadCheckLayer {
    oracle: Arc<Oracle>,
    process: ProcessId,
    controller: &'static str,
    caches: Option<CacheVersions>,
}

/// Returns the registration with its reconciles checked by the oracle.
pub(crate) fn with_read_checks(registration: Registration, oracle: &Arc<Oracle>, env: &Env) -> Registration {
    let (oracle, process) =
        (Arc::clone(oracle), ProcessId { instance: env.instance().into(), incarnation: env.incarnation() });
    registration.with_layer(move |setup| {
        let (oracle, process) = (Arc::clone(&oracle), process.clone());
        Arc::new(ReadCheckLayer {
            oracle,
            process,
            controller: setup.descriptor().name,
            caches: setup.cache_versions(),
        })
    })
}

impl ReconcileLayer for ReadCheckLayer {
    fn around<'a>(
        &'a self,
        key: &'a ObjectKey,
        reconcile: BoxFuture<'a, Result<Outcome, ReconcileError>>,
    ) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        let reconcile_id =
            ReconcileId { process: self.process.clone(), controller: self.controller, key: key.clone() };
        Box::pin(async move {
            if let Some(caches) = &self.caches {
                let violation = self.oracle.reads(|reads| reads.begins(&reconcile_id, caches));
                violation.into_iter().for_each(|violation| self.oracle.report(violation));
            }
            let mut reconcile = pin!(reconcile);
            poll_fn(|cx| {
                let _polled = Polled::by(&reconcile_id);
                reconcile.as_mut().poll(cx)
            })
            .await
        })
    }
}
