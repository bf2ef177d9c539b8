//! Random histories: server changes, closed streams, errors and compaction.

mod threads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use windlass_client::RequestError;
use windlass_object::ObjectKey;

use crate::testing::*;
use crate::{Event, Lister};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, u8),
    Delete(usize),
    Recreate(usize),
    Spoil(usize),
    PassTime,
    Bookmark,
    /// Closes every stream with this ending.
    Cut(Ending),
    Compact {
        refuses_in_frames: bool,
    },
    /// Lets the next requests fail.
    Fail(Ending),
    Wait(u16),
    AddHandler,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Clean,
    Reset,
    Gone,
    Busy,
    Internal,
}

impl Ending {
    fn error(self) -> Option<RequestError> {
        match self {
            Ending::Clean => None,
            Ending::Reset => Some(RequestError::Transport("connection reset".to_owned())),
            Ending::Gone => Some(gone()),
            Ending::Busy => Some(refusal(429, "TooManyRequests")),
            Ending::Internal => Some(refusal(500, "InternalError")),
        }
    }
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::Clean),
        Just(Ending::Reset),
        Just(Ending::Gone),
        Just(Ending::Busy),
        Just(Ending::Internal)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    prop_oneof![
        8 => (name(), any::<u8>()).prop_map(|(name, value)| Step::Set(name, value)),
        4 => name().prop_map(Step::Delete),
        3 => name().prop_map(Step::Recreate),
        1 => name().prop_map(Step::Spoil),
        1 => Just(Step::PassTime),
        1 => Just(Step::Bookmark),
        2 => ending().prop_map(Step::Cut),
        2 => any::<bool>().prop_map(|refuses_in_frames| Step::Compact { refuses_in_frames }),
        2 => ending().prop_map(Step::Fail),
        4 => prop_oneof![1u16..5, 500u16..5000].prop_map(Step::Wait),
        1 => Just(Step::AddHandler),
    ]
}

/// The view of a handler, with the errors in the events that it received.
struct Witness {
    lister: Lister<ConfigMap>,
    view: BTreeMap<String, (String, u64)>,
    objections: Vec<String>,
}

impl Witness {
    fn new(lister: Lister<ConfigMap>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { lister, view: BTreeMap::new(), objections: Vec::new() }))
    }

    fn on_event(&mut self, event: &TestEvent) {
        let (name, uid, version) = identity(event.object());
        let known = self.view.get(&name).cloned();
        let sound = match event {
            Event::Added { .. } => known.is_none(),
            Event::Updated { old, .. } => {
                let (_, old_uid, old_version) = identity(old);
                known == Some((old_uid.clone(), old_version)) && uid == old_uid && version > old_version
            }
            // The object can be unknown: it was created and deleted while this handler was busy.
            Event::Deleted { .. } => {
                known.is_none_or(|(known_uid, known)| known_uid == uid && known <= version)
            }
        };
        if !sound {
            self.objections.push(format!(
                "{} was delivered to a handler that knows {:?}",
                brief_event(event),
                self.view
            ));
        }
        if !self.store_holds(event) {
            self.objections
                .push(format!("{} was delivered before the store contains it", brief_event(event)));
        }
        match event {
            Event::Deleted { .. } => self.view.remove(&name),
            Event::Added { .. } | Event::Updated { .. } => self.view.insert(name, (uid, version)),
        };
    }

    /// Returns whether the store contains the state of the event or a newer state.
    fn store_holds(&self, event: &TestEvent) -> bool {
        let (_, uid, version) = identity(event.object());
        let held = self.lister.get_lossy(&ObjectKey::of(&event.object().metadata));
        let held = held.map(|object| identity(&object));
        match event {
            Event::Deleted { .. } => held.is_none_or(|(_, held_uid, held)| held_uid != uid || held > version),
            Event::Added { .. } | Event::Updated { .. } => {
                let reached = self.lister.version().and_then(|held| held.reached(&at(version)));
                reached == Some(true)
                    && held.is_none_or(|(_, held_uid, held)| held_uid != uid || held >= version)
            }
        }
    }
}

