//! etcd as the source of an informer: the real etcd of a control plane, without an API server in between.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::uri::PathAndQuery;
use k8s_openapi::api::core::v1::ConfigMap;
use prost::Message;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::{mpsc::UnboundedReceiver, watch};
use tonic::{Request, client::Grpc};
use tonic_prost::ProstCodec;
use windlass_black_box::{control_plane::with_control_plane, wait::eventually_within};
use windlass_client::{FrameStream, RequestError, VersionMatch};
use windlass_env::Env;
use windlass_harness::{ControlPlane, ControlPlaneOptions};
use windlass_informer::{
    DeletionEvidence, Event, FactoryOptions, InformerFactory, ListRequest, Lister, ListerWatcher, Selection,
    WatchRequest,
    etcd::{Channel, Endpoint, EtcdSource, JsonObjects},
};
use windlass_metrics::Metrics;
use windlass_object::{Frame, ObjectKey, Projection, RawList, ResourceKind, TypedObjects};

/// Timeout, long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// More than two pages.
const MANY: usize = 1_200;

/// The writes of this test in etcd's protocol.
struct Writer(Channel);

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteRange {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Compact {
    #[prost(int64, tag = "1")]
    revision: i64,
    #[prost(bool, tag = "2")]
    physical: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

impl Writer {
    async fn send(&self, method: &'static str, message: impl Message + 'static) -> Result<i64> {
        let mut calls = Grpc::new(self.0.clone());
        calls.ready().await?;
        let path = PathAndQuery::from_static(method);
        let answer = calls.unary(Request::new(message), path, ProstCodec::<_, Answer>::default()).await?;
        answer.into_inner().header.map(|header| header.revision).context("etcd answers with its revision")
    }

    async fn put(&self, key: &str, value: &str) -> Result<i64> {
        let (key, value) = (Bytes::from(format!("/kitchen/recipes/{key}")), Bytes::from(value.to_owned()));
        self.send("/etcdserverpb.KV/Put", Put { key, value }).await
    }

    async fn delete(&self, key: &str) -> Result<i64> {
        let key = Bytes::from(format!("/kitchen/recipes/{key}"));
        self.send("/etcdserverpb.KV/DeleteRange", DeleteRange { key }).await
    }

    async fn compact(&self, revision: i64) -> Result<i64> {
        self.send("/etcdserverpb.KV/Compact", Compact { revision, physical: false }).await
    }
}

fn channel(socket: PathBuf) -> Channel {
    let connect = move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    };
    Endpoint::from_static("http://etcd.test").connect_with_connector_lazy(tower::service_fn(connect))
}

fn recipe(taste: &str) -> String {
    json!({"data": {"taste": taste}}).to_string()
}

fn taste(recipe: &ConfigMap) -> &str {
    recipe.data.as_ref().and_then(|data| data.get("taste")).map_or("", String::as_str)
}

fn since(version: i64) -> WatchRequest {
    let timeout = TIMEOUT;
    WatchRequest { version: version.to_string(), timeout, bookmarks: true, projection: Projection::Full }
}

async fn next(stream: &mut FrameStream) -> Result<Frame> {
    let next = tokio::time::timeout(TIMEOUT, stream.next()).await?;
    Ok(next.context("the watch continues")??)
}

// parity: etcd-client-source-projects, no-pluggable-source
#[tokio::test]
async fn etcd_is_a_source_like_any_other() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default().nodes(0).scheduler(false), async |plane, _| {
        let channel = channel(plane.etcd_socket());
        let writer = Writer(channel.clone());
        let env = Env::system("etcd-source-test");
        let source = EtcdSource::new(&env, channel, "/kitchen/recipes", JsonObjects);
        let source = source.with_progress_interval(Duration::from_millis(500));
        informer_follows_writes(&env, &writer, &source).await?;
        pages_and_watches_use_one_revision_until_compaction(&writer, &source).await?;
        progress_is_reported_without_changes(plane, &writer, &source).await
    })
    .await
}

