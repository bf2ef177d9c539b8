//! Requests with custom options: dry runs and timeouts.

use kube::api::DeleteParams;

use super::writing::{label, once};
use super::*;
use crate::{Change, Deletion, RequestOptions, Writer};

#[tokio::test(start_paused = true)]
async fn dry_run_of_a_writer_answers_and_changes_nothing() {
    let world = World::with(&["m"]);
    let before = world.api.object(&path("m"));
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.create().update().patch().apply().delete().build(),
        |maps, cx, map| async move {
            let cx = cx.with(RequestOptions::dry_run());
            let labeled = |map: &ConfigMap| map.metadata.labels.as_ref().map(BTreeMap::len) == Some(1);
            assert!(labeled(&maps.patch(&cx, &map, label).await?.object));
            let updated = maps.update(&cx, &map, label).await?;
            assert_eq!((labeled(&updated), updated.change), (true, Change::Updated));
            let (new, params) = (ObjectKey::namespaced("shop", "new"), DeleteParams::default());
            assert_eq!(maps.create_or_update(&cx, &new, None, label).await?.change, Change::Created);
            assert_eq!(maps.delete(&cx, &map, &params).await?, Deletion::Accepted);
            let _status = cx.api::<ConfigMap>(&new).delete("m", &params).await?;
            Ok(())
        },
    );
    // The fixture declares what the writer is granted, so the deletion through kube's client is as well.
    result.await.expect("answered");
    assert_eq!(world.work().len(), 5, "{:?}", world.work());
    assert_eq!((world.api.object(&path("m")), world.api.object(&path("new"))), (before, None));
    assert_eq!(world.metrics.reconcile("calling").noop_writes.get(), 0);
}

/// Applies the ConfigMap `m` every second: for real first, then in a dry run, then for real again.
struct Rehearsing {
    maps: Lister<ConfigMap>,
    writer: Writer<ConfigMap>,
    changes: Arc<Mutex<Vec<Change>>>,
}

impl Controller for Rehearsing {
    const NAME: &'static str = "rehearsing";
    type Config = Arc<Mutex<Vec<Change>>>;

    fn setup(setup: &mut Setup, changes: &Self::Config) -> Result<Self, SetupError> {
        let maps = setup.primary::<ConfigMap>().lister();
        let writer = setup.writer::<ConfigMap>().apply().skip_unchanged(&maps).build();
        Ok(Self { maps, writer, changes: Arc::clone(changes) })
    }

    async fn reconcile(&self, key: &ObjectKey, cx: &Context) -> Result<Outcome, ReconcileError> {
        let applied = self.changes.lock().expect("whole").len();
        let mut desired = ConfigMap::default();
        (desired.metadata.name, desired.metadata.namespace) = (Some("m".into()), Some("shop".into()));
        let (cx, color) = match applied {
            1 => (cx.with(RequestOptions::dry_run()), "red"),
            _ => (cx.clone(), "blue"),
        };
        desired.data = Some(BTreeMap::from([("color".to_owned(), color.to_owned())]));
        let written = self.writer.apply(&cx, &desired).await?;
        assert_eq!(written.data, desired.data);
        self.changes.lock().expect("whole").push(written.change);
        assert!(self.maps.get_lossy(key).is_some());
        Ok(Outcome::RequeueAfter(Duration::from_secs(1)))
    }
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_an_apply_leaves_the_last_apply_known() {
    let world = World::with(&["m"]);
    let changes = Arc::default();
    let _workers = world.start_with(Registration::controller_with::<Rehearsing>(Arc::clone(&changes))).await;
    world.pass(10).await;
    let changes = changes.lock().expect("whole");
    assert_eq!(
        changes[..4],
        [Change::Updated, Change::Updated, Change::Unchanged, Change::Unchanged],
        "{changes:?}"
    );
    assert_eq!(world.api.object(&path("m")).expect("there")["data"]["color"], "blue");
}

#[tokio::test(start_paused = true)]
async fn dry_run_is_not_waited_for_by_the_next_reconcile() {
    let world = World::with(&["m"]);
    let act = |_, cx: Context| async move {
        let patch = Patch::Merge(json!({ "data": { "late": "yes" } }));
        api_of(&cx.with(RequestOptions::dry_run())).patch("m", &PatchParams::default(), &patch).await?;
        Ok(Outcome::RequeueAfter(Duration::from_millis(1)))
    };
    let wire = |setup: &mut Setup| {
        setup.uses::<ConfigMap>([Verb::Patch]);
        setup.primary::<ConfigMap>();
    };
    world.api.inject_fault(|_| Some(LATE));
    let _workers = world.start_with(world.scripted(wire, act)).await;
    world.pass(10).await;
    assert!(world.work().len() > 10);
    assert_eq!(world.metrics.reconcile("scripted").stale_skips.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn context_with_a_timeout_ends_its_requests_by_it() {
    let world = World::with(&["m"]);
    world.api.inject_fault(|asked| {
        (asked.verb == Some(Verb::Patch)).then_some(FaultAction::SlowServer { by_ms: 5000 })
    });
    let result = once::<ConfigMap, _>(
        &world,
        |writer| writer.patch().build(),
        |maps, cx, map| async move {
            let options = RequestOptions::within(Duration::from_secs(1));
            maps.patch(&cx.with(options), &map, label).await.map(drop).map_err(Into::into)
        },
    );
    let error = result.await.expect_err("it is slow").cause().to_string();
    assert!(error.contains("1s"), "{error}");
}
