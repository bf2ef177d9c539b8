//! Attribute macros; no logic of their own.
//!
//! Guarantees:
//! - What a macro writes is what a user could have written: calls of public functions, by their full names.
//! - An error points at the words that are wrong and says what to write instead.
//!
//! It refuses to decide anything that a function could: defaults, campaigns and oracles are those of
//! `windlass::testing`.

mod simulation;

use proc_macro::TokenStream;

/// A test whose body plays the user of a simulated cluster: `windlass::testing` in one line.
///
/// ```text
/// #[windlass::simulation(days = 1, faults = all)]
/// async fn mirrors_labels_whatever_happens(cluster: Cluster) {
///     cluster.run([Registration::of::<LabelMirror>()]);
///     // ...
/// }
/// ```
///
/// Without arguments there is one run, without faults. With `faults` there are `plans` runs, each under a plan drawn
/// from its own seed, and each has to end as a run without faults does. With `crashes = all` there are two runs for
/// each write, in which a process dies just before it and just after. With `plan`, the faults of one plan strike.
///
/// | argument | says |
/// |---|---|
/// | `faults = all`, `faults = [Crash, Watch]` | which faults are drawn: every kind, these kinds, or a value of type `Faults` |
/// | `minutes = 3`, `hours = 3`, `days = 3` | for how long faults continue; 10 minutes if nothing is said |
/// | `plans = 20` | how many plans are drawn; 1 if nothing is said |
/// | `crashes = all` | a process dies before and after every write |
/// | `plan = Plan::from_json(..)` | the plan of a run that failed, as it was printed |
/// | `seed = 7` | where everything that is drawn begins; 1 if nothing is said |
/// | `replicas = 3` | how many processes run the controllers; 2 if nothing is said |
/// | `caches = [Service]` | kinds whose caches have to equal the server in the end |
/// | `resources = ["services"]` | resources that single faults may be about, next to pods, leases and events |
/// | `rights = exact` | each process has its generated roles alone, and the campaign uses every rule that it declares |
///
/// What is not among them is said with a `Simulation` of one's own.
#[proc_macro_attribute]
pub fn simulation(arguments: TokenStream, script: TokenStream) -> TokenStream {
    simulation::expand(arguments.into(), script.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
