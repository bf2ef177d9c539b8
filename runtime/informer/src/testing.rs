//! Fixtures for the tests of this crate: a scripted source, a small versioned server as a source, and handlers that
//! record their events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::mpsc;
use windlass_client::{FrameStream, RequestError};
use windlass_env::{Env, Instant};
use windlass_metrics::Metrics;
use windlass_object::{Frame, ObjectKey, RawList, ResourceKind, ResourceVersion, wire};

use crate::{
    Event, FactoryOptions, HandlerHandle, InformerFactory, ListRequest, Lister, ListerWatcher, Selection,
    SharedInformer, SourceProvider, VersionedCache, WatchListRequest, WatchRequest,
};

pub(crate) type Informer = SharedInformer<ConfigMap>;
pub(crate) type TestEvent = Event<Arc<ConfigMap>>;

/// Longer than several backoffs.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

pub(crate) fn at(version: u64) -> ResourceVersion {
    ResourceVersion::new(&version.to_string())
}

/// Returns the bytes of a ConfigMap. `value` is its only datum.
pub(crate) fn object(name: &str, uid: &str, version: u64, value: &str) -> Bytes {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}","resourceVersion":"{version}"}},"data":{{"value":"{value}"}}}}"#
    )
    .into()
}

/// Returns the bytes of a ConfigMap with a valid header and an invalid body.
pub(crate) fn undecodable(name: &str, uid: &str, version: u64) -> Bytes {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}","resourceVersion":"{version}"}},"data":7}}"#
    )
    .into()
}

pub(crate) fn page(version: u64, items: &[Bytes]) -> RawList {
    RawList { version: Some(at(version)), items: items.to_vec(), ..RawList::default() }
}

