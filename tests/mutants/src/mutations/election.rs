//! Defects of the election.

use crate::Mutation;

pub(super) const DEFECTS: &[Mutation] = &[
    Mutation {
        name: "write after lease loss",
        file: "runtime/election/src/elector.rs",
        before: "lost = self.renew_until_lost() => lost,",
        after: r#"lost = async {
                let lost = self.renew_until_lost().await;
                if windlass_env::has_defect("write after lease loss") {
                    std::future::pending::<()>().await;
                }
                lost
            } => lost,"#,
    },
    Mutation {
        name: "write after lease loss",
        file: "runtime/election/src/fence.rs",
        before: "        self.open_until().map_or(FenceState::Closed, FenceState::Until)\n",
        after: r#"        if windlass_env::has_defect("write after lease loss") {
            return FenceState::Open;
        }
        self.open_until().map_or(FenceState::Closed, FenceState::Until)
"#,
    },
    Mutation {
        name: "write after lease loss",
        file: "runtime/election/src/fence.rs",
        before: "        if self.is_suspended() {\n            return Box::pin(ready(()));\n",
        after: r#"        if windlass_env::has_defect("write after lease loss") {
            return Box::pin(std::future::pending());
        }
        if self.is_suspended() {
            return Box::pin(ready(()));
"#,
    },
    Mutation {
        name: "clock jump ignored",
        file: "runtime/election/src/clocks.rs",
        before: "if has_jumped {",
        after: r#"if has_jumped && !windlass_env::has_defect("clock jump ignored") {"#,
    },
    Mutation {
        name: "shard lease outlives its duration",
        file: "runtime/sharding/src/elector.rs",
        before: "let ShardsConfig { election, shards } = config;",
        after: r#"let ShardsConfig { mut election, shards } = config;
        if windlass_env::has_defect("shard lease outlives its duration") {
            election.config.lease_duration *= 3;
        }"#,
    },
];
