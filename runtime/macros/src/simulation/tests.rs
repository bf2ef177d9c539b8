use super::*;

const SCRIPT: &str = "async fn script(cluster: Cluster) { cluster.settle().await; }";

/// Returns the expansion for these arguments, without the spaces between tokens.
fn made_of(arguments: &str) -> String {
    let expanded = expand(tokens(arguments), tokens(SCRIPT)).expect(arguments);
    expanded.to_string().replace(' ', "").replace("::windlass::testing::", "")
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect(text)
}

/// Returns the tokens that an error points at, and its message.
fn refusal(arguments: &str, script: &str) -> (String, String) {
    let error = expand(tokens(arguments), tokens(script)).expect_err(arguments);
    (error.span().source_text().unwrap_or_default(), error.to_string())
}

#[test]
fn script_becomes_a_test_of_the_same_name() {
    let script = "/// What it shows.\n#[cfg(unix)]\npub(crate) async fn script(cluster: Cluster) { cluster.settle().await; }";
    let made = expand(TokenStream::new(), tokens(script)).expect(script);
    let wanted = quote! {
        #[test]
        #[doc = " What it shows."]
        #[cfg(unix)]
        pub(crate) fn script() {
            async fn script(cluster: Cluster) { cluster.settle().await; }
            let simulation = ::windlass::testing::Simulation::new(1);
            ::windlass::testing::simulate(simulation, script);
        }
    };
    assert_eq!(made.to_string(), wanted.to_string());
    syn::parse2::<ItemFn>(made).expect("one function");
}

#[test]
fn arguments_expand_to_the_equivalent_calls() {
    let table = [
        ("", "Simulation::new(1);simulate(simulation,script);"),
        ("faults = none", "Simulation::new(1);simulate(simulation,script);"),
        ("seed = 7, replicas = 1", "Simulation::new(7).replicas(1);simulate("),
        ("seed = SEED + 1,", "Simulation::new(SEED+1);"),
        ("faults = all", "Simulation::new(1).faults(Faults::all());"),
        ("faults = all", "assert_passed(random_plans(&simulation,1,script));"),
        ("days = 1, faults = all", ".faults(Faults::all()).days(1);"),
        ("faults = all, minutes = 3, plans = 20", ".faults(Faults::all()).minutes(3);"),
        ("faults = all, minutes = 3, plans = 20", "random_plans(&simulation,20,script)"),
        ("hours = 2, faults = all", ".minutes(60*(2));"),
        ("faults = [Crash, Watch]", ".faults(Faults::only([FaultKind::Crash,FaultKind::Watch]));"),
        ("faults = Faults::all().without(kind)", ".faults(Faults::all().without(kind));"),
        ("crashes = all", "Simulation::new(1);"),
        ("crashes = all", "exhaustive_crash(&simulation,script)"),
        ("rejections = all", "Simulation::new(1);assert_passed(exhaustive_rejection(&simulation,script)"),
        ("plan = printed()", "replay(&simulation,printed(),script)"),
        ("caches = [Service, v1::Pod]", "Simulation::new(1).caches_of::<Service>().caches_of::<v1::Pod>();"),
        ("permissions = exact", "Simulation::new(1).exact_permissions();simulate("),
        ("resources = [\"services\", NAME]", "Simulation::new(1).resources([\"services\",NAME]);"),
    ];
    for (arguments, wanted) in table {
        let made = made_of(arguments);
        assert!(made.contains(wanted), "{arguments}\n{made}\n{wanted}");
    }
}

