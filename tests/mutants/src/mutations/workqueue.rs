//! Defects of the work queue.

use crate::Mutation;

pub(super) const DEFECTS: &[Mutation] = &[
    Mutation {
        name: "key released when it is dequeued",
        file: "runtime/workqueue/src/getter.rs",
        before: "*self.dequeued = inner.state.take(now);",
        after: r#"*self.dequeued = inner.state.take(now);
        if let Some(dequeued) = self.dequeued
            && windlass_env::has_defect("key released when it is dequeued")
        {
            inner.state.done(now, dequeued);
            dequeued.slot = crate::slots::NONE;
        }"#,
    },
    Mutation {
        name: "key released when it is dequeued",
        file: "runtime/workqueue/src/state.rs",
        before: "let DequeuedKey { slot, rest, priority, .. } = *dequeued;",
        after: r#"let DequeuedKey { slot, rest, priority, .. } = *dequeued;
        if slot == crate::slots::NONE && windlass_env::has_defect("key released when it is dequeued") {
            return None;
        }"#,
    },
    Mutation {
        name: "key released when it is dequeued",
        file: "runtime/workqueue/src/state.rs",
        before: "pub(crate) fn park(&mut self, slot: usize, parked: Parked) {",
        after: r#"pub(crate) fn park(&mut self, slot: usize, parked: Parked) {
        if slot == crate::slots::NONE && windlass_env::has_defect("key released when it is dequeued") {
            return;
        }"#,
    },
    Mutation {
        name: "add during processing lost",
        file: "runtime/workqueue/src/state.rs",
        before: "let (since, left) = match *self.slots.state(slot) {",
        after: r#"if windlass_env::has_defect("add during processing lost") {
            self.drop_pending_add(slot);
        }
        let (since, left) = match *self.slots.state(slot) {"#,
    },
    Mutation {
        name: "delayed add keeps the latest time",
        file: "runtime/workqueue/src/queue.rs",
        before: "drop(self.shared.change(|state, now| state.add_after(now, hashed, delay, priority)));",
        after: r#"drop(self.shared.change(|state, now| {
            if windlass_env::has_defect("delayed add keeps the latest time") {
                state.cancel_delayed(hashed.hash, &hashed.key);
            }
            state.add_after(now, hashed, delay, priority)
        }));"#,
    },
    Mutation {
        name: "backoff never reset",
        file: "runtime/workqueue/src/queue.rs",
        before: "self.shared.limiter().forget(now, key);",
        after: r#"if !windlass_env::has_defect("backoff never reset") {
            self.shared.limiter().forget(now, key);
        }"#,
    },
    Mutation {
        name: "backoff reset by other keys",
        file: "runtime/workqueue/src/limiter.rs",
        before: r#"        doubled.unwrap_or(Duration::MAX).min(self.max)
    }

    fn forget(&mut self, _now: Instant, key: &K) {"#,
        after: r#"        doubled.unwrap_or(Duration::MAX).min(self.max)
    }

    fn forget(&mut self, _now: Instant, key: &K) {
        if windlass_env::has_defect("backoff reset by other keys") {
            self.failures = Failures::default();
        }"#,
    },
    Mutation {
        name: "low priorities never age",
        file: "runtime/workqueue/src/schedule.rs",
        before: "(now - added >= AGED_AFTER).then_some(level)",
        after: r#"let ages = !windlass_env::has_defect("low priorities never age");
        (ages && now - added >= AGED_AFTER).then_some(level)"#,
    },
    Mutation {
        name: "tenant never yields",
        file: "runtime/workqueue/src/schedule.rs",
        before: "if self.queues[queue].head != NONE {",
        after: r#"if self.queues[queue].head != NONE && !windlass_env::has_defect("tenant never yields") {"#,
    },
    Mutation {
        name: "some keys overtake older keys",
        file: "runtime/workqueue/src/schedule.rs",
        before: "Some(NextKey { level, skipped_claims, slot: self.next_of(level) })",
        // Only while the older key is young, because the check of starvation would be the first to report it.
        after: r#"let queue = &self.queues[self.levels[level].current];
        let is_young = now - self.links[queue.head].added < std::time::Duration::from_secs(5);
        let overtakes = is_young && windlass_env::has_defect("some keys overtake older keys");
        Some(NextKey { level, skipped_claims, slot: if overtakes { queue.tail } else { queue.head } })"#,
    },
    Mutation {
        name: "drain ends while keys are held",
        file: "runtime/workqueue/src/drain_future.rs",
        before: "if inner.state.is_drained() {",
        after: r#"let early = windlass_env::has_defect("drain ends while keys are held");
        if inner.state.is_drained() || early && inner.state.is_shut_down() {"#,
    },
    Mutation {
        name: "wakeup lost with canceled wait",
        file: "runtime/workqueue/src/getter.rs",
        before: "if self.waiter.is_some() {",
        after: r#"if self.waiter.is_some() && !windlass_env::has_defect("wakeup lost with canceled wait") {"#,
    },
];
