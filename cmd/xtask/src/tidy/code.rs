//! Rules about Rust source.

use super::tree::{Finding, RustFile, Tree};

/// Folders with deterministic code: the libraries, the simulation and the controllers.
const DETERMINISTIC: &[&str] = &["runtime/", "simulation/", "controllers/"];

/// The crate that implements clocks and tasks.
const ENV: &str = "runtime/env/";

/// Maximum number of columns of a comment. rustfmt does not wrap comments.
const MAX_COMMENT_COLUMNS: usize = 120;

/// Maximum number of lines of a function.
const MAX_FUNCTION_LINES: usize = 70;

/// Requires `biased` in each `select!`: the default order depends on random numbers that the seed does not determine.
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

/// Rejects types that wake tasks, or poll futures, in random order.
pub(super) fn no_random_wakers(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("sync::watch", "use windlass_env::watch_channel, which wakes in registration order"),
        ("tokio::sync::Barrier", "use windlass_env::watch_channel, which wakes in registration order"),
        ("StreamMap", "poll the streams in a fixed order: StreamMap starts at a random one"),
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

/// Rejects clocks and timers other than `Env`.
pub(super) fn time_only_through_env(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("tokio::time", "use the time and the timers of Env"),
        ("DelayQueue", "use a heap and sleep through Env"),
        ("std::thread::sleep", "sleep through Env"),
    ];
    each(tree, DETERMINISTIC, |file| {
        if file.file.path.starts_with(ENV) {
            return Vec::new();
        }
        let mut findings = banned(file, BANNED);
        findings.extend(imported_from_tokio(file, &["time"], "use the time and the timers of Env"));
        findings
    })
}

/// Rejects ignored tests and unfinished code.
pub(super) fn no_todo_markers(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("#[ignore", "make the test run, or remove it"),
        ("todo!", "implement it, or return an error that names the missing part"),
        ("unimplemented!", "implement it, or return an error that names the missing part"),
        ("dbg!", "log it through tracing, or remove it"),
    ];
    let mut findings = each(tree, &[""], |file| banned(file, BANNED));
    findings.extend(each(tree, &[""], ignored_examples));
    findings
}

/// Returns the documentation examples that are not compiled.
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

/// The only file of a library that can use anyhow: it inspects the errors that controllers return.
const ANYHOW_INSPECTION_FILE: &str = "runtime/controller/src/error/boxed.rs";

/// Rejects anyhow in libraries, which must define error types.
pub(super) fn no_anyhow_in_libraries(tree: &Tree) -> Vec<Finding> {
    each(tree, DETERMINISTIC, |file| {
        if file.file.path.contains("/examples/") || file.file.path == ANYHOW_INSPECTION_FILE {
            return Vec::new();
        }
        banned(file, &[("anyhow", "define an error type for the library")])
    })
}

/// Rejects global state in libraries: `main` chooses the logger, the panic hook and the TLS provider.
pub(super) fn libraries_install_nothing_global(tree: &Tree) -> Vec<Finding> {
    const BANNED: &[(&str, &str)] = &[
        ("set_hook", "return an error, or catch the panic where it happens: the binary sets the panic hook"),
        ("take_hook", "return an error, or catch the panic where it happens: the binary sets the panic hook"),
        ("set_global_default", "log through tracing: the binary chooses the subscriber"),
        ("set_logger", "log through tracing: the binary chooses the subscriber"),
        ("try_init", "log through tracing: the binary chooses the subscriber"),
        ("install_default", "pass the TLS provider: the binary installs the default"),
    ];
    each(tree, DETERMINISTIC, |file| {
        // `run` is the body of a `main`.
        let is_main = file.file.path.starts_with("runtime/app/");
        if is_main || file.file.path.contains("/examples/") || file.file.path.contains("/tests") {
            return Vec::new();
        }
        banned(file, BANNED)
    })
}

/// Rejects functions that are too long to review.
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
    let message =
        || format!("`{name}` is {lines} lines long, at most {MAX_FUNCTION_LINES} are allowed; divide it");
    (lines > MAX_FUNCTION_LINES).then(|| file.finding_at(at, message()))
}

/// Limits the width of comments, except tables and lines that cannot be broken.
pub(super) fn comments_are_wrapped(tree: &Tree) -> Vec<Finding> {
    each(tree, &[""], |file| {
        let is_too_wide = |line: &str| {
            let text = line.trim_start().trim_start_matches(['/', '!']).trim_start();
            let can_be_broken = text.contains(' ') && !text.starts_with('|');
            line.trim_start().starts_with("//") && can_be_broken && line.chars().count() > MAX_COMMENT_COLUMNS
        };
        let wide = file.file.text.lines().enumerate().filter(|(_, line)| is_too_wide(line));
        wide.map(|(index, _)| {
            file.file.finding(index + 1, format!("wrap the comment at {MAX_COMMENT_COLUMNS} columns"))
        })
        .collect()
    })
}

