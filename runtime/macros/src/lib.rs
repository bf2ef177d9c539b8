//! Macros that only generate code.
//!
//! Guarantees:
//! - A macro expands to calls of public functions by their full names. Users can write the same code.
//! - An error points at the wrong tokens and states the remedy.
//! - A wrong path of a view is found when it is compiled, against the table of `windlass-kinds`.
//!
//! Defaults, campaigns and oracles belong to `windlass::testing`, not to this crate.

mod simulation;
mod view;

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
/// each write, with a crash just before and just after the write. With `rejections = all`, it runs twice for each
/// write: the server rejects the write, or the write takes effect and its sender gets an error. With `plan`, it runs
/// under one given plan.
///
/// | argument | meaning |
/// |---|---|
/// | `faults = all`, `faults = [Crash, Watch]` | kinds of faults to generate: all kinds, these kinds, or a value of
/// type `Faults` |
/// | `minutes = 3`, `hours = 3`, `days = 3` | duration of the faults; default 10 minutes |
/// | `plans = 20` | number of random plans; default 1 |
/// | `crashes = all` | crash before and after every write |
/// | `rejections = all` | rejection of every write, and an error after it took effect |
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

/// Turns a struct into a view: the fields of an object that a controller reads. See `windlass::object::view`.
///
/// ```text
/// #[derive(View)]
/// #[view(of = "v1/Pod")]
/// struct PodView {
///     metadata: Metadata,
///     #[view(path = "spec.nodeName")]
///     node: Option<Arc<str>>,
///     #[view(path = "spec.containers")]
///     containers: Vec<ContainerView>,
///     #[view(path = "status.conditions[Ready].status")]
///     ready: Option<Arc<str>>,
///     #[view(path = "metadata.annotations[example.com/cost]")]
///     cost: Option<String>,
/// }
///
/// #[derive(View)]
/// #[view(of = "v1/Pod", at = "spec.containers")]
/// struct ContainerView {
///     #[view(path = "image")]
///     image: Arc<str>,
/// }
/// ```
///
/// | attribute of the struct | meaning |
/// |---|---|
/// | `of = "v1/Pod"` | the built-in kind of the objects, as `version/Kind` or `group/version/Kind` |
/// | `of = Site` | the type of a custom resource; only paths of its metadata are checked |
/// | `at = "spec.containers"` | the struct is a view of this part of the object, or of the elements of this list |
/// | `crate = windlass_object` | the crate that contains the module `view`; default `::windlass::object` |
///
/// | attribute of a field | meaning |
/// |---|---|
/// | `path = "spec.nodeName"` | the value. `[key]` selects an entry of a map, or an element of a list by its `type` |
/// | `serde` | the value is read by `Deserialize` of the type of the field, and by `Default` if it is absent |
///
/// A view of an object has the field `metadata: Metadata` without attributes.
#[proc_macro_derive(View, attributes(view))]
pub fn derive_view(input: TokenStream) -> TokenStream {
    view::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