pub(crate) fn refusal(code: u16, reason: &str) -> RequestError {
    let body = format!(r#"{{"status":"Failure","code":{code},"reason":"{reason}","message":"{reason}"}}"#);
    RequestError::from_status(wire::status(code, body.as_bytes()), None)
}

pub(crate) fn gone() -> RequestError {
    refusal(410, "Expired")
}

/// Returns the same error as a frame within a watch.
pub(crate) fn error_frame(error: &RequestError) -> Frame {
    Frame::Error(Box::new(error.status().expect("only an error response arrives in a frame").clone()))
}

pub(crate) fn bookmark(version: u64) -> Frame {
    Frame::Bookmark { version: at(version), initial_events_end: false }
}

/// Runs all tasks that need no timer of a millisecond or more.
pub(crate) async fn settle(env: &Env) {
    env.sleep(Duration::from_millis(1)).await;
}

/// Returns name, version and value of an object.
pub(crate) fn brief(object: &ConfigMap) -> String {
    let meta = &object.metadata;
    let value = object.data.as_ref().and_then(|data| data.get("value")).map_or("", String::as_str);
    format!(
        "{}@{}={value}",
        meta.name.as_deref().unwrap_or(""),
        meta.resource_version.as_deref().unwrap_or("")
    )
}

/// Returns a short form of an event: `+a@1=x InitialList`, `~a@1=x>a@2=y Watch`, `-a@2=y Watch Seen`.
pub(crate) fn brief_event(event: &TestEvent) -> String {
    match event {
        Event::Added { object, cause } => format!("+{} {cause:?}", brief(object)),
        Event::Updated { old, new, cause } => format!("~{}>{} {cause:?}", brief(old), brief(new)),
        Event::Deleted { last, observed, cause } => format!("-{} {cause:?} {observed:?}", brief(last)),
    }
}

/// A recorder of the events of a handler.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<TestEvent>>>);

impl Log {
    pub(crate) fn attach(&self, informer: &Informer, name: &str) -> HandlerHandle {
        let log = self.clone();
        informer
            .add_handler(name, move |event: &TestEvent| log.push(event.clone()))
            .expect("the informer lives")
    }

    pub(crate) fn push(&self, event: TestEvent) {
        lock(&self.0).push(event);
    }

    pub(crate) fn events(&self) -> Vec<TestEvent> {
        lock(&self.0).clone()
    }

    /// Returns the events since the last call.
    pub(crate) fn take_events(&self) -> Vec<TestEvent> {
        std::mem::take(&mut *lock(&self.0))
    }

    /// Returns the events since the last call, in short form.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0)).iter().map(brief_event).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether an urgent list is in the store of this cache within this time.
pub(crate) async fn relisted_within(env: &Env, cache: &dyn VersionedCache, within: Duration) -> bool {
    env.timeout(within, cache.relist_now()).await.is_ok()
}

/// A factory with one informer of ConfigMaps.
pub(crate) struct Rig {
    pub(crate) env: Env,
    pub(crate) factory: InformerFactory,
    pub(crate) informer: Informer,
    pub(crate) lister: Lister<ConfigMap>,
    pub(crate) metrics: Metrics,
}

impl Rig {
    /// Returns whether an urgent list is in the store within this time.
    pub(crate) async fn relisted_within(&self, within: Duration) -> bool {
        relisted_within(&self.env, &*self.informer, within).await
    }

    pub(crate) fn new() -> Self {
        Self::with_options(FactoryOptions::default())
    }

    pub(crate) fn with_options(options: FactoryOptions) -> Self {
        let (env, metrics) = (Env::virtual_time(1), Metrics::new());
        let factory = InformerFactory::new(env.clone(), metrics.clone(), options);
        let informer = factory.typed::<ConfigMap>();
        let lister = informer.lister();
        Self { env, factory, informer, lister, metrics }
    }

    pub(crate) fn start<S: ListerWatcher>(&self, source: &Arc<S>) {
        self.factory.start(Arc::new(Only(Arc::clone(source))));
    }

    pub(crate) async fn settle(&self) {
        settle(&self.env).await;
    }

    /// Returns the stored objects, in short form.
    pub(crate) fn held(&self) -> Vec<String> {
        self.lister.list().iter().map(|object| brief(object)).collect()
    }

    /// Returns the metrics of this informer. All handles share the values.
    pub(crate) fn counts(&self) -> windlass_metrics::InformerMetrics {
        self.metrics.informer("", "v1", "configmaps")
    }
}

/// A provider with one source for all kinds and selections.
pub(crate) struct Only<S>(pub(crate) Arc<S>);

impl<S: ListerWatcher> SourceProvider for Only<S> {
    fn source(&self, _kind: &ResourceKind, _selection: &Selection) -> Arc<dyn ListerWatcher> {
        Arc::clone(&self.0) as Arc<dyn ListerWatcher>
    }
}

/// A request that a source received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    List(ListRequest),
    Watch(String),
    /// A list as a stream, not older than this version.
    Stream(Option<String>),
}

/// A source that returns the scripted responses in order. After the last one, its requests never return.
pub(crate) struct Script {
    env: Env,
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(Instant, Asked)>>,
    windows: Mutex<Vec<Duration>>,
    disappointments: AtomicUsize,
}

/// A scripted response. A stream is available only where the script has one.
pub(crate) enum Answer {
    List(Result<RawList, RequestError>),
    /// The list request never returns.
    Silent,
    Stream(Result<Vec<Play>, RequestError>),
    Watch(Result<Vec<Play>, RequestError>),
}

/// An event of a watch. After the last one, the stream ends.
pub(crate) enum Play {
    Send(Frame),
    Fail(RequestError),
    Wait(Duration),
    Stall,
    /// The same frame without end, a hundred times per second.
    Flood(Frame),
    Live(mpsc::UnboundedReceiver<Frame>),
}

impl Script {
    pub(crate) fn new(env: &Env, answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self {
            env: env.clone(),
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
            windows: Mutex::default(),
            disappointments: AtomicUsize::new(0),
        })
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).iter().map(|(_, asked)| asked.clone()).collect()
    }

    /// Returns the times between consecutive requests.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        let asked = lock(&self.asked);
        asked.windows(2).map(|pair| pair[1].0.saturating_duration_since(pair[0].0)).collect()
    }

    /// Returns the timeouts of the watches and of the streams.
    pub(crate) fn windows(&self) -> Vec<Duration> {
        lock(&self.windows).clone()
    }

    /// Returns how many streams did not work as promised.
    pub(crate) fn disappointments(&self) -> usize {
        self.disappointments.load(Ordering::Relaxed)
    }

    fn next(&self, asked: Asked) -> Option<Answer> {
        lock(&self.asked).push((self.env.now(), asked));
        lock(&self.answers).pop_front()
    }
}

#[async_trait]
impl ListerWatcher for Script {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        match self.next(Asked::List(request)) {
            Some(Answer::List(answer)) => answer,
            Some(Answer::Silent) => std::future::pending().await,
            Some(_) => panic!("the script has another response here, not a list"),
            None => std::future::pending().await,
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        lock(&self.windows).push(request.timeout);
        match self.next(Asked::Watch(request.version)) {
            Some(Answer::Watch(answer)) => answer.map(|plays| play(&self.env, plays)),
            Some(_) => panic!("the script has another response here, not a watch"),
            None => std::future::pending().await,
        }
    }

