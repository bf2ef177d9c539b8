//! Explains why an object has not been reconciled, for every controller of the process: through an API and on endpoints
//! of the admin server.
//!
//! | endpoint | response |
//! |---|---|
//! | `/debug/controllers` | one line per controller: state, queue, workers, keys that fail or are quarantined |
//! | `/debug/controllers/<name>` | one controller, with the keys that run, wait longest, fail or are quarantined |
//! | `/debug/explain?controller=<name>&key=<namespace/name>` | one key; the first line names the cause |
//!
//! The format is text, or JSON if the client accepts `application/json`. Names can be aliases. An invalid request is
//! answered with an error on one line.
//!
//! The explainer keeps no data: the controllers do.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use serde::Serialize;
use windlass_admin::{PageRequest, PageResponse, Pages};
use windlass_controller::Descriptor;
use windlass_controller::host::{
    ControllerInspector, ControllerOverview, ControllerPhase, Explanation, LeaseStatus,
};
use windlass_election::Leadership;
use windlass_env::watch_channel::Receiver;
use windlass_object::ObjectKey;

use crate::selection::{UnknownController, canonical};

/// The path prefix of the overview of one controller.
const CONTROLLERS: &str = "/debug/controllers";

/// The path of the explanation of one key.
const EXPLAIN: &str = "/debug/explain";

/// Answers questions about the controllers of one process. Clones share one state, which is set when the process is
/// assembled.
#[derive(Clone, Default)]
pub struct Explainer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// In the order of registration.
    known: Vec<Descriptor>,
    inspectors: Vec<ControllerInspector>,
}

/// The error for a controller that does not run in this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSuchController {
    /// No controller has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownController),
    /// The controller exists but does not run in this process.
    #[error(
        "{name} does not run in this process: it is disabled; query a process that enables it (--controllers of windlass, ManagerConfig::controllers of other programs)"
    )]
    Off {
        /// Its name.
        name: &'static str,
    },
}

impl Explainer {
    /// Sets the known controllers, and the inspectors of those that run.
    pub(crate) fn fill(
        &self,
        known: Vec<Descriptor>,
        inspectors: impl IntoIterator<Item = ControllerInspector>,
    ) {
        let inspectors = inspectors.into_iter().collect();
        *self.lock() = State { known, inspectors };
    }

    /// Explains why `key` of `controller`, which can be an alias, has not been reconciled, or the result of its last
    /// reconcile.
    ///
    /// # Errors
    /// When no such controller runs in this process.
    pub fn explain(&self, controller: &str, key: &ObjectKey) -> Result<Explanation, NoSuchController> {
        Ok(self.insight(controller)?.explain(key))
    }

    /// Returns the overview of `controller`, which can be an alias.
    ///
    /// # Errors
    /// When no such controller runs in this process.
    pub fn overview(&self, controller: &str) -> Result<ControllerOverview, NoSuchController> {
        Ok(self.insight(controller)?.overview())
    }

    /// Returns the overviews of all running controllers, in the order of registration.
    pub fn overviews(&self) -> Vec<ControllerOverview> {
        let inspectors = self.lock().inspectors.clone();
        inspectors.iter().map(ControllerInspector::overview).collect()
    }

    /// Adds the endpoints to the admin server.
    pub fn add_pages(&self, pages: &Pages) {
        let this = self.clone();
        pages.add(CONTROLLERS, Arc::new(move |request| this.list(request)));
        let this = self.clone();
        pages.add(format!("{CONTROLLERS}/"), Arc::new(move |request| this.one(request)));
        let this = self.clone();
        pages.add(EXPLAIN, Arc::new(move |request| this.key(request)));
    }

    fn insight(&self, controller: &str) -> Result<ControllerInspector, NoSuchController> {
        let state = self.lock();
        let name = canonical(controller, &state.known)?;
        let insight = state.inspectors.iter().find(|one| one.descriptor().name == name);
        insight.cloned().ok_or(NoSuchController::Off { name })
    }

    fn list(&self, request: &PageRequest) -> PageResponse {
        let overviews = self.overviews();
        let text = || overviews.iter().map(|one| format!("{}\n", one.summary())).collect();
        answer(request, &overviews, text)
    }

    fn one(&self, request: &PageRequest) -> PageResponse {
        let name = request.path.strip_prefix(CONTROLLERS).unwrap_or_default().trim_matches('/');
        match self.overview(name) {
            Ok(overview) => answer(request, &overview, || overview.to_string()),
            Err(error) => PageResponse::error(StatusCode::NOT_FOUND, error),
        }
    }

    fn key(&self, request: &PageRequest) -> PageResponse {
        let (controller, key) = (request.parameter("controller"), request.parameter("key"));
        let (Some(controller), Some(key)) = (controller, key) else {
            let usage = "missing parameter; use /debug/explain?controller=<name>&key=<namespace/name>";
            return PageResponse::error(StatusCode::BAD_REQUEST, usage);
        };
        let key: ObjectKey = match key.parse() {
            Ok(key) => key,
            Err(error) => return PageResponse::error(StatusCode::BAD_REQUEST, error),
        };
        match self.explain(controller, &key) {
            Ok(explanation) => answer(request, &explanation, || explanation.to_string()),
            Err(error) => PageResponse::error(StatusCode::NOT_FOUND, error),
        }
    }

