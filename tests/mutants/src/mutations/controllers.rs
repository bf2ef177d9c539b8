//! Defects of controllers, of their runtime, and of the server that executes their writes.

use crate::Mutation;

pub(super) const DEFECTS: &[Mutation] = &[
    Mutation {
        name: "no read-your-writes",
        file: "runtime/controller/src/consistency/read_your_writes.rs",
        before: "if self.mode == ReadYourWrites::Off {",
        after: r#"if self.mode == ReadYourWrites::Off || windlass_env::has_defect("no read-your-writes") {"#,
    },
    Mutation {
        name: "conflict taken for success",
        file: "runtime/controller/src/run/reconcile.rs",
        before: "Controller::reconcile(self, key, context).await",
        after: r#"match Controller::reconcile(self, key, context).await {
            Err(error) if error.is_conflict() && windlass_env::has_defect("conflict taken for success") => {
                Ok(Outcome::Done)
            }
            returned => returned,
        }"#,
    },
    Mutation {
        name: "reconcile leaks a task",
        file: "runtime/controller/src/run/reconcile.rs",
        before: "-> Result<Outcome, ReconcileError> {\n",
        after: r#"-> Result<Outcome, ReconcileError> {
        if windlass_env::has_defect("reconcile leaks a task") {
            drop(context.env().spawn("leaked", std::future::pending::<()>()));
        }
"#,
    },
    Mutation {
        name: "writes after their turn",
        file: "runtime/client/src/stack/reconcile_scope.rs",
        before: "if !state.info().is_mutating() {",
        after: r#"if !state.info().is_mutating() || windlass_env::has_defect("writes after their turn") {"#,
    },
    Mutation {
        name: "dry run that writes",
        file: "runtime/client/src/stack/request_options.rs",
        before: "if self.dry_run && RequestState::of(&mut request).info().is_mutating() {",
        after: r#"let is_dry = self.dry_run && !windlass_env::has_defect("dry run that writes");
        if is_dry && RequestState::of(&mut request).info().is_mutating() {"#,
    },
    Mutation {
        name: "controllers started twice",
        file: "controllers/src/lib.rs",
        before: "        in_cluster(Registration::controller_with::<PodGarbageCollectorController>(options.clone())),\n    ]\n",
        after: r#"        in_cluster(Registration::controller_with::<PodGarbageCollectorController>(options.clone())),
    ]
    .into_iter()
    .chain(windlass_env::has_defect("controllers started twice").then(|| {
        let again = windlass_controller::Descriptor::new("replicaset-controller-again");
        Registration::controller_with::<ReplicaSetController>(options.clone()).with_descriptor(again)
    }))
    .collect()
"#,
    },
    Mutation {
        name: "adoption without UID",
        file: "controllers/src/shared/claims.rs",
        before: "if got != wanted {",
        after: r#"if got != wanted && !windlass_env::has_defect("adoption without UID") {"#,
    },
    Mutation {
        name: "adoption without UID",
        file: "controllers/src/shared/claims.rs",
        before: "let patch = adopt_patch(orphan, &controller_reference(self.owner));",
        after: r#"let mut patch = adopt_patch(orphan, &controller_reference(self.owner));
        if let Some(meta) = patch["metadata"].as_object_mut()
            && windlass_env::has_defect("adoption without UID")
        {
            meta.remove("uid");
        }"#,
    },
    Mutation {
        name: "status events ignored",
        file: "controllers/src/shared/replica_sync.rs",
        before: "let owners = setup.primary::<R>().lister();",
        after: r#"let is_of_status = |event: &windlass_informer::Event<Arc<R>>| {
            let generation = |owner: &Arc<R>| (owner.meta().uid.clone(), owner.meta().generation);
            matches!(event, windlass_informer::Event::Updated { old, new, .. } if generation(old) == generation(new))
        };
        let heard = windlass_controller::Predicate::new(move |event| {
            !(windlass_env::has_defect("status events ignored") && is_of_status(event))
        });
        let owners = setup.primary::<R>().when(heard).lister();"#,
    },
    Mutation {
        name: "creates executed late",
        file: "simulation/api_server/src/service.rs",
        before: "Box::pin(requests::answer(self.clone(), request.map(Full::new)))",
        after: r#"let is_create = request.method() == http::Method::POST && request.uri().path().ends_with("/pods");
        let is_late = is_create && windlass_env::has_defect("creates executed late");
        let (env, answer) = (self.env().clone(), requests::answer(self.clone(), request.map(Full::new)));
        Box::pin(async move {
            if is_late {
                env.sleep(std::time::Duration::from_secs(20)).await;
            }
            answer.await
        })"#,
    },
];