#[test]
fn error_points_at_the_wrong_argument_with_a_remedy() {
    let table = [
        ("fault = all", "fault", "a simulation has no argument `fault`: use one of faults, minutes,"),
        ("faults", "faults", "`faults` needs a value: write `faults = all`"),
        ("faults(all)", "faults", "`faults` needs a value: write `faults = all`"),
        ("faults =", "faults", "`faults` needs a value: write `faults = all`"),
        ("seed = , days = 1", "seed", "`seed` needs a value: write `seed = 7`"),
        ("faults = Crash", "Crash", "a list of kinds such as `[Crash, Watch]`"),
        ("faults = true", "true", "a list of kinds such as `[Crash, Watch]`"),
        ("faults = []", "[]", "a list of kinds such as `[Crash, Watch]`"),
        ("faults = [Crash, 3]", "3", "write a kind such as `Crash`"),
        ("seed = \"7\"", "\"7\"", "`seed` must be a whole number: write `seed = 7`"),
        ("replicas = -1", "-1", "`replicas` must be a whole number: write `replicas = 3`"),
        ("replicas = 0", "0", "`replicas` must be at least 1: write `replicas = 3`"),
        ("faults = all, plans = 0", "0", "`plans` must be at least 1: write `plans = 20`"),
        ("faults = all, days = 0", "0", "`days` must be at least 1: write `days = 3`"),
        ("crashes = some", "some", "write `crashes = all`"),
        ("rejections = some", "some", "write `rejections = all`"),
        ("caches = Service", "Service", "`caches` must be a list in brackets: write `caches = [Service]`"),
        ("resources = \"pods\"", "\"pods\"", "`resources` must be a list in brackets"),
    ];
    for (arguments, at, what) in table {
        let (pointed_at, message) = refusal(arguments, SCRIPT);
        assert_eq!(pointed_at, at, "{arguments}: {message}");
        assert!(message.contains(what), "{arguments}: {message}");
    }
}

#[test]
fn argument_without_effect_is_rejected() {
    let table = [
        ("seed = 7, seed = 8", "seed", "`seed` is given twice"),
        ("days = 1", "days", "add `faults = all`"),
        ("hours = 1, faults = none", "hours", "add `faults = all`"),
        ("plans = 20", "plans", "add `faults = all`"),
        ("faults = all, minutes = 5, days = 1", "days", "keep one of minutes, hours and days"),
        ("crashes = all, faults = all", "faults", "make it a second test"),
        ("crashes = all, minutes = 3", "minutes", "make it a second test"),
        ("crashes = all, rejections = all", "rejections", "make it a second test"),
        ("rejections = all, faults = all", "faults", "make it a second test"),
        ("plan = printed(), seed = 3", "seed", "remove this, or remove `plan`"),
        ("faults = all, plan = printed()", "faults", "remove this, or remove `plan`"),
        ("crashes = all, plan = printed()", "crashes", "remove this, or remove `plan`"),
    ];
    for (arguments, at, what) in table {
        let (pointed_at, message) = refusal(arguments, SCRIPT);
        assert_eq!(pointed_at, at, "{arguments}: {message}");
        assert!(message.contains(what), "{arguments}: {message}");
    }
}

#[test]
fn invalid_script_is_rejected_with_the_required_form() {
    let table = [
        ("fn script(cluster: Cluster) {}", "fn", SHAPE),
        ("async fn script() {}", "script", SHAPE),
        ("async fn script(&self) {}", "&self", SHAPE),
        ("async fn script(cluster: Cluster, seed: u64) {}", "seed: u64", SHAPE),
        ("async fn script<T>(cluster: Cluster) {}", "<T>", SHAPE),
        ("async fn script(cluster: Cluster) -> Report {}", "Report", "a script returns no value"),
        ("#[test] async fn script(cluster: Cluster) {}", "#[test]", "remove this attribute"),
        ("#[tokio::test] async fn script(cluster: Cluster) {}", "#[tokio::test]", "remove this attribute"),
    ];
    for (script, at, what) in table {
        let (pointed_at, message) = refusal("", script);
        assert_eq!(pointed_at, at, "{script}: {message}");
        assert!(message.contains(what), "{script}: {message}");
    }
    assert!(expand(TokenStream::new(), tokens("struct Script;")).is_err());
}
