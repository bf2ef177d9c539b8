//! The list is consistent with the workspace, and the switch with itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;

#[test]
fn mutations_apply_to_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for mutation in mutations() {
        let path = root.join(mutation.file);
        let text = texts.entry(mutation.file).or_insert_with(|| fs::read_to_string(path).unwrap_or_default());
        *text = mutation.apply(text).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn text_that_does_not_occur_once_is_an_error_that_names_mutation_and_file() {
    let mutation = Mutation { name: "leak", file: "a.rs", before: "drop(it)", after: "forget(it)" };
    assert_eq!(mutation.apply("drop(it);").as_deref(), Ok("forget(it);"));
    for (text, times) in [("", 0), ("drop(it); drop(it);", 2)] {
        let error = mutation.apply(text).expect_err("it does not occur once");
        assert_eq!(error, NotOnce { name: "leak", file: "a.rs", times });
        assert!(error.to_string().contains("\"leak\"") && error.to_string().contains("a.rs"), "{error}");
    }
}

#[test]
fn defect_is_active_until_its_run_returns_or_panics() {
    let [one, other, ..] = defects()[..] else { panic!("several defects are listed") };
    let names: &'static [&'static str] = vec![one].leak();
    assert!(with_defects(names, || has_defect(one) && !has_defect(other)));
    assert!(!has_defect(one));
    std::panic::catch_unwind(|| with_defects(names, || panic!("on purpose"))).expect_err("it panics");
    assert!(!has_defect(one));
}