/// Returns the opening brace of the body of the function at `at`; `None` for a declaration.
fn body(file: &RustFile<'_>, at: usize) -> Option<usize> {
    let code = file.code.text().as_bytes();
    let mut here = at;
    loop {
        match code.get(here)? {
            b'{' => return Some(here),
            b';' | b'}' => return None,
            // Skips parameters and array types, which can contain a semicolon or a brace.
            b'(' | b'[' => here = file.code.closing(here)? + 1,
            _ => here += 1,
        }
    }
}

/// Requires that a handwritten `Debug` prints the name of its type, or of a variant that the `impl` names.
pub(super) fn debug_output_names_type(tree: &Tree) -> Vec<Finding> {
    each(tree, &[""], |file| {
        let calls = ["debug_struct", "debug_tuple"].into_iter().flat_map(|call| file.occurrences(call));
        calls.filter_map(|at| stale_debug_name(file, at)).collect()
    })
}

fn stale_debug_name(file: &RustFile<'_>, at: usize) -> Option<Finding> {
    const HEADER: &str = "Debug for ";
    // The name is a literal, which only the original text contains.
    let (_, literal) = file.file.text[at..].split_once('(')?;
    let (name, _) = literal.strip_prefix('"')?.split_once('"')?;
    let code = file.code.text();
    let header = code[..at].rfind(HEADER)? + HEADER.len();
    let path = code[header..at].split(['<', '{']).next()?.split_whitespace().next()?;
    let of_type = path.rsplit("::").next()?;
    let is_variant =
        file.occurrences(name).any(|found| (header..at).contains(&found) && code[..found].ends_with("::"));
    let message = || format!("`Debug` of `{of_type}` prints `{name}`: print the name of the type");
    (name != of_type && !is_variant).then(|| file.finding_at(at, message()))
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

/// Finds names in nested imports from tokio, which a search for the whole path does not find.
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

    /// Returns the lines of the findings if this is the only file.
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
    fn wide_comment_is_found() {
        let rule = comments_are_wrapped;
        let (wide, table) = (format!("// {}", "ab ".repeat(40)), format!("/// | {} |", "ab ".repeat(40)));
        let url = format!("    // https://{}", "a".repeat(120));
        let text = format!("// short\n{wide}\n{table}\n{url}\nlet text = \"{wide}\";\n    {wide}\n");
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", &text), [2, 6]);
    }

    #[test]
    fn random_wakers_are_found_in_all_import_forms() {
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
    fn unfinished_code_is_found() {
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
        assert_eq!(lines(rule, ANYHOW_INSPECTION_FILE, "use anyhow::Result;"), [0; 0]);
    }

    #[test]
    fn library_that_sets_global_state_is_found() {
        let rule = libraries_install_nothing_global;
        let hook = "fn f() { std::panic::set_hook(Box::new(|_| {})); }";
        assert_eq!(lines(rule, "runtime/x/src/lib.rs", hook), [1]);
        assert_eq!(lines(rule, "runtime/x/src/tests/a.rs", hook), [0; 0]);
        assert_eq!(lines(rule, "cmd/x/src/main.rs", hook), [0; 0]);
    }

    #[test]
    fn debug_name_that_differs_from_type_is_found() {
        let rule = debug_output_names_type;
        let debug = |of_type: &str, body: &str| format!("impl fmt::Debug for {of_type} {{\n{body}\n}}\n");
        for of_type in ["A", "A<'_>", "super::A", "super::A<T> where T: B", "A<T>\nwhere T: B"] {
            assert_eq!(lines(rule, "a.rs", &debug(of_type, "f.debug_struct(\"A\")")), [0; 0], "{of_type}");
            assert_eq!(lines(rule, "a.rs", &debug(of_type, "f.debug_tuple(\"B\")")).len(), 1, "{of_type}");
        }
        let variants = "Self::Read(it) => f.debug_tuple(\"Read\"),\nSelf::Sent => f.debug_struct(\"Sends\"),";
        assert_eq!(lines(rule, "a.rs", &debug("A", variants)), [3]);
        assert_eq!(lines(rule, "a.rs", &debug("A", "f.debug_tuple(name)")), [0; 0]);
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