/// Returns name, UID and version.
fn identity(object: &ConfigMap) -> (String, String, u64) {
    let meta = &object.metadata;
    let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
    (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default(), version.unwrap_or_default())
}

fn witness(rig: &Rig) -> Arc<Mutex<Witness>> {
    let witness = Witness::new(rig.lister.clone());
    let observer = Arc::clone(&witness);
    rig.informer
        .add_handler("witness", move |event: &TestEvent| observer.lock().unwrap().on_event(event))
        .unwrap();
    witness
}

async fn take(step: Step, rig: &Rig, server: &Server, witnesses: &mut Vec<Arc<Mutex<Witness>>>) {
    match step {
        Step::Set(name, value) => {
            server.set(NAMES[name], &value.to_string());
        }
        Step::Delete(name) => server.delete(NAMES[name]),
        Step::Recreate(name) => {
            server.delete(NAMES[name]);
            server.set(NAMES[name], "again");
        }
        Step::Spoil(name) => {
            server.spoil(NAMES[name]);
        }
        Step::PassTime => server.pass_time(),
        Step::Bookmark => server.bookmark(),
        Step::Cut(ending) => server.cut(ending.error()),
        Step::Compact { refuses_in_frames } => server.compact(refuses_in_frames),
        Step::Fail(ending) => ending.error().into_iter().for_each(|error| server.fail_next(error)),
        Step::Wait(millis) => rig.env.sleep(Duration::from_millis(millis.into())).await,
        Step::AddHandler => witnesses.push(witness(rig)),
    }
}

async fn live_through(steps: Vec<Step>, page_size: usize) {
    let (rig, server) = (Rig::new(), Server::new());
    server.set_page_size(page_size);
    // No server is at version 0, which has a special meaning in requests.
    server.pass_time();
    let mut witnesses = vec![witness(&rig)];
    rig.start(&server);
    let mut progress = rig.informer.version_changes();
    let mut reached = None;
    for step in steps {
        take(step, &rig, &server, &mut witnesses).await;
        let now = progress.get();
        assert!(reached <= now.version, "the store's version went from {reached:?} to {:?}", now.version);
        reached = now.version;
    }
    server.heal();
    rig.env.sleep(LONG).await;
    progress.wait_for(|progress| progress.synced).await.unwrap();
    assert_converged(&rig, &server, &witnesses);
}

fn assert_converged(rig: &Rig, server: &Server, witnesses: &[Arc<Mutex<Witness>>]) {
    let objects = server.objects();
    let (sound, spoiled): (Vec<_>, Vec<_>) = objects.iter().partition(|(_, kept)| kept.decodable);
    let truth: BTreeMap<_, _> =
        sound.into_iter().map(|(name, kept)| (name.clone(), (kept.uid.clone(), kept.version))).collect();
    let held: BTreeMap<_, _> = rig
        .lister
        .list()
        .iter()
        .map(|object| identity(object))
        .map(|(name, uid, it)| (name, (uid, it)))
        .collect();
    assert_eq!(held, truth, "the cache differs from the server");
    let undecodable: Vec<_> = rig.lister.undecodable().iter().map(|it| it.key.clone()).collect();
    assert_eq!(undecodable, spoiled.into_iter().map(|(name, _)| key(name)).collect::<Vec<_>>());
    for witness in witnesses {
        let witness = witness.lock().unwrap();
        assert_eq!(witness.objections, Vec::<String>::new());
        assert_eq!(witness.view, truth, "the handler's view differs from the server");
    }
}

proptest! {
    /// Handlers receive states of one key in an order that the server produced, deletions included. The store contains
    /// the states that handlers receive. The store's version never moves back. After the faults stop, cache, handlers
    /// and server agree.
    // parity: reflector-new, consistency-detector-environment, test-hammer-controller
    // parity: test-reflector-data-consistency-detector
    #[test]
    fn after_any_faults_stop_cache_and_handlers_equal_the_server(
        steps in proptest::collection::vec(step(), 0..60),
        page_size in 1usize..6,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without input or output");
        runtime.block_on(live_through(steps, page_size));
    }
}
