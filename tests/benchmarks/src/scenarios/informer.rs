//! Compares the shared informer with client-go's, with ten thousand pods and 0, 10 and 80 readers that list them
//! continuously.
//!
//! Workloads have the names of the peer's benchmarks: `Events…` is the time per event with ten events in flight, from
//! the source to a handler; `Wait…` is this time for a single event, for the slowest of a hundred, which shows how long
//! readers block the writer. Both sides decode each event from JSON.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc};
use windlass_client::{FrameStream, RequestError};
use windlass_env::Env;
use windlass_informer::{
    Event, FactoryOptions, InformerFactory, ListRequest, Lister, ListerWatcher, Selection, WatchRequest,
};
use windlass_metrics::Metrics;
use windlass_object::{Frame, RawList, ResourceKind, ResourceVersion};

use crate::peer::Peer;
use crate::results::{Contender, Goal, Metric, Sample, Unit};
use crate::scenarios::{Context, Record};

/// Number of pods, as in the peer's benchmarks.
const PODS: usize = 10_000;
/// Number of events in flight, as in the peer's benchmarks.
const UNDER_WAY: usize = 10;
/// Duration of each measurement in each round.
const TIME: Duration = Duration::from_millis(1000);
const EVENT: Metric = Metric::new("time per event", Unit::Nanoseconds);
const WAIT: Metric =
    Metric::with_goal("wait of an event, 99th percentile", Unit::Nanoseconds, Goal::AtMost(10_000.0));

/// Workloads of the peer, with the number of readers and the number of events in flight.
const WORKLOADS: &[(&str, usize, usize)] = &[
    ("Events0", 0, UNDER_WAY),
    ("Wait0", 0, 1),
    ("Events10", 10, UNDER_WAY),
    ("Wait10", 10, 1),
    ("Events80", 80, UNDER_WAY),
    ("Wait80", 80, 1),
];

/// Measures all workloads.
///
/// # Errors
/// If the peer cannot be built or measured.
pub(super) fn run(context: &Context, record: Record<'_>) -> Result<()> {
    let peer = Peer::build("client-go")?;
    let milliseconds = u32::try_from(TIME.as_millis())?;
    for _ in 0..context.rounds {
        for (workload, readers, under_way) in WORKLOADS {
            let theirs = peer.measure(workload, milliseconds)?.nanoseconds;
            let values = [
                (Contender::windlass("windlass"), ours(*readers, *under_way)?),
                (Contender::peer(peer.name()), theirs),
            ];
            for (contender, value) in values {
                let metric = if *under_way > 1 { EVENT } else { WAIT };
                record(Sample {
                    workload: format!("informer: {workload}"),
                    size: None,
                    metric,
                    contender,
                    value,
                })?;
            }
        }
    }
    Ok(())
}

/// A source that lists once and then returns the events of a channel.
struct Feed {
    frames: Mutex<Option<mpsc::Receiver<Frame>>>,
}

#[async_trait]
impl ListerWatcher for Feed {
    async fn list(&self, _: ListRequest) -> Result<RawList, RequestError> {
        let items = (0..PODS).map(|number| pod(number, number + 1).into()).collect();
        Ok(RawList { version: Some(version(PODS)), items, ..RawList::default() })
    }

    async fn watch(&self, _: WatchRequest) -> Result<FrameStream, RequestError> {
        let frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner).take();
        let frames = stream::unfold(frames, |frames| async {
            let mut frames = frames?;
            let frame = frames.recv().await?;
            Some((Ok(frame), Some(frames)))
        });
        Ok(frames.chain(stream::pending()).boxed())
    }
}

fn pod(number: usize, version: usize) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"default","name":"pod-{number}","uid":"u","resourceVersion":"{version}"}}}}"#
    )
}

fn version(number: usize) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

/// Measures this side with as many threads as the peer: one per processor.
fn ours(readers: usize, under_way: usize) -> Result<f64> {
    let runtime = Builder::new_multi_thread().enable_time().build().context("cannot make a runtime")?;
    let nanoseconds = runtime.block_on(async { tokio::spawn(measure(readers, under_way)).await });
    runtime.shutdown_background();
    nanoseconds.context("the measurement panicked")?
}

async fn measure(readers: usize, under_way: usize) -> Result<f64> {
    let (feed, frames) = mpsc::channel(1);
    let source = Arc::new(Feed { frames: Mutex::new(Some(frames)) });
    let factory = InformerFactory::new(Env::system("benchmark"), Metrics::new(), FactoryOptions::default());
    let informer = factory.typed::<Pod>();
    let _index = informer.lister().index(|pod| pod.metadata.namespace.clone());
    let room = Arc::new(Semaphore::new(under_way));
    let notified = Arc::clone(&room);
    let handler = move |event: &Event<Arc<Pod>>| {
        if matches!(event, Event::Updated { .. }) {
            notified.add_permits(1);
        }
    };
    let handle = informer.add_handler("benchmark", handler)?;
    let source = move |_: &ResourceKind, _: &Selection| Arc::clone(&source) as Arc<dyn ListerWatcher>;
    factory.start(Arc::new(source));
    handle.synced().await;
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..readers {
        drop(tokio::spawn(read(informer.lister(), Arc::clone(&stop))));
    }
    let nanoseconds = if under_way > 1 { events(&feed, &room).await? } else { wait(&feed, &room).await? };
    stop.store(true, Ordering::Relaxed);
    factory.shutdown().await;
    Ok(nanoseconds)
}

/// Lists continuously, and yields in between, as the scheduler forces goroutines to.
async fn read(lister: Lister<Pod>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        black_box(lister.list_namespace("default").len());
        tokio::task::yield_now().await;
    }
}

/// Sends an event when the limit of events in flight permits it.
async fn send(feed: &mpsc::Sender<Frame>, room: &Semaphore, sent: usize) -> Result<()> {
    room.acquire().await?.forget();
    let version = PODS + 1 + sent;
    let frame = Frame::Modified(pod(version * 7919 % PODS, version).into());
    feed.send(frame).await.context("the informer does not watch")
}

async fn events(feed: &mpsc::Sender<Frame>, room: &Semaphore) -> Result<f64> {
    let (begun, mut sent) = (Instant::now(), 0u32);
    while begun.elapsed() < TIME {
        send(feed, room, sent as usize).await?;
        sent += 1;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e9 / f64::from(sent))
}

async fn wait(feed: &mpsc::Sender<Frame>, room: &Semaphore) -> Result<f64> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < TIME {
        let sent = Instant::now();
        send(feed, room, took.len()).await?;
        // A permit is available again after the delivery.
        drop(room.acquire().await?);
        took.push(sent.elapsed());
    }
    took.sort_unstable();
    Ok(took[took.len() * 99 / 100].as_secs_f64() * 1e9)
}
