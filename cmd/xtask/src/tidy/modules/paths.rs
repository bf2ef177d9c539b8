//! Finds paths that begin with `crate`, `self` or `super`, and the names that imports add to a module.

use std::collections::BTreeMap;

use super::super::tree::RustFile;

/// Names of a path in order: `super`, `kinds`, `Kind`.
pub(super) type Path<'a> = Vec<&'a str>;

/// Returns the paths of a file and their offsets, outside its tests. Each path of a group counts.
pub(super) fn paths<'a>(file: &'a RustFile<'_>) -> Vec<(usize, Path<'a>)> {
    let code = production(file);
    let mut found = Vec::new();
    for root in ["crate::", "self::", "super::"] {
        for at in file.occurrences(root).filter(|at| *at < code.len() && !code[..*at].ends_with("::")) {
            let mut leaves = Vec::new();
            leaves_of(&code[at..], &[], &mut leaves);
            found.extend(leaves.into_iter().map(|(_, path)| (at, path)));
        }
    }
    found
}

/// Returns the names that the imports of a file add to its module, each with the path that it stands for.
pub(super) fn imports<'a>(file: &'a RustFile<'_>) -> BTreeMap<&'a str, Path<'a>> {
    let code = production(file);
    let mut leaves = Vec::new();
    for at in file.occurrences("use ").filter(|at| *at < code.len() && begins_item(code, *at)) {
        leaves_of(&code[at + "use ".len()..], &[], &mut leaves);
    }
    leaves.into_iter().collect()
}

fn production<'a>(file: &'a RustFile<'_>) -> &'a str {
    let code = file.code.text();
    &code[..code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len())]
}

/// Returns whether only a visibility precedes on the line: imports in functions and inline modules are indented.
fn begins_item(code: &str, at: usize) -> bool {
    let line = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let before = &code[line..at];
    before.is_empty() || before.starts_with("pub")
}

/// Adds the paths of the use tree at the start of `text`, with their local names.
fn leaves_of<'a>(text: &'a str, prefix: &[&'a str], leaves: &mut Vec<(&'a str, Path<'a>)>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        parts(group).into_iter().for_each(|part| leaves_of(part, prefix, leaves));
        return;
    }
    let word = first_word(text);
    if word.is_empty() {
        return;
    }
    // `a::{self}` is `a`.
    let is_itself = word == "self" && !prefix.is_empty();
    let path: Path<'_> = prefix.iter().copied().chain((!is_itself).then_some(word)).collect();
    let rest = text[word.len()..].trim_start();
    match rest.strip_prefix("::") {
        Some(rest) if rest.starts_with(['{', '_']) || rest.starts_with(char::is_alphabetic) => {
            leaves_of(rest, &path, leaves);
        }
        // A glob, or generic arguments of a function.
        Some(_) => leaves.push(("", path)),
        None => {
            let alias = rest.strip_prefix("as ").map(|rest| first_word(rest.trim_start()));
            leaves.push((alias.or(path.last().copied()).unwrap_or_default(), path));
        }
    }
}

/// Returns the paths of a group after its opening brace.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut parts) = (0_usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' if depth == 0 => {
                parts.push(&group[begin..at]);
                begin = at + 1;
            }
            '}' if depth == 0 => {
                parts.push(&group[begin..at]);
                break;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    parts
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::Tree;
    use super::*;

    fn joined(text: &str, names: fn(&RustFile<'_>) -> Vec<String>) -> Vec<String> {
        let tree = Tree::of(&[("a.rs", text)]);
        tree.rust(&[""]).flat_map(|file| names(&file)).collect()
    }

    #[test]
    fn paths_of_groups_and_expressions_are_listed() {
        let text = "use super::{a::{self, B}, c as d};\nfn f(_: crate::E<super::super::g::H>) { self::i::<u8>() }\
                    \n#[cfg(test)]\nmod tests {\n    use super::j;\n}\n";
        let mut found =
            joined(text, |file| paths(file).into_iter().map(|(_, path)| path.join("::")).collect());
        found.sort();
        let expected = ["crate::E", "self::i", "super::a", "super::a::B", "super::c", "super::super::g::H"];
        assert_eq!(found, expected);
    }

    #[test]
    fn imports_are_listed_by_the_name_that_they_add() {
        let text = "pub(crate) use self::a::{B, c as d};\nuse e::F;\nfn f() {\n    use super::g;\n}\n";
        let found = joined(text, |file| {
            let imports = imports(file).into_iter();
            imports.map(|(name, path)| format!("{name} = {}", path.join("::"))).collect()
        });
        assert_eq!(found, ["B = self::a::B", "F = e::F", "d = self::a::c"]);
    }
}
