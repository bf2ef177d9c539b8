//! Rules about Rust source.

use super::tree::{Finding, RustFile, Tree};

/// Where determinism is owed: the library and what is built on it.
const DETERMINISTIC: &[&str] = &["runtime/", "simulation/", "controllers/"];

/// The crate that may touch clocks and tasks, since it is the door to them.
const ENV: &str = "runtime/env/";

/// A function longer than this does not fit a screen.
const MAX_FUNCTION: usize = 70;

/// An unbiased `select!` draws its order from tokio's own random numbers, which no seed of ours reaches.
pub(super) fn selects_are_biased(tree: &Tree) -> Vec<Finding> {
    each(tree, DETERMINISTIC, |file| {
        let code = file.code.text();
        let unbiased = |at: &usize| {
            let body = code[at + "select!".len()..].trim_start();
            let body = body.trim_start_matches(['{', '(', '[']).trim_start();
            body.strip_prefix("biased").is_none_or(|rest| !rest.trim_start().starts_with(';'))
        };
        let places = file.occurrences("select!").filter(unbiased);
        places.map(|at| file.finding_at(at, "begin this select! with `biased;`")).collect()
    })
}

/// These choose whom to wake, or what to poll first, at random.
pub(super) fn no_random_wakers(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("sync::watch", "use windlass_env::watch_channel, which wakes in registration order"),
        ("tokio::sync::Barrier", "use windlass_env::watch_channel, which wakes in registration order"),
        ("StreamMap", "poll streams in an order of your own, it starts at a random one"),
        ("futures::select!", "use tokio::select! with `biased;`"),
        ("futures_util::select!", "use tokio::select! with `biased;`"),
        ("RandomState", "use a BTreeMap or BTreeSet"),
    ];
    each(tree, DETERMINISTIC, |file| {
        let mut findings = banned(file, BANNED);
        findings.extend(imported_from_tokio(file, &["watch", "Barrier"], "use windlass_env::watch_channel"));
        findings
    })
}

/// Outside `env` there is no clock and no timer but `Env`.
pub(super) fn time_only_through_env(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("tokio::time", "ask Env for the time and for timers"),
        ("DelayQueue", "keep a heap of your own and sleep through Env"),
        ("std::thread::sleep", "sleep through Env"),
    ];
    each(tree, DETERMINISTIC, |file| {
        if file.file.path.starts_with(ENV) {
            return Vec::new();
        }
        let mut findings = banned(file, BANNED);
        findings.extend(imported_from_tokio(file, &["time"], "ask Env for the time and for timers"));
        findings
    })
}

/// A test that does not run proves nothing, and a hole in the code is not code.
pub(super) fn no_todo_markers(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("#[ignore", "make the test run, or remove it"),
        ("todo!", "write it, or return an error that names what is missing"),
        ("unimplemented!", "write it, or return an error that names what is missing"),
        ("dbg!", "log it through tracing, or remove it"),
    ];
    let mut findings = each(tree, &[""], |file| banned(file, BANNED));
    findings.extend(each(tree, &[""], ignored_examples));
    findings
}

/// Examples in documentation that are compiled by nobody.
fn ignored_examples(file: &RustFile<'_>) -> Vec<Finding> {
    let is_ignored = |line: &str| {
        let comment = line.trim_start();
        let fence = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!")).map(str::trim_start);
        fence.and_then(|text| text.strip_prefix("```")).is_some_and(|info| info.starts_with("ignore"))
    };
    let lines = file.file.text.lines().enumerate().filter(|(_, line)| is_ignored(line));
    lines
        .map(|(at, _)| file.file.finding(at + 1, "make the example compile, `no_run` if it must not run"))
        .collect()
}

/// The one file of a library that knows anyhow: it looks into the errors that controllers return.
const LOOKS_INTO_ANYHOW: &str = "runtime/controller/src/error/boxed.rs";

