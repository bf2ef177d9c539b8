//! etcd as the source of an informer, on the real etcd of a control plane, with no API server between the two.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::uri::PathAndQuery;
use k8s_openapi::api::core::v1::ConfigMap;
use prost::Message;
use serde_json::json;
use tokio::net::UnixStream;
use tonic::{Request, client::Grpc};
use tonic_prost::ProstCodec;
use windlass_black_box::stage::on_plane;
use windlass_client::{FrameStream, VersionMatch};
use windlass_env::Env;
use windlass_harness::{Plane, PlaneOptions};
use windlass_informer::{
    Event, FactoryOptions, InformerFactory, ListRequest, ListerWatcher, Observation, Selection, WatchRequest,
    etcd::{Channel, Endpoint, EtcdSource, JsonObjects},
};
use windlass_metrics::Metrics;
use windlass_object::{Extent, Frame, ObjectKey, ResourceKind, Typed};

/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than two pages.
const MANY: usize = 1_200;

/// The writes that this test needs, in the words of etcd's protocol.
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
    let timeout = PATIENCE;
    WatchRequest { version: version.to_string(), timeout, bookmarks: true, extent: Extent::Whole }
}

async fn next(stream: &mut FrameStream) -> Result<Frame> {
    let next = tokio::time::timeout(PATIENCE, stream.next()).await?;
    Ok(next.context("the watch goes on")??)
}

#[tokio::test]
async fn etcd_is_a_source_like_any_other() -> Result<()> {
    on_plane(PlaneOptions::default().nodes(0).scheduler(false), async |plane, _| {
        let channel = channel(plane.etcd_socket());
        let writer = Writer(channel.clone());
        let env = Env::system("etcd-source-test");
        let source = EtcdSource::new(&env, channel, "/kitchen/recipes", JsonObjects);
        let source = source.asking_for_progress_every(Duration::from_millis(500));
        an_informer_follows_what_is_written(&env, &writer, &source).await?;
        pages_and_watches_are_of_one_revision_until_it_is_compacted_away(&writer, &source).await?;
        progress_is_told_while_nothing_happens_here(plane, &writer, &source).await
    })
    .await
}

async fn an_informer_follows_what_is_written(env: &Env, writer: &Writer, source: &EtcdSource) -> Result<()> {
    for number in 0..MANY {
        writer.put(&format!("home/bread-{number:04}"), &recipe("plain")).await?;
    }
    writer.put("away/soup", &recipe("salty")).await?;
    writer.put("home/broken", "no JSON").await?;

    let factory = InformerFactory::new(env.clone(), Metrics::new(), FactoryOptions::default());
    let home = factory.informer(Typed::<ConfigMap>::new(), Selection::in_namespace("home"));
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let handler = home.add_handler("test", move |event: &Event<Arc<ConfigMap>>| {
        // Who listens no more has seen enough.
        let _unheard = told.send(event.clone());
    })?;
    let recipes = source.clone();
    factory.start(Arc::new(move |_: &ResourceKind, selection: &Selection| recipes.selecting(selection)));
    factory.wait_for_sync(Some(PATIENCE)).await?;
    let lister = home.lister();
    ensure!(lister.list().len() == MANY, "{} of {MANY} are held", lister.list().len());
    ensure!(lister.is_quarantined(&ObjectKey::namespaced("home", "broken")), "what is broken hides nothing");
    while !handler.has_synced() {
        tokio::time::timeout(PATIENCE, heard.recv()).await?;
    }

    let key = "home/bread-0007";
    let changed = writer.put(key, &recipe("sweet")).await?;
    writer.delete(key).await?;
    let (mut updated, mut deleted) = (None, None);
    while deleted.is_none() {
        match tokio::time::timeout(PATIENCE, heard.recv()).await?.context("the handler lives")? {
            Event::Updated { new, .. } => updated = Some(new),
            Event::Deleted { last, observed, .. } => deleted = Some((last, observed)),
            Event::Added { .. } => {}
        }
    }
    let updated = updated.context("the change is told before the deletion")?;
    ensure!(updated.metadata.resource_version == Some(changed.to_string()) && taste(&updated) == "sweet");
    let (last, observed) = deleted.context("the deletion is told")?;
    ensure!(observed == Observation::Seen && taste(&last) == "sweet", "it carries the last state");
    factory.shutdown().await;
    Ok(())
}

async fn pages_and_watches_are_of_one_revision_until_it_is_compacted_away(
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
    ensure!(matches!(next(&mut watch).await?, Frame::Added(_)), "what was written after the list is told");
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

async fn progress_is_told_while_nothing_happens_here(
    plane: &Plane,
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
            other => anyhow::bail!("nothing happens here, but {other:?} is told"),
        }
    }
}
