//! Log lines of a reconcile: span and level.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use windlass::prelude::*;
use windlass::testing::FaultAction;
use windlass::testing::api_server::faults::RequestSummary;

use crate::world::{World, act, controller};

/// Log lines of this thread, each with its span.
#[derive(Clone, Default)]
struct CapturedLogs(Arc<Mutex<LogBuffer>>);

#[derive(Default)]
struct LogBuffer {
    /// Name and fields of each span. The id of a span is its index plus one.
    spans: Vec<String>,
    entered: Vec<u64>,
    lines: Vec<Line>,
}

struct Line {
    level: Level,
    /// The innermost span, or an empty string.
    span: String,
    text: String,
}

struct Fields(String);

impl CapturedLogs {
    /// Returns level and span of every line that contains the text.
    fn lines_containing(&self, words: &str) -> Vec<(Level, String)> {
        let book = self.book();
        let saying = book.lines.iter().filter(|line| line.text.contains(words));
        saying.map(|line| (line.level, line.span.clone())).collect()
    }

    /// Returns the errors and warnings.
    fn aloud(&self) -> Vec<String> {
        let book = self.book();
        let aloud = book.lines.iter().filter(|line| line.level <= Level::WARN);
        aloud.map(|line| line.text.clone()).collect()
    }

    fn book(&self) -> MutexGuard<'_, LogBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("text has room");
    }
}

impl Subscriber for CapturedLogs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut logged = Fields(span.metadata().name().to_owned());
        span.record(&mut logged);
        let mut book = self.book();
        book.spans.push(logged.0);
        Id::from_u64(book.spans.len() as u64)
    }

    fn event(&self, event: &Event<'_>) {
        let mut logged = Fields(String::new());
        event.record(&mut logged);
        let mut book = self.book();
        let innermost = book.entered.last().and_then(|id| book.spans.get(usize::try_from(id - 1).ok()?));
        let span = innermost.cloned().unwrap_or_default();
        book.lines.push(Line { level: *event.metadata().level(), span, text: logged.0 });
    }

    fn enter(&self, span: &Id) {
        self.book().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut book = self.book();
        let last = book.entered.iter().rposition(|id| *id == span.into_u64());
        if let Some(at) = last {
            book.entered.remove(at);
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

/// Reconciles of controller-runtime have an id in their context, but no span (controller-runtime #1876, #1211).
// parity: with-log-constructor, concurrency-rate-limiter-logger, reconcile-id-context, no-tracing
#[tokio::test(start_paused = true)]
async fn log_lines_of_reconcile_and_its_tasks_have_controller_and_key() {
    let logged = CapturedLogs::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let world = World::new();
    ["a", "b"].iter().for_each(|name| world.put(name));
    let talkative = controller("talkative", |setup| {
        setup.workers(2);
        setup.primary::<ConfigMap>();
        act(|key, cx| async move {
            // Both reconciles are in progress at the same time.
            cx.env().sleep(Duration::from_millis(10)).await;
            tracing::info!(about = key.name(), "looks");
            let (env, name) = (cx.env().clone(), key.name().to_owned());
            let helps = async move {
                env.sleep(Duration::from_millis(10)).await;
                tracing::info!(about = name, "helps");
            };
            drop(cx.spawn("helper", helps).await);
            Ok(Outcome::Done)
        })
    });
    let _workers = world.run([talkative]).await;
    world.pass(1).await;
    let spans = ["a", "b"].map(|name| {
        let of = |words: &str| logged.lines_containing(&format!("message={words} about=\"{name}\""));
        let (looks, helps) = (of("looks"), of("helps"));
        assert!(looks.len() == 1 && looks[0].0 == Level::INFO, "{looks:?}");
        assert_eq!(looks, helps, "one reconcile");
        looks[0].1.clone()
    });
    let ids = ["a", "b"].iter().zip(&spans).map(|(name, span)| {
        let start = format!("reconcile controller=\"talkative\" key=shop/{name} reconcile_id=");
        span.strip_prefix(&start).unwrap_or_else(|| panic!("{span}")).to_owned()
    });
    let ids: Vec<String> = ids.collect();
    assert!(ids[0].len() == 16 && ids[0] != ids[1], "{ids:?}");
}

/// controller-runtime and knative log a conflict as an error with a stack trace (knative #3289).
// parity: conflicts-logged-errors
#[tokio::test(start_paused = true)]
async fn conflict_is_logged_at_debug_level_and_other_errors_as_warnings() {
    for (what, level, words) in [
        (FaultAction::Conflict, Level::DEBUG, "message=reconcile hit a conflict"),
        (FaultAction::Unavailable, Level::WARN, "message=reconcile failed"),
    ] {
        let logged = CapturedLogs::default();
        let _guard = tracing::subscriber::set_default(logged.clone());
        let world = World::new();
        world.put("a");
        world.inject_into_first(3, RequestSummary::is_work, what.clone());
        let writes = controller("writes", |setup| {
            setup.uses::<ConfigMap>([Verb::Patch]);
            setup.primary::<ConfigMap>();
            act(|key, cx| async move {
                let patch = Patch::Merge(json!({ "data": { "done": "yes" } }));
                let maps = Api::<ConfigMap>::namespaced(cx.client().clone(), "shop");
                maps.patch(key.name(), &PatchParams::default(), &patch).await?;
                Ok(Outcome::Done)
            })
        });
        let _workers = world.run([writes]).await;
        world.pass(60).await;
        let failures = logged.lines_containing(words);
        assert_eq!(failures.len(), 3, "{what:?}");
        assert!(failures.iter().all(|(logged, _)| *logged == level), "{what:?}: {failures:?}");
        assert_eq!(logged.aloud().is_empty(), level == Level::DEBUG, "{:?}", logged.aloud());
    }
}
