//! Defects of informers.

use crate::Mutation;

pub(super) const DEFECTS: &[Mutation] = &[
    Mutation {
        name: "deletion lost on relist",
        file: "runtime/informer/src/delta_fifo.rs",
        before: "let missing = known.missing_from(&list.partition, &listed);",
        after: r#"let mut missing = known.missing_from(&list.partition, &listed);
            if windlass_env::has_defect("deletion lost on relist") {
                missing.clear();
            }"#,
    },
    Mutation {
        name: "store version moves back",
        file: "runtime/informer/src/delta_fifo.rs",
        before: "let listed = items.iter().map(|item| &item.head.key).collect();",
        after: r#"let mut list = list;
                if windlass_env::has_defect("store version moves back") && !list.initial {
                    (list.version, list.consistent) = (ResourceVersion::new("1"), true);
                }
                let listed = items.iter().map(|item| &item.head.key).collect();"#,
    },
    Mutation {
        name: "objects of removed namespace kept",
        file: "runtime/informer/src/delta_fifo.rs",
        before: "let removed = known.missing_from(&partition, &BTreeSet::new());",
        after: r#"let mut removed = known.missing_from(&partition, &BTreeSet::new());
            if windlass_env::has_defect("objects of removed namespace kept") {
                removed.clear();
            }"#,
    },
    Mutation {
        name: "handlers called before store update",
        file: "runtime/informer/src/store.rs",
        before: "        self.publish();\n        applied\n",
        after: r#"        let late = windlass_env::has_defect("handlers called before store update");
        if !(late && matches!(applied, Applied::Changes(_))) {
            self.publish();
        }
        applied
"#,
    },
    Mutation {
        name: "index not updated",
        file: "runtime/informer/src/store.rs",
        before: "        self.tracker.settle();\n",
        after: r#"        self.tracker.settle();
        if windlass_env::has_defect("index not updated") {
            let indexes = self.store.snapshot().contents.indexes.clone();
            let contents = Contents { indexes, ..self.working.clone() };
            let progress = self.tracker.progress().clone();
            self.store.current.store(Arc::new(Snapshot { contents, progress }));
            return applied;
        }
"#,
    },
    Mutation {
        name: "undecodable objects not reported",
        file: "runtime/informer/src/store.rs",
        before: "let (contents, progress) = (self.working.clone(), self.tracker.progress().clone());",
        after: r#"let (mut contents, progress) = (self.working.clone(), self.tracker.progress().clone());
        if windlass_env::has_defect("undecodable objects not reported") {
            contents.undecodable = OrdMap::new();
        }"#,
    },
    Mutation {
        name: "handler synced before initial events",
        file: "runtime/informer/src/informer/processing.rs",
        before: "let delivery = listener.run(handler);",
        after: r#"if windlass_env::has_defect("handler synced before initial events") {
            listener.become_synced();
        }
        let delivery = listener.run(handler);"#,
    },
    Mutation {
        name: "events of a batch reversed",
        file: "runtime/informer/src/informer/processing.rs",
        before: "state.distribute(applied);",
        after: r#"let mut applied = applied;
            if let Applied::Changes(changes) = &mut applied
                && windlass_env::has_defect("events of a batch reversed")
            {
                changes.reverse();
            }
            state.distribute(applied);"#,
    },
    Mutation {
        name: "every event coalesced",
        file: "runtime/informer/src/informer.rs",
        before: "let HandlerOptions { resync, delivery } = options;",
        after: r#"let HandlerOptions { resync, delivery } = options;
        let coalesced = windlass_env::has_defect("every event coalesced");
        let delivery = if coalesced { crate::handler::Delivery::Coalesced } else { delivery };"#,
    },
    Mutation {
        name: "late handler without initial events",
        file: "runtime/informer/src/informer.rs",
        before: "state.attach(&listener, task);",
        after: r#"state.attach(&listener, task);
        if windlass_env::has_defect("late handler without initial events") {
            listener.drop_pending();
        }"#,
    },
    Mutation {
        name: "byte budget ignored",
        file: "runtime/informer/src/budget.rs",
        before: "let Some(budget) = self.limit.filter(|budget| needed > *budget) else { return Ok(()) };",
        after: r#"let ignored = windlass_env::has_defect("byte budget ignored");
        let Some(budget) = self.limit.filter(|budget| needed > *budget && !ignored) else { return Ok(()) };"#,
    },
    Mutation {
        name: "missing kind reported as served",
        file: "runtime/informer/src/informer/status.rs",
        before: "        self.reflectors.availability.overall()\n",
        after: r#"        if windlass_env::has_defect("missing kind reported as served") {
            return KindAvailability::Served;
        }
        self.reflectors.availability.overall()
"#,
    },
    Mutation {
        name: "version trusted after restore",
        file: "runtime/informer/src/reflector.rs",
        before: "let trusted = !went_back && self.ingest.trusts_versions();",
        after: r#"let went_back = went_back && !windlass_env::has_defect("version trusted after restore");
        let trusted = !went_back && self.ingest.trusts_versions();"#,
    },
    Mutation {
        name: "undecodable object not retried",
        file: "runtime/informer/src/reflector/ingest.rs",
        before: "            Some(held) if is_undecodable(held, head) => self.decode(head, raw, Access::Unknown),\n",
        after: r#"            Some(held) if is_undecodable(held, head) => {
                match windlass_env::has_defect("undecodable object not retried") {
                    true => undecodable("it failed before".to_owned(), raw),
                    false => self.decode(head, raw, Access::Unknown),
                }
            }
"#,
    },
    // In the source of the test: in the runtime, sources of two kinds share nothing that one could hold.
    Mutation {
        name: "denial blocks other kinds",
        file: "tests/simulation/src/guarantees/informer/access_proxy.rs",
        before: "        let right = (verb, self.resource.clone(), self.namespace.clone());\n",
        after: r#"        let other_is_denied =
            || self.rights.lock().iter().any(|(_, resource, _)| *resource != self.resource);
        while windlass_env::has_defect("denial blocks other kinds") && other_is_denied() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let right = (verb, self.resource.clone(), self.namespace.clone());
"#,
    },
];