    async fn watch_list(&self, request: WatchListRequest) -> Result<FrameStream, RequestError> {
        if !matches!(lock(&self.answers).front(), Some(Answer::Stream(_))) {
            return Err(RequestError::Unsupported("the script has no stream here"));
        }
        lock(&self.windows).push(request.timeout);
        match self.next(Asked::Stream(request.not_older_than)) {
            Some(Answer::Stream(answer)) => answer.map(|plays| play(&self.env, plays)),
            _ => unreachable!("a stream comes first"),
        }
    }

    fn watch_list_failed(&self) {
        self.disappointments.fetch_add(1, Ordering::Relaxed);
    }
}

fn play(env: &Env, plays: Vec<Play>) -> FrameStream {
    let env = env.clone();
    let one = move |play| {
        let env = env.clone();
        async move {
            match play {
                Play::Send(frame) => stream::iter([Ok(frame)]).boxed(),
                Play::Fail(error) => stream::iter([Err(error)]).boxed(),
                Play::Stall => stream::pending().boxed(),
                Play::Flood(frame) => stream::repeat(frame)
                    .then(move |frame| {
                        let env = env.clone();
                        async move {
                            env.sleep(Duration::from_millis(10)).await;
                            Ok(frame)
                        }
                    })
                    .boxed(),
                Play::Live(frames) => live(frames).map(Ok).boxed(),
                Play::Wait(wait) => {
                    env.sleep(wait).await;
                    stream::empty().boxed()
                }
            }
        }
    };
    stream::iter(plays).then(one).flatten().boxed()
}

fn live<T>(receiver: mpsc::UnboundedReceiver<T>) -> impl stream::Stream<Item = T> {
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|item| (item, receiver)) })
}

/// A small API server for one resource: versions, history, compaction, pages, and streams that a test can close.
#[derive(Default)]
pub(crate) struct Server {
    world: Mutex<World>,
}

#[derive(Default)]
struct World {
    version: u64,
    created: u64,
    objects: BTreeMap<String, Kept>,
    history: Vec<(u64, Frame)>,
    /// Changes up to this version are no longer in the history.
    compacted: u64,
    streams: Vec<mpsc::UnboundedSender<Result<Frame, RequestError>>>,
    /// The remaining items of lists whose pages were not all fetched, by token.
    pages: BTreeMap<String, (u64, Vec<Bytes>)>,
    page_size: Option<usize>,
    /// Responses to the next requests.
    failures: VecDeque<RequestError>,
    /// Whether a watch from a compacted version gets its error in a frame, as from servers with a cache.
    refuses_in_frames: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) raw: Bytes,
    pub(crate) decodable: bool,
}

impl Server {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates or updates the object.
    pub(crate) fn set(&self, name: &str, value: &str) -> u64 {
        self.write(name, true, |uid, version| object(name, uid, version, value))
    }

    /// Creates or updates the object with bytes that cannot be decoded.
    pub(crate) fn spoil(&self, name: &str) -> u64 {
        self.write(name, false, |uid, version| undecodable(name, uid, version))
    }

    pub(crate) fn delete(&self, name: &str) {
        let world = &mut *lock(&self.world);
        let Some(kept) = world.objects.remove(name) else { return };
        world.version += 1;
        let last = match kept.decodable {
            true => object(name, &kept.uid, world.version, "end"),
            false => undecodable(name, &kept.uid, world.version),
        };
        world.publish(Frame::Deleted(last));
    }

    /// Advances the version, as a write to another resource does.
    pub(crate) fn pass_time(&self) {
        lock(&self.world).version += 1;
    }

    pub(crate) fn bookmark(&self) {
        let world = &mut *lock(&self.world);
        let frame = bookmark(world.version);
        world.streams.retain(|stream| stream.send(Ok(frame.clone())).is_ok());
    }

    /// Drops the history.
    pub(crate) fn compact(&self, refuses_in_frames: bool) {
        let world = &mut *lock(&self.world);
        world.compacted = world.version;
        world.history.clear();
        world.pages.clear();
        world.refuses_in_frames = refuses_in_frames;
    }