    /// Locks the state. Nothing else runs under this lock, so a poisoned lock does not mean a broken list.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the phase of a controller that waits for a lease.
pub(crate) fn set_standby(lease: String, leadership: Receiver<Leadership>) -> ControllerPhase {
    let held = move || match leadership.get() {
        Leadership::Following { holder: Some(holder) } => LeaseStatus::HeldByOther(holder),
        Leadership::Following { holder: None } => LeaseStatus::Unknown,
        Leadership::Leading => LeaseStatus::Held,
        Leadership::Lost => LeaseStatus::Lost,
    };
    ControllerPhase::Standby { lease, lease_status: Arc::new(held) }
}

pub(crate) fn answer(
    request: &PageRequest,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> PageResponse {
    if !request.accept.contains("application/json") {
        return PageResponse::text(text());
    }
    match serde_json::to_string(value) {
        Ok(json) => PageResponse::json(json),
        Err(error) => PageResponse::error(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

impl fmt::Debug for Explainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Explainer").field(&self.lock().inspectors).finish()
    }
}

#[cfg(test)]
mod tests {
    use windlass_controller::host::Host;
    use windlass_controller::{
        Context, Controller, Outcome, ReconcileError, Registration, Setup, SetupError,
    };
    use windlass_env::Env;
    use windlass_env::watch_channel::channel;
    use windlass_informer::{FactoryOptions, InformerFactory};
    use windlass_metrics::Metrics;

    use super::*;

    struct Idle;

    impl Controller for Idle {
        const NAME: &'static str = "idle-controller";
        const DESCRIPTOR: Descriptor = Descriptor::new(Self::NAME).with_aliases(&["idle"]);
        type Config = ();

        fn setup(_: &mut Setup, (): &()) -> Result<Self, SetupError> {
            Ok(Self)
        }

        async fn reconcile(&self, _: &ObjectKey, _: &Context) -> Result<Outcome, ReconcileError> {
            Ok(Outcome::Done)
        }
    }

    fn explainer(leadership: Receiver<Leadership>) -> Explainer {
        let (env, metrics) = (Env::virtual_time(1), Metrics::new());
        let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
        let insight = Registration::controller::<Idle>()
            .prepare(Host::new(env, metrics, factory))
            .expect("set up")
            .inspector();
        insight.set_phase(set_standby("kube-system/windlass".to_owned(), leadership));
        let explainer = Explainer::default();
        explainer.fill(vec![Idle::DESCRIPTOR, Descriptor::new("other-controller")], [insight]);
        explainer
    }

    fn ask(explainer: &Explainer, path: &str, query: &[(&str, &str)], accept: &str) -> (u16, String) {
        let pages = Pages::new();
        explainer.add_pages(&pages);
        let (_, page) = pages.find(path).expect("a page");
        let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = PageRequest { path: path.to_owned(), query, accept: accept.to_owned(), reviewed: true };
        let answer = page(&request);
        (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).expect("text"))
    }

    #[tokio::test(start_paused = true)]
    async fn key_is_explained_by_name_and_by_alias_as_text_and_as_json() {
        let (leadership, observer) = channel(Leadership::Following { holder: Some("other_1".to_owned()) });
        let explainer = explainer(observer);
        for name in ["idle-controller", "idle"] {
            let query = [("controller", name), ("key", "shop/web")];
            let (code, text) = ask(&explainer, EXPLAIN, &query, "text/plain");
            let line = "lease elsewhere: kube-system/windlass is held by other_1; query that replica";
            assert_eq!((code, text.lines().next()), (200, Some(line)), "{text}");
            let (code, json) = ask(&explainer, EXPLAIN, &query, "application/json");
            let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!((code, json["situation"]["name"].as_str()), (200, Some("leaseElsewhere")), "{json}");
            assert_eq!(json["situation"]["holder"], "other_1");
        }
        leadership.set(Leadership::Leading);
        let (_, text) = ask(&explainer, EXPLAIN, &[("controller", "idle"), ("key", "web")], "");
        assert!(text.starts_with("taking over: "), "{text}");
        let (_, text) = ask(&explainer, CONTROLLERS, &[], "");
        assert!(text.starts_with("idle-controller: taking over kube-system/windlass, 0 queued"), "{text}");
        let (code, text) = ask(&explainer, "/debug/controllers/idle", &[], "");
        assert!(code == 200 && text.starts_with("idle-controller: "), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_question_is_rejected_on_one_line() {
        let explainer = explainer(channel(Leadership::Leading).1);
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], u16, &'a str);
        let table: [Case<'_>; 5] = [
            (EXPLAIN, &[("controller", "idle")], 400, "missing parameter; "),
            (EXPLAIN, &[("controller", "idle"), ("key", "a/b/c")], 400, "\"a/b/c\" is not an object key"),
            (
                EXPLAIN,
                &[("controller", "idel-controller"), ("key", "a")],
                404,
                "did you mean \"idle-controller\"?",
            ),
            (EXPLAIN, &[("controller", "other-controller"), ("key", "a")], 404, "it is disabled"),
            ("/debug/controllers/nobody", &[], 404, "\"nobody\" is not in the list of known controllers"),
        ];
        for (path, query, code, words) in table {
            let (found, text) = ask(&explainer, path, query, "application/json");
            assert!(found == code && text.contains(words) && text.lines().count() == 1, "{found} {text:?}");
        }
    }
}
