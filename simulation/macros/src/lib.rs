//! Attribute macros that only generate code.
//!
//! Guarantees:
//! - A macro expands to calls of public functions by their full names. Users can write the same code.
//! - An error points at the wrong tokens and states the remedy.
//!
//! Defaults, campaigns and oracles belong to `windlass::testing`, not to this crate.

mod simulation;

use proc_macro::TokenStream;

/// Turns a script into a test that acts as the user of a simulated cluster, with `windlass::testing`.
///
/// ```text
/// #[windlass::simulation(days = 1, faults = all)]
/// async fn mirrors_labels_under_all_faults(cluster: Cluster) {
///     cluster.run([Registration::controller::<LabelMirror>()]);
///     // ...
/// }
/// ```
///
/// Without arguments, the script runs once without faults. With `faults`, it runs under `plans` random plans with
/// different seeds, and each run must end in the state of a run without faults. With `crashes = all`, it runs twice for
/// each write, with a crash just before and just after the write. With `plan`, it runs under one given plan.
///
/// | argument | meaning |
/// |---|---|
/// | `faults = all`, `faults = [Crash, Watch]` | kinds of faults to generate: all kinds, these kinds, or a value of
/// type `Faults` |
/// | `minutes = 3`, `hours = 3`, `days = 3` | duration of the faults; default 10 minutes |
/// | `plans = 20` | number of random plans; default 1 |
/// | `crashes = all` | crash before and after every write |
/// | `plan = FaultPlan::from_json(..).expect("a printed plan")` | plan from a failure message |
/// | `seed = 7` | seed of all random choices; default 1 |
/// | `replicas = 3` | number of processes that run the controllers; default 2 |
/// | `caches = [Service]` | kinds whose caches must equal the server at the end |
/// | `resources = ["services"]` | resources that faults can target, in addition to pods, leases and events |
/// | `permissions = exact` | each process has exactly its generated roles, and the campaign must use every declared rule |
///
/// For all other settings, use a `Simulation` directly.
#[proc_macro_attribute]
pub fn simulation(arguments: TokenStream, script: TokenStream) -> TokenStream {
    simulation::expand(arguments.into(), script.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
