//! Declarations in the setup of a runnable.

use k8s_openapi::api::core::v1::Secret;
use windlass_workqueue::Priority;

use super::*;
use crate::{Descriptor, RunsOn, Timer};

/// Declares a property of a queue.
type Tune = fn(&mut Setup);

#[test]
fn setup_of_a_runnable_rejects_calls_about_a_queue_by_name() {
    let calls: [(&str, Tune); 14] = [
        ("primary", |setup| drop(setup.primary::<ConfigMap>())),
        ("enqueue", |setup| drop(setup.watch::<ConfigMap>().enqueue(by_self))),
        ("on_event", |setup| drop(setup.watch::<ConfigMap>().on_event(|_, _| {}))),
        ("paused_by", |setup| drop(setup.watch::<ConfigMap>().paused_by("example.com/paused"))),
        ("owned", |setup| drop(setup.owned::<ConfigMap, Secret>().apply().build())),
        ("trigger", |setup| drop(setup.trigger("hook", 1))),
        ("every", |setup| setup.every(Timer::every(Duration::from_secs(1)), Vec::new)),
        ("poll", |setup| {
            let fetch = |_| async { Ok::<_, std::io::Error>(BTreeMap::<ObjectKey, u8>::new()) };
            drop(setup.poll("inventory", Timer::every(Duration::from_secs(1)), fetch));
        }),
        ("stream", |setup| setup.stream("feed", |_| futures_util::stream::empty())),
        ("workers", |setup| setup.workers(2)),
        ("limit_concurrency", |setup| setup.limit_concurrency(1, |_| None)),
        ("history_limit", |setup| setup.history_limit(1)),
        ("max_retries", |setup| setup.max_retries(None)),
        ("background_priority", |setup| setup.background_priority(Priority::LOW)),
    ];
    let env = Env::virtual_time(1);
    for (call, tune) in calls {
        let runnable = Registration::task("idle", RunsOn::Leader, |_| async { Ok(()) }).with_settings(tune);
        let error = runnable.declaration(&env).expect_err(call).to_string();
        assert_eq!(error, format!("a runnable has no queue: {call} belongs in the setup of a controller"));
    }
}

#[test]
fn runnable_has_no_queue_metrics() {
    let env = Env::virtual_time(1);
    let runnable = Registration::task("idle", RunsOn::BeforeCaches, |_| async { Ok(()) });
    assert_eq!(runnable.descriptor(), Descriptor::new("idle").with_runs_on(RunsOn::BeforeCaches));
    assert!(runnable.is_runnable());
    let metrics = Metrics::new();
    let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
    let error = runnable.prepare(Host::new(env, metrics.clone(), factory)).expect_err("no controller");
    assert!(error.to_string().contains("a runnable, which only a manager runs"), "{error}");
    assert!(!metrics.encode().contains("idle"));
}