async fn informer_follows_writes(env: &Env, writer: &Writer, source: &EtcdSource) -> Result<()> {
    for number in 0..MANY {
        writer.put(&format!("home/bread-{number:04}"), &recipe("plain")).await?;
    }
    writer.put("away/soup", &recipe("salty")).await?;
    writer.put("home/broken", "no JSON").await?;

    let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
    let home = factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("home"));
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let handler = home.add_handler("test", move |event: &Event<Arc<ConfigMap>>| {
        // The receiver can be dropped when the test is done.
        let _unheard = sender.send(event.clone());
    })?;
    let recipes = source.clone();
    factory.start(Arc::new(move |_: &ResourceKind, selection: &Selection| recipes.selecting(selection)));
    factory.wait_for_sync(Some(TIMEOUT)).await?;
    let lister = home.lister();
    ensure!(lister.list().len() == MANY, "{} of {MANY} are held", lister.list().len());
    ensure!(lister.get(&ObjectKey::namespaced("home", "broken")).is_err(), "what is broken hides nothing");
    while !handler.has_synced() {
        tokio::time::timeout(TIMEOUT, events.recv()).await?;
    }

    let key = "home/bread-0007";
    let changed = writer.put(key, &recipe("sweet")).await?;
    writer.delete(key).await?;
    let (mut updated, mut deleted) = (None, None);
    while deleted.is_none() {
        match tokio::time::timeout(TIMEOUT, events.recv()).await?.context("the handler lives")? {
            Event::Updated { new, .. } => updated = Some(new),
            Event::Deleted { last, observed, .. } => deleted = Some((last, observed)),
            Event::Added { .. } => {}
        }
    }
    let updated = updated.context("the change is delivered before the deletion")?;
    ensure!(updated.metadata.resource_version == Some(changed.to_string()) && taste(&updated) == "sweet");
    let (last, observed) = deleted.context("the deletion is delivered")?;
    ensure!(observed == DeletionEvidence::Observed && taste(&last) == "sweet", "it carries the last state");
    factory.shutdown().await;
    Ok(())
}

async fn pages_and_watches_use_one_revision_until_compaction(
    writer: &Writer,
    source: &EtcdSource,
) -> Result<()> {
    let page = ListRequest { limit: Some(500), ..ListRequest::default() };
    let first = source.list(page.clone()).await?;
    let (token, version) =
        (first.continue_token.context("there is more")?, first.version.context("a version")?);
    let after = writer.put("home/late", &recipe("late")).await?;
    let rest = ListRequest { continue_token: Some(token), ..page };
    let second = source.list(rest.clone()).await?;
    ensure!(second.version.as_ref() == Some(&version), "all pages are of the revision of the first");

    let old: i64 = version.as_str().parse()?;
    let mut watch = source.watch(since(old)).await?;
    ensure!(matches!(next(&mut watch).await?, Frame::Added(_)), "the write after the list is delivered");
    writer.compact(after).await?;
    let expired = source.list(rest).await;
    ensure!(expired.as_ref().is_err_and(|error| error.is_expired()), "{expired:?}");
    let exact = Some(VersionMatch::Exact);
    let exact =
        ListRequest { version: Some(old.to_string()), version_match: exact, ..ListRequest::default() };
    ensure!(source.list(exact).await.is_err_and(|error| error.is_expired()));
    let mut expired = source.watch(since(old - 1)).await?;
    let frame = next(&mut expired).await?;
    ensure!(matches!(&frame, Frame::Error(status) if status.code == 410), "{frame:?}");

    let mut future = source.watch(since(after + 1_000_000)).await?;
    let frame = next(&mut future).await?;
    ensure!(matches!(&frame, Frame::Error(status) if status.code == 504), "{frame:?}");
    Ok(())
}

async fn progress_is_reported_without_changes(
    plane: &ControlPlane,
    writer: &Writer,
    source: &EtcdSource,
) -> Result<()> {
    let mut watch = source.watch(since(writer.put("home/last", &recipe("last")).await?)).await?;
    plane.namespace("elsewhere").await?;
    let later = writer.delete("home/nothing").await?;
    loop {
        match next(&mut watch).await? {
            Frame::Bookmark { version, .. } if version.as_str().parse::<i64>()? >= later => return Ok(()),
            Frame::Bookmark { .. } => {}
            other => anyhow::bail!("expected no event, but {other:?} is delivered"),
        }
    }
}

/// A source whose watches can be disconnected. While they are disconnected, no watch starts.
struct Severable {
    source: Arc<dyn ListerWatcher>,
    cut: watch::Receiver<bool>,
    passed: Arc<watch::Sender<Passed>>,
}

/// Requests to a source, and their results.
#[derive(Clone, Debug, Default)]
struct Passed {
    pages: usize,
    /// Start version of each requested watch.
    watches: Vec<String>,
    /// Number of started watches.
    begun: usize,
    /// Number of watches that were rejected because their version is compacted.
    expired: usize,
}

