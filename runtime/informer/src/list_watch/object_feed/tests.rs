//! The feed as a source: objects and events of informers that use it.

use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use windlass_metrics::Metrics;

use super::*;
use crate::testing::{Informer, LONG, Log, at, brief, key};
use crate::{FactoryOptions, InformerFactory};

struct Rig {
    env: Env,
    feed: ObjectFeed,
    factory: InformerFactory,
    informer: Informer,
    metrics: Metrics,
}

fn rig_over(feed: impl FnOnce(&Env) -> ObjectFeed, selection: Selection) -> Rig {
    let (env, metrics) = (Env::virtual_time(1), Metrics::new());
    let feed = feed(&env);
    let factory = InformerFactory::new(env.clone(), metrics.clone(), FactoryOptions::default());
    let informer = factory.informer(windlass_object::TypedObjects::<ConfigMap>::new(), selection);
    let source = feed.clone();
    factory.start(Arc::new(move |_: &windlass_object::ResourceKind, selection: &Selection| {
        source.selecting(selection)
    }));
    Rig { env, feed, factory, informer, metrics }
}

fn rig() -> Rig {
    rig_over(ObjectFeed::new, Selection::default())
}

impl Rig {
    fn held(&self) -> Vec<String> {
        self.informer.lister().list().iter().map(|object| brief(object)).collect()
    }

    async fn settle(&self) {
        self.env.sleep(Duration::from_millis(1)).await;
    }

    /// Disconnects every watch, as a lost connection does.
    fn disconnect(&self) {
        self.feed.end_watches(Some(RequestError::Transport("the feed was disconnected".to_owned())));
    }

    fn lists(&self) -> u64 {
        self.metrics.informer("", "v1", "configmaps").lists.get()
    }
}

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")}, "data": {"value": value}})
}

// parity: test-rc-number
#[tokio::test(start_paused = true)]
async fn events_arrive_in_order_at_rising_versions() {
    let rig = rig();
    let log = Log::default();
    let _handle = log.attach(&rig.informer, "log");
    rig.settle().await;
    rig.feed.upsert(&map("a", "x")).unwrap();
    rig.feed.upsert(&map("a", "y")).unwrap();
    assert_eq!(rig.feed.upsert(&map("a", "y")), Ok(at(3)), "an identical object is not a change");
    rig.feed.delete(&key("a"));
    rig.settle().await;
    assert_eq!(log.take(), ["+a@2=x Watch", "~a@2=x>a@3=y Watch", "-a@4=y Watch Observed"]);
    assert_eq!((rig.informer.version(), rig.lists()), (Some(at(4)), 1));
}

#[tokio::test(start_paused = true)]
async fn replacing_feed_delivers_differences_only() {
    let rig = rig();
    for name in ["a", "b"] {
        rig.feed.upsert(&map(name, "x")).unwrap();
    }
    rig.settle().await;
    let log = Log::default();
    let _handle = log.attach(&rig.informer, "log");
    rig.settle().await;
    log.take();
    rig.feed.replace([map("b", "x"), map("c", "x")]).unwrap();
    rig.settle().await;
    assert_eq!(log.take(), ["-a@4=x Watch Observed", "+c@5=x Watch"]);
}

// parity: testing-fake
#[tokio::test(start_paused = true)]
async fn disconnected_watch_resumes_without_relist() {
    let rig = rig();
    rig.settle().await;
    rig.disconnect();
    rig.settle().await;
    assert_eq!(rig.feed.watch_count(), 0);
    rig.feed.upsert(&map("a", "x")).unwrap();
    rig.env.sleep(Duration::from_secs(5)).await;
    assert_eq!((rig.held(), rig.lists(), rig.feed.watch_count()), (vec!["a@2=x".to_owned()], 1, 1));
}

// parity: test-replace-events
#[tokio::test(start_paused = true)]
async fn expired_watch_relists_and_removes_deleted_objects() {
    let compacted: fn(&ObjectFeed) = |feed| feed.compact();
    let overflown: fn(&ObjectFeed) = |feed| {
        for count in 0..5 {
            feed.upsert(&map("busy", &count.to_string())).expect("an object");
        }
    };
    for forget in [compacted, overflown] {
        let rig = rig_over(|env| ObjectFeed::with_history(env, 3), Selection::default());
        rig.feed.upsert(&map("a", "x")).unwrap();
        rig.settle().await;
        rig.disconnect();
        rig.settle().await;
        rig.feed.delete(&key("a"));
        forget(&rig.feed);
        rig.env.sleep(LONG).await;
        assert!(!rig.held().contains(&"a@2=x".to_owned()), "{:?}", rig.held());
        assert_eq!((rig.lists(), rig.informer.version()), (2, Some(rig.feed.version())));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_watch_receives_expired_error() {
    let feed = ObjectFeed::with_history(&Env::virtual_time(1), 2);
    let request =
        WatchRequest { version: "1".into(), timeout: LONG, bookmarks: true, projection: Default::default() };
    let mut stream = feed.watch(request).await.unwrap();
    for count in 0..3 {
        feed.upsert(&map("a", &count.to_string())).unwrap();
    }
    let Some(Ok(Frame::Error(status))) = stream.next().await else { panic!("no refusal") };
    assert_eq!((status.code, stream.next().await.is_none()), (410, true));
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_timeout_and_delivers_bookmarks() {
    let feed = ObjectFeed::new(&Env::virtual_time(1));
    let timeout = Duration::from_secs(100);
    let request =
        WatchRequest { version: "1".into(), timeout, bookmarks: true, projection: Default::default() };
    let mut stream = feed.watch(request).await.unwrap();
    feed.bookmark();
    assert_eq!(stream.next().await, Some(Ok(Frame::Bookmark { version: at(1), initial_events_end: false })));
    assert_eq!(stream.next().now_or_never(), None);
    assert_eq!((stream.next().await, feed.shared.env.now().since_origin()), (None, timeout));
}

#[tokio::test(start_paused = true)]
async fn feed_selects_namespace_and_rejects_other_selectors() {
    let rig = rig_over(ObjectFeed::new, Selection::in_namespace("other"));
    rig.feed.upsert(&map("a", "x")).unwrap();
    rig.feed.upsert(&json!({"metadata": {"namespace": "other", "name": "b"}})).unwrap();
    rig.settle().await;
    assert_eq!(rig.held(), ["b@3="]);
    let labeled = Selection { labels: Some("a=b".to_owned()), ..Selection::default() };
    let refused = rig.feed.selecting(&labeled).list(ListRequest::default()).await;
    assert!(matches!(refused, Err(RequestError::Unsupported(_))));
}

#[tokio::test(start_paused = true)]
async fn invalid_object_is_rejected_without_change() {
    let feed = ObjectFeed::new(&Env::virtual_time(1));
    for nothing in [json!(7), json!({}), json!({"metadata": {}})] {
        assert!(matches!(feed.upsert(&nothing), Err(FeedError::MissingName(_))), "{nothing}");
        assert!(feed.replace([map("a", "x"), nothing]).is_err());
    }
    assert_eq!((feed.version(), feed.delete(&key("a"))), (at(1), None));
}

#[tokio::test(start_paused = true)]
async fn stopped_informer_closes_its_watch() {
    let rig = rig();
    rig.settle().await;
    assert_eq!(rig.feed.watch_count(), 1);
    rig.factory.shutdown().await;
    assert_eq!(rig.feed.watch_count(), 0);
}
