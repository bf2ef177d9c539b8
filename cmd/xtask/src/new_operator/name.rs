//! Names that a project can have: its package, crate, program, image, chart and objects share the name.

use anyhow::{Result, bail, ensure};

/// Longest name: names of objects are up to 63 characters long and append a suffix.
const MAX_LENGTH: usize = 40;

/// Keywords of Rust, also reserved ones. A crate of such a name cannot be imported.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// Primitive types. A crate of such a name hides the type.
const TYPES: &[&str] = &[
    "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8", "u16", "u32",
    "u64", "u128", "usize",
];

/// Crates of the compiler, and folders of cargo next to the program.
const OF_TOOLCHAIN: &[&str] =
    &["alloc", "build", "core", "deps", "examples", "incremental", "proc_macro", "std", "test"];

/// Texts that the library chart replaces, and its name.
const OF_CHART: &[&str] = &[
    "namespace-of-release",
    "namespace-of-objects",
    "namespace-of-lease",
    "name-of-lease",
    "name-of-release",
    "operator-base",
];

/// Checks a name. `lock` is the `Cargo.lock` of the dependencies, and `sample` the package that the project replaces.
///
/// # Errors
/// If the name is not valid, or has another meaning.
pub(super) fn check(name: &str, lock: &str, sample: &str) -> Result<()> {
    let is_inner = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_valid = name.starts_with(|it: char| it.is_ascii_lowercase())
        && name.split('-').all(|part| !part.is_empty() && part.chars().all(is_inner));
    ensure!(
        is_valid,
        "{name:?} is not a name of objects and packages; use lowercase letters, digits and single dashes between them, \
         such as shop-operator"
    );
    ensure!(name.len() <= MAX_LENGTH, "{name:?} is longer than {MAX_LENGTH} characters; use a shorter name");
    if let Some(owner) = owner(name, lock, sample) {
        bail!("{name:?} is the name of {owner}; use another name, such as shop-operator");
    }
    Ok(())
}

/// Returns what else has the name.
fn owner(name: &str, lock: &str, sample: &str) -> Option<&'static str> {
    let identifier = name.replace('-', "_");
    let mut packages = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    if KEYWORDS.contains(&&*identifier) {
        Some("a keyword of Rust")
    } else if TYPES.contains(&&*identifier) {
        Some("a type of Rust")
    } else if OF_TOOLCHAIN.contains(&&*identifier) {
        Some("a crate or folder of the toolchain")
    } else if OF_CHART.iter().any(|text| name.contains(text)) {
        Some("a part of the library chart")
    } else if name != sample && packages.any(|package| package.replace('-', "_") == identifier) {
        Some("a package of Windlass or of its dependencies")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"kube\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"serde_json\"\n\
                        dependencies = [\n \"itoa\",\n]\n\n[[package]]\nname = \"site-operator\"\n";

    #[test]
    fn unusable_names_are_rejected_with_culprit_and_remedy() {
        let (long, longest) = ("a".repeat(41), "a".repeat(40));
        for (name, cause) in [
            ("", "lowercase"),
            ("Shop", "lowercase"),
            ("1shop", "lowercase"),
            ("-shop", "lowercase"),
            ("shop-", "lowercase"),
            ("shop--operator", "single dashes"),
            ("shop_operator", "lowercase"),
            ("shop.operator", "lowercase"),
            ("shop operator", "lowercase"),
            ("../shop", "lowercase"),
            ("läden", "lowercase"),
            (&long, "longer than 40 characters"),
            ("match", "a keyword of Rust"),
            ("self", "a keyword of Rust"),
            ("gen", "a keyword of Rust"),
            ("str", "a type of Rust"),
            ("i32", "a type of Rust"),
            ("core", "toolchain"),
            ("std", "toolchain"),
            ("test", "toolchain"),
            ("proc-macro", "toolchain"),
            ("build", "toolchain"),
            ("operator-base", "the library chart"),
            ("namespace-of-objects", "the library chart"),
            ("my-name-of-lease", "the library chart"),
            ("kube", "a package of Windlass or of its dependencies"),
            ("serde-json", "a package of Windlass or of its dependencies"),
        ] {
            let error = check(name, LOCK, "site-operator").expect_err(name).to_string();
            assert!(error.starts_with(&format!("{name:?} is ")), "{error}");
            assert!(error.contains(cause) && error.contains("; use "), "{name}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        for name in ["shop", "shop-operator2", "site-operator", "kube-shop", "matches", "itoa2", &longest] {
            check(name, LOCK, "site-operator").expect("a valid name");
        }
    }

    #[test]
    fn packages_of_this_workspace_are_rejected() {
        let lock = std::fs::read_to_string(crate::workspace::root().join("Cargo.lock")).expect("a lock");
        for name in ["kube", "k8s-openapi", "tokio", "windlass", "windlass-webhook", "serde-json", "xtask"] {
            check(name, &lock, "site-operator").expect_err(name);
        }
        check("site-operator", &lock, "site-operator").expect("the sample itself");
    }
}