/// A library's errors are types of its own.
pub(super) fn no_anyhow_in_libraries(tree: &Tree) -> Vec<Finding> {
    each(tree, DETERMINISTIC, |file| {
        if file.file.path.contains("/examples/") || file.file.path == LOOKS_INTO_ANYHOW {
            return Vec::new();
        }
        banned(file, &[("anyhow", "a library returns a small error type of its own")])
    })
}

/// A process has one logger, one panic hook and one TLS provider, and whoever writes `main` chooses them.
pub(super) fn libraries_install_nothing_global(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("set_hook", "return an error, or catch the panic where it happens: the panic hook is the binary's"),
        ("take_hook", "return an error, or catch the panic where it happens: the panic hook is the binary's"),
        ("set_global_default", "tell tracing what happened: who listens is the binary's to say"),
        ("set_logger", "tell tracing what happened: who listens is the binary's to say"),
        ("try_init", "tell tracing what happened: who listens is the binary's to say"),
        ("install_default", "the binary installs a TLS provider: name it where it is missing"),
    ];
    each(tree, DETERMINISTIC, |file| {
        // `run` stands in for a `main`.
        let is_main = file.file.path.starts_with("runtime/app/");
        if is_main || file.file.path.contains("/examples/") || file.file.path.contains("/tests") {
            return Vec::new();
        }
        banned(file, BANNED)
    })
}

/// Short functions are read, long ones are believed.
pub(super) fn max_function_length(tree: &Tree) -> Vec<Finding> {
    each(tree, &[""], |file| file.occurrences("fn").filter_map(|at| too_long(file, at)).collect())
}