#[async_trait]
impl ListerWatcher for Severable {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        self.passed.send_modify(|passed| passed.pages += 1);
        self.source.list(request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        self.passed.send_modify(|passed| passed.watches.push(request.version.clone()));
        let mut cut = self.cut.clone();
        cut.wait_for(|cut| !cut).await.map_err(|_| RequestError::Deadline)?;
        let frames = self.source.watch(request).await?;
        self.passed.send_modify(|passed| passed.begun += 1);
        let passed = self.passed.clone();
        let frames = frames.inspect(move |frame| {
            if matches!(frame, Ok(Frame::Error(status)) if status.code == 410) {
                passed.send_modify(|passed| passed.expired += 1);
            }
        });
        let severed = async move {
            // The end of the test disconnects the watch too.
            let _ended = cut.wait_for(|cut| *cut).await.is_ok();
        };
        Ok(frames.take_until(severed).boxed())
    }
}

/// An informer of the namespace `home`, whose watch can be disconnected.
struct Home {
    factory: InformerFactory,
    lister: Lister<ConfigMap>,
    events: UnboundedReceiver<Event<Arc<ConfigMap>>>,
    cut: watch::Sender<bool>,
    passed: watch::Receiver<Passed>,
}

impl Home {
    /// Starts the informer and waits until its handler has received the initial list.
    async fn start(env: &Env, source: &EtcdSource) -> Result<Self> {
        let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
        let informer = factory.informer(TypedObjects::<ConfigMap>::new(), Selection::in_namespace("home"));
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let handler = informer.add_handler("test", move |event: &Event<Arc<ConfigMap>>| {
            // The receiver can be dropped when the test is done.
            let _unheard = sender.send(event.clone());
        })?;
        let ((cut, severed), (passed, seen)) = (watch::channel(false), watch::channel(Passed::default()));
        let (recipes, passed) = (source.clone(), Arc::new(passed));
        factory.start(Arc::new(move |_: &ResourceKind, selection: &Selection| {
            let (source, cut, passed) = (recipes.selecting(selection), severed.clone(), passed.clone());
            Arc::new(Severable { source, cut, passed }) as Arc<dyn ListerWatcher>
        }));
        factory.wait_for_sync(Some(TIMEOUT)).await?;
        while !handler.has_synced() {
            tokio::time::timeout(TIMEOUT, events.recv()).await?;
        }
        while events.try_recv().is_ok() {}
        Ok(Self { lister: informer.lister(), factory, events, cut, passed: seen })
    }

    /// Disconnects the watch, and returns the start version of the next watch, which is delayed.
    async fn sever(&mut self) -> Result<i64> {
        // A watch must have started before it can be disconnected.
        let begun = |passed: &Passed| passed.begun > 0;
        let before = tokio::time::timeout(TIMEOUT, self.passed.wait_for(begun)).await??.watches.len();
        self.cut.send_replace(true);
        let again = |passed: &Passed| passed.watches.len() > before;
        let passed = tokio::time::timeout(TIMEOUT, self.passed.wait_for(again)).await??.clone();
        Ok(passed.watches.last().context("no watch was requested")?.parse()?)
    }

    /// Returns all events up to `last` as lines, ordered by name.
    async fn received_until(&mut self, last: &str) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let event = tokio::time::timeout(TIMEOUT, self.events.recv()).await;
            let event = event.with_context(|| format!("no more events after {lines:#?}"))?;
            lines.push(line(&event.context("the handler lives")?));
        }
        lines.sort();
        Ok(lines)
    }
}

/// Formats name, change, cause and tastes of an event.
fn line(event: &Event<Arc<ConfigMap>>) -> String {
    let name = |recipe: &ConfigMap| recipe.metadata.name.clone().unwrap_or_default();
    match event {
        Event::Added { object, cause } => format!("{} added by {cause:?}: {}", name(object), taste(object)),
        Event::Updated { old, new, cause } => {
            format!("{} updated by {cause:?}: {} to {}", name(new), taste(old), taste(new))
        }
        Event::Deleted { last, observed, cause } => {
            format!("{} deleted by {cause:?}, {observed:?}: {}", name(last), taste(last))
        }
    }
}

