//! List of mutations: preparations first, then the defects by the affected part of the runtime.

mod controllers;
mod election;
mod informer;
mod workqueue;

use std::collections::BTreeSet;

use crate::Mutation;

/// Mutations for all defects: packages that cargo distinguishes from the original ones, and access to the switch from
/// mutated code.
const PREPARATIONS: &[Mutation] = &[
    Mutation {
        name: "version of the copy",
        file: "Cargo.toml",
        // Build metadata: the crates of the copy still meet the requirements on each other.
        before: "\"\nedition = ",
        after: "+mutant\"\nedition = ",
    },
    Mutation {
        name: "dependency on the switch",
        file: "runtime/env/Cargo.toml",
        before: "[dependencies]\n",
        after: "[dependencies]\nwindlass-mutants.workspace = true\n",
    },
    Mutation {
        name: "switch",
        file: "runtime/env/src/lib.rs",
        before: "mod dedicated_runtime;\n",
        after: "pub use windlass_mutants::has_defect;\n\nmod dedicated_runtime;\n",
    },
];

const DEFECTS: [&[Mutation]; 4] =
    [workqueue::DEFECTS, informer::DEFECTS, election::DEFECTS, controllers::DEFECTS];

/// Returns every mutation in the order of application.
pub fn mutations() -> impl Iterator<Item = &'static Mutation> {
    PREPARATIONS.iter().chain(DEFECTS.into_iter().flatten())
}

/// Returns the names of the defects; one defect can consist of several mutations.
pub fn defects() -> Vec<&'static str> {
    let names: BTreeSet<_> = DEFECTS.into_iter().flatten().map(|mutation| mutation.name).collect();
    names.into_iter().collect()
}