    /// Closes every stream, with an error or as if it had timed out.
    pub(crate) fn cut(&self, error: Option<RequestError>) {
        for stream in std::mem::take(&mut lock(&self.world).streams) {
            if let Some(error) = &error {
                let frame =
                    if error.status().is_some() { Ok(error_frame(error)) } else { Err(error.clone()) };
                // A closed stream needs no error.
                let _dropped = stream.send(frame);
            }
        }
    }

    pub(crate) fn fail_next(&self, error: RequestError) {
        lock(&self.world).failures.push_back(error);
    }

    pub(crate) fn heal(&self) {
        lock(&self.world).failures.clear();
    }

    pub(crate) fn set_page_size(&self, size: usize) {
        lock(&self.world).page_size = Some(size);
    }

    pub(crate) fn version(&self) -> u64 {
        lock(&self.world).version
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, Kept> {
        lock(&self.world).objects.clone()
    }

    /// Restores a backup: these objects at that version, without later history.
    pub(crate) fn restore(&self, objects: BTreeMap<String, Kept>, version: u64) {
        let world = &mut *lock(&self.world);
        world.objects = objects;
        world.version = version;
        world.compacted = version;
        world.history.clear();
        world.pages.clear();
        world.streams.clear();
    }

    pub(crate) fn watchers(&self) -> usize {
        let world = &mut *lock(&self.world);
        world.streams.retain(|stream| !stream.is_closed());
        world.streams.len()
    }

    fn write(&self, name: &str, decodable: bool, raw: impl FnOnce(&str, u64) -> Bytes) -> u64 {
        let world = &mut *lock(&self.world);
        world.version += 1;
        let version = world.version;
        let known = world.objects.get(name).map(|kept| kept.uid.clone());
        world.created += u64::from(known.is_none());
        let uid = known.clone().unwrap_or_else(|| format!("uid-{}", world.created));
        let raw = raw(&uid, version);
        world.objects.insert(name.to_owned(), Kept { uid, version, raw: raw.clone(), decodable });
        world.publish(if known.is_some() { Frame::Modified(raw) } else { Frame::Added(raw) });
        version
    }
}

impl World {
    fn publish(&mut self, frame: Frame) {
        self.history.push((self.version, frame.clone()));
        self.streams.retain(|stream| stream.send(Ok(frame.clone())).is_ok());
    }

    fn fail(&mut self) -> Result<(), RequestError> {
        self.failures.pop_front().map_or(Ok(()), Err)
    }

    fn first_page(&mut self, request: &ListRequest) -> Result<RawList, RequestError> {
        let wanted =
            request.version.as_deref().map(|version| version.parse::<u64>().expect("a version of ours"));
        if wanted.is_some_and(|wanted| wanted > self.version) {
            return Err(refusal(504, "Too large resource version"));
        }
        let items = self.objects.values().map(|kept| kept.raw.clone()).collect();
        let paged = request.limit.is_some();
        Ok(self.cut_page(self.version, items, paged))
    }

    fn cut_page(&mut self, version: u64, mut items: Vec<Bytes>, paged: bool) -> RawList {
        let size = self.page_size.filter(|_| paged).unwrap_or(usize::MAX);
        let rest = items.split_off(items.len().min(size));
        let mut list = page(version, &items);
        if !rest.is_empty() {
            let token = format!("{version}/{}", rest.len());
            self.pages.insert(token.clone(), (version, rest));
            list.continue_token = Some(token);
        }
        list
    }
}

#[async_trait]
impl ListerWatcher for Server {
    async fn list(&self, request: ListRequest) -> Result<RawList, RequestError> {
        let world = &mut *lock(&self.world);
        world.fail()?;
        match &request.continue_token {
            None => world.first_page(&request),
            Some(token) => {
                let (version, rest) = world.pages.remove(token).ok_or_else(gone)?;
                Ok(world.cut_page(version, rest, true))
            }
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<FrameStream, RequestError> {
        let world = &mut *lock(&self.world);
        world.fail()?;
        let from: u64 = request.version.parse().expect("a version of ours");
        if from < world.compacted || from > world.version {
            return match world.refuses_in_frames {
                true => Ok(stream::iter([Ok(error_frame(&gone()))]).boxed()),
                false => Err(gone()),
            };
        }
        let missed: Vec<_> = world.history.iter().filter(|(version, _)| *version > from).cloned().collect();
        let (sender, receiver) = mpsc::unbounded_channel();
        world.streams.push(sender);
        Ok(stream::iter(missed).map(|(_, frame)| Ok(frame)).chain(live(receiver)).boxed())
    }
}
