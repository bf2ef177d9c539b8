//! Implements `#[simulation]`: turns a script into a test.
//!
//! Parses the arguments, validates their combination, and generates the calls.

mod arguments;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{Error, Expr, FnArg, Ident, ItemFn, Result, ReturnType};

use self::arguments::{Arguments, Campaign, Faults, RandomPlans, Unit};

/// Required form of the annotated function.
const SHAPE: &str = "`async fn name(cluster: Cluster)`";

/// Returns the test for a script and the arguments of the attribute.
pub(crate) fn expand(arguments: TokenStream, script: TokenStream) -> Result<TokenStream> {
    let arguments: Arguments = syn::parse2(arguments)?;
    let campaign = arguments.campaign()?;
    let script = checked(syn::parse2(script)?)?;
    let world = world(&arguments, &campaign)?;
    let ItemFn { attrs, vis, sig, block, .. } = script;
    let (name, inputs) = (&sig.ident, &sig.inputs);
    let runs = runs(&campaign, name);
    Ok(quote! {
        #[test]
        #(#attrs)*
        #vis fn #name() {
            async fn #name(#inputs) #block
            let simulation = #world;
            #runs
        }
    })
}

/// Rejects a function that is not a script.
fn checked(script: ItemFn) -> Result<ItemFn> {
    let wrong = |at: &dyn quote::ToTokens, what: &str| Err(Error::new_spanned(at.to_token_stream(), what));
    let is_test =
        |attribute: &&syn::Attribute| attribute.path().segments.last().is_some_and(|it| it.ident == "test");
    if let Some(attribute) = script.attrs.iter().find(is_test) {
        return wrong(
            attribute,
            "a simulation is already a test with its own runtime: remove this attribute",
        );
    }
    let sig = &script.sig;
    if sig.asyncness.is_none() {
        return wrong(&sig.fn_token, &format!("the script of a simulation must be async: write {SHAPE}"));
    }
    if !sig.generics.params.is_empty() {
        return wrong(&sig.generics, &format!("a script cannot be generic: write {SHAPE}"));
    }
    if let ReturnType::Type(_, returned) = &sig.output {
        return wrong(returned, "a script returns no value: panic, or wait with `cluster.eventually(..)`");
    }
    match sig.inputs.iter().collect::<Vec<_>>().as_slice() {
        [FnArg::Typed(_)] => Ok(script),
        [] => wrong(&sig.ident, &format!("a script takes the cluster: write {SHAPE}")),
        [FnArg::Receiver(first), ..] => wrong(first, &format!("a script is a free function: write {SHAPE}")),
        [_, second, ..] => wrong(second, &format!("a script takes only the cluster: write {SHAPE}")),
    }
}

/// Returns the expression of type `Simulation`.
fn world(arguments: &Arguments, campaign: &Campaign<'_>) -> Result<TokenStream> {
    let seed = arguments.number("seed", 0)?.map_or_else(|| quote!(1), |seed| seed.to_token_stream());
    let mut world = quote!(::windlass::testing::Simulation::new(#seed));
    if let Some(replicas) = arguments.number("replicas", 1)? {
        world.extend(quote!(.replicas(#replicas)));
    }
    if let Some(resources) = arguments.list("resources")? {
        world.extend(quote!(.resources([#(#resources),*])));
    }
    if arguments.has_exact_permissions()? {
        world.extend(quote!(.exact_permissions()));
    }
    for kind in arguments.list("caches")?.unwrap_or_default() {
        world.extend(quote!(.caches_of::<#kind>()));
    }
    if let Campaign::Random(RandomPlans { faults, span, .. }) = campaign {
        let faults = match faults {
            Faults::All => quote!(::windlass::testing::Faults::all()),
            Faults::Kinds(kinds) => {
                quote!(::windlass::testing::Faults::only([#(::windlass::testing::FaultKind::#kinds),*]))
            }
            Faults::Value(value) => value.to_token_stream(),
        };
        world.extend(quote!(.faults(#faults)));
        world.extend(span.as_ref().map(|(unit, length)| lasting(*unit, length)));
    }
    Ok(world)
}

fn lasting(unit: Unit, length: &Expr) -> TokenStream {
    match unit {
        Unit::Minutes => quote!(.minutes(#length)),
        Unit::Hours => quote!(.minutes(60 * (#length))),
        Unit::Days => quote!(.days(#length)),
    }
}

/// Returns the call that runs the script and panics with the failure.
fn runs(campaign: &Campaign<'_>, script: &Ident) -> TokenStream {
    let call = match campaign {
        Campaign::Once => return quote!(::windlass::testing::simulate(simulation, #script);),
        Campaign::Random(RandomPlans { plans: None, .. }) => quote!(random_plans(&simulation, 1, #script)),
        Campaign::Random(RandomPlans { plans: Some(plans), .. }) => {
            quote!(random_plans(&simulation, #plans, #script))
        }
        Campaign::Crashes => quote!(exhaustive_crash(&simulation, #script)),
        Campaign::Rejections => quote!(exhaustive_rejection(&simulation, #script)),
        Campaign::Replay(plan) => quote!(replay(&simulation, #plan, #script)),
    };
    quote!(::windlass::testing::assert_passed(::windlass::testing::#call);)
}