fn too_long(file: &RustFile<'_>, at: usize) -> Option<Finding> {
    let code = file.code.text();
    let name: String =
        code[at + 2..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() {
        return None; // a function pointer type
    }
    let open = body(file, at)?;
    let lines = file.code.line_of(file.code.closing(open)?) - file.code.line_of(at) + 1;
    let message = || format!("`{name}` is {lines} lines long, at most {MAX_FUNCTION} are read; divide it");
    (lines > MAX_FUNCTION).then(|| file.finding_at(at, message()))
}

/// The brace that opens the body of the function at `at`; none for a declaration.
fn body(file: &RustFile<'_>, at: usize) -> Option<usize> {
    let code = file.code.text().as_bytes();
    let mut here = at;
    loop {
        match code.get(here)? {
            b'{' => return Some(here),
            b';' | b'}' => return None,
            // Past parameters and array types, which may hold a semicolon or a brace.
            b'(' | b'[' => here = file.code.closing(here)? + 1,
            _ => here += 1,
        }
    }
}

fn each(tree: &Tree, prefixes: &[&str], rule: impl Fn(&RustFile<'_>) -> Vec<Finding>) -> Vec<Finding> {
    tree.rust(prefixes).flat_map(|file| rule(&file)).collect()
}

fn banned(file: &RustFile<'_>, words: &[(&str, &str)]) -> Vec<Finding> {
    let places = words.iter().flat_map(|(word, remedy)| {
        file.occurrences(word)
            .map(move |at| file.finding_at(at, format!("`{word}` is banned here: {remedy}")))
    });
    places.collect()
}

/// Names taken from tokio by a nested import, which a search for the whole path does not see.
fn imported_from_tokio(file: &RustFile<'_>, names: &[&str], remedy: &str) -> Vec<Finding> {
    let code = file.code.text();
    let mut findings = Vec::new();
    for at in file.occurrences("use tokio::") {
        let statement = &code[at..at + code[at..].find(';').unwrap_or(code.len() - at)];
        let is_nested = statement.contains('{');
        let mut words = statement.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if let Some(name) = words.find(|word| is_nested && names.contains(word)) {
            findings.push(file.finding_at(at, format!("tokio's `{name}` is banned here: {remedy}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines a rule objects to when this is the only file.
    fn lines(rule: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::of(&[(path, text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn select_without_bias_is_found() {
        let rule = selects_are_biased;
        let text = "tokio::select! {\n    biased;\n    a = b => {}\n}\nselect! {\n    a = b => {}\n}\n";
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", text), [5]);
        assert_eq!(lines(rule, "cmd/xtask/src/main.rs", text), [0; 0]);
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", "// select! { a }\nselect_biased! { a }\n"), [0; 0]);
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", "select! { biased_one = f() => {} }"), [1]);
    }

    #[test]
    fn what_wakes_at_random_is_found_however_it_is_imported() {
        let rule = no_random_wakers;
        for text in [
            "use tokio::sync::watch;",
            "use tokio::sync::{mpsc, watch};",
            "use tokio::{\n    sync::{mpsc, Barrier},\n};",
            "let (a, b) = tokio::sync::watch::channel(1);",
            "let m = tokio_stream::StreamMap::new();",
            "futures::select! { a => {} }",
        ] {
            assert!(!lines(rule, "controllers/src/a.rs", text).is_empty(), "{text}");
        }
        assert_eq!(
            lines(rule, "controllers/src/a.rs", "use tokio::sync::mpsc; setup.watch::<Pod>()"),
            [0; 0]
        );
        assert_eq!(lines(rule, "tests/a.rs", "use tokio::sync::watch;"), [0; 0]);
    }

    #[test]
    fn only_env_reads_tokios_clock() {
        let rule = time_only_through_env;
        assert_eq!(lines(rule, "runtime/workqueue/src/lib.rs", "tokio::time::sleep(d).await"), [1]);
        assert_eq!(lines(rule, "runtime/workqueue/src/lib.rs", "use tokio::{sync::mpsc, time};"), [1]);
        assert_eq!(lines(rule, "runtime/env/src/clock.rs", "tokio::time::sleep(d).await"), [0; 0]);
    }

    #[test]
    fn what_is_left_undone_is_found() {
        let rule = no_todo_markers;
        for text in [
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "todo!()",
            "unimplemented!()",
            "dbg!(x)",
            "/// ```ignore\n/// x\n",
        ] {
            assert_eq!(lines(rule, "tests/a.rs", text), [1], "{text}");
        }
        assert_eq!(lines(rule, "tests/a.rs", "// todo!() is banned\n/// ```no_run\n"), [0; 0]);
    }

    #[test]
    fn anyhow_is_found_below_the_edge() {
        let rule = no_anyhow_in_libraries;
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", "use anyhow::Result;"), [1]);
        assert_eq!(lines(rule, "runtime/x/examples/a.rs", "use anyhow::Result;"), [0; 0]);
        assert_eq!(lines(rule, "cmd/x/src/main.rs", "use anyhow::Result;"), [0; 0]);
        assert_eq!(lines(rule, LOOKS_INTO_ANYHOW, "use anyhow::Result;"), [0; 0]);
    }

    #[test]
    fn library_that_installs_what_a_process_has_one_of_is_found() {
        let rule = libraries_install_nothing_global;
        let hook = "fn f() { std::panic::set_hook(Box::new(|_| {})); }";
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", hook), [1]);
        assert_eq!(lines(rule, "runtime/x/src/tests/a.rs", hook), [0; 0]);
        assert_eq!(lines(rule, "cmd/x/src/main.rs", hook), [0; 0]);
    }

    #[test]
    fn long_function_is_found_and_a_long_table_is_not() {
        let rule = max_function_length;
        let filler = "    f(\"}\");\n".repeat(68);
        assert_eq!(lines(rule, "a.rs", &format!("fn f(x: [u8; 2]) {{\n{filler}}}\n")), [0; 0]);
        assert_eq!(lines(rule, "a.rs", &format!("\nfn f(x: [u8; 2]) {{\n{filler}\n}}\n")), [2]);
        assert_eq!(lines(rule, "a.rs", &format!("const A: &[u8] = &[\n{filler}{filler}];\n")), [0; 0]);
        assert_eq!(lines(rule, "a.rs", "trait T { fn f(); }\ntype F = fn(u8);\n"), [0; 0]);
    }
}