/// Returns names, versions and tastes.
fn contents<'a>(recipes: impl IntoIterator<Item = &'a ConfigMap>) -> BTreeSet<String> {
    let content = |recipe: &ConfigMap| {
        let metadata = &recipe.metadata;
        let (name, version) = (metadata.name.as_deref(), metadata.resource_version.as_deref());
        format!("{} {} {}", name.unwrap_or_default(), version.unwrap_or_default(), taste(recipe))
    };
    recipes.into_iter().map(content).collect()
}

/// Returns the content of a recipe with this UID and taste.
fn edition(uid: &str, taste: &str) -> String {
    json!({"metadata": {"uid": uid}, "data": {"taste": taste}}).to_string()
}

/// The events after a watch missed changes, and those of the next watch: each change once, and none for objects that
/// were created and deleted in between.
const EXPECTED_EVENTS: [&str; 6] = [
    "changed updated by Relist: plain to bitter",
    "gone deleted by Relist, Inferred: plain",
    "new added by Relist: fresh",
    "reborn added by Relist: young",
    "reborn deleted by Relist, Inferred: old",
    SEEN,
];
const SEEN: &str = "seen added by Watch: visible";

/// Writes changes that a disconnected watch misses, and returns the last revision.
async fn unseen_writes(writer: &Writer) -> Result<i64> {
    writer.put("home/changed", &recipe("sour")).await?;
    writer.put("home/changed", &recipe("bitter")).await?;
    writer.delete("home/gone").await?;
    writer.put("home/new", &recipe("fresh")).await?;
    writer.put("home/brief", &recipe("fleeting")).await?;
    writer.delete("home/brief").await?;
    writer.delete("home/reborn").await?;
    writer.put("home/reborn", &edition("two", "young")).await?;
    writer.put("away/elsewhere", &recipe("foreign")).await?;
    writer.delete("home/nothing").await
}

// parity: etcd-client-source-projects, no-pluggable-source
#[tokio::test]
async fn watch_interrupted_by_compaction_relists_and_delivers_only_differences() -> Result<()> {
    with_control_plane(ControlPlaneOptions::default().nodes(0).scheduler(false), async |plane, _| {
        let channel = channel(plane.etcd_socket());
        let writer = Writer(channel.clone());
        let env = Env::system("etcd-cut-test");
        let source = EtcdSource::new(&env, channel, "/kitchen/recipes", JsonObjects);
        let source = source.with_progress_interval(Duration::from_millis(500));
        for name in ["changed", "gone", "same"] {
            writer.put(&format!("home/{name}"), &recipe("plain")).await?;
        }
        writer.put("home/reborn", &edition("one", "old")).await?;
        let mut home = Home::start(&env, &source).await?;

        let held = home.sever().await?;
        let pages = home.passed.borrow().pages;
        let last = unseen_writes(&writer).await?;
        writer.compact(last).await?;
        ensure!(held < last, "the watch must resume from {held}, and {last} is kept");
        ensure!(home.events.try_recv().is_err(), "an event is delivered while the link is cut");
        home.cut.send_replace(false);

        let listed = |passed: &Passed| passed.pages > pages;
        let passed = tokio::time::timeout(TIMEOUT, home.passed.wait_for(listed)).await;
        let passed = passed.context("no relist happened")??.clone();
        ensure!(passed.expired == 1, "the watch was refused once for its version: {passed:?}");
        let fresh = async || Ok(home.lister.version().map(|version| version.to_string()));
        let fresh_enough = |version: &Option<String>| {
            version
                .as_ref()
                .and_then(|version| version.parse().ok())
                .is_some_and(|version: i64| version >= last)
        };
        eventually_within(TIMEOUT, "the cache is as new as what was compacted", fresh, fresh_enough).await?;

        writer.put("home/seen", &recipe("visible")).await?;
        let lines = home.received_until(SEEN).await?;
        ensure!(lines == EXPECTED_EVENTS, "{lines:#?} is delivered instead of {EXPECTED_EVENTS:#?}");
        let (held, stored) = (home.lister.list(), source.selecting(&Selection::in_namespace("home")));
        let stored = stored.list(ListRequest::default()).await?.items;
        let stored: Vec<ConfigMap> =
            stored.iter().map(|item| serde_json::from_slice(item)).collect::<Result<_, _>>()?;
        let (held, stored) = (contents(held.iter().map(Arc::as_ref)), contents(&stored));
        ensure!(held == stored && held.len() == 5, "held are {held:#?}, and stored {stored:#?}");
        ensure!(home.lister.undecodable().is_empty(), "{:?}", home.lister.undecodable());
        home.factory.shutdown().await;
        Ok(())
    })
    .await
}
