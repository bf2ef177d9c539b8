//! Attributes the machine code of a binary to crates, by the names in its symbol table.
//!
//! A symbol counts for a workspace crate if the first path segment of its demangled name is that crate. In
//! `<windlass_env::Env as core::fmt::Debug>::fmt` this is `windlass_env`. The result is an approximation:
//! - A generic function of another crate counts as `other`, even if a workspace crate instantiates it.
//! - A generic function of a workspace crate counts for that crate, regardless of the crate that instantiates it.
//! - An inlined function counts for its caller.
//! - Drop glue (`core::ptr::drop_in_place`) has a line for all types together.
//! - The facade crate and the program are both named `windlass` and share a line.
//!
//! Guarantees: the parts add up to the total; code with several names counts once.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use serde::Serialize;

/// Bytes of text symbols.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct MachineCode {
    pub(super) total: u64,
    /// Bytes of each workspace crate.
    workspace_crates: BTreeMap<String, u64>,
    drop_glue: u64,
    /// Bytes of other crates, of the standard library, and of C and assembly.
    other: u64,
}

impl MachineCode {
    /// Returns the parts of the total by name. Workspace crates come first, from large to small.
    pub(super) fn parts(&self) -> Vec<(&str, u64)> {
        let mut parts: Vec<_> =
            self.workspace_crates.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        parts.extend([("drop glue", self.drop_glue), ("other", self.other)]);
        parts
    }

    fn from_symbols<'a>(
        symbols: impl IntoIterator<Item = (&'a str, u64)>,
        workspace_crates: &BTreeSet<String>,
    ) -> Self {
        let mut code = Self::default();
        for (name, bytes) in symbols {
            code.total += bytes;
            match Owner::from_symbol(name, workspace_crates) {
                Owner::Workspace(name) => *code.workspace_crates.entry(name).or_default() += bytes,
                Owner::DropGlue => code.drop_glue += bytes,
                Owner::Other => code.other += bytes,
            }
        }
        code
    }
}

/// Returns the machine code of `binary` and the size of its loadable segments in the file.
///
/// # Errors
/// Returns an error if `binary` is not an ELF file or has no symbol table.
pub(super) fn read(binary: &[u8], workspace_crates: &BTreeSet<String>) -> Result<(MachineCode, u64)> {
    let file = object::File::parse(binary).context("cannot read the binary as an ELF file")?;
    let mut symbols = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
    {
        let name = symbol.name().context("cannot read the name of a symbol")?;
        let entry = symbols.entry(symbol.address()).or_insert((name, symbol.size()));
        // Aliases of a function have its address. The longest one covers the others.
        if entry.1 < symbol.size() {
            *entry = (name, symbol.size());
        }
    }
    ensure!(
        !symbols.is_empty(),
        "cannot read machine code: the binary has no symbol table; build it without `strip`"
    );
    let loadable = file.segments().map(|segment| segment.file_range().1).sum();
    Ok((MachineCode::from_symbols(symbols.into_values(), workspace_crates), loadable))
}

/// The line of the report that a symbol counts for.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Workspace(String),
    DropGlue,
    Other,
}

impl Owner {
    fn from_symbol(symbol: &str, workspace_crates: &BTreeSet<String>) -> Self {
        // The alternate form omits hashes.
        let name = format!("{:#}", rustc_demangle::demangle(symbol));
        if let Some(rest) = name.strip_prefix("core::ptr::drop_in_place")
            && rest.starts_with(['<', ':'])
        {
            return Self::DropGlue;
        }
        match first_segment(&name) {
            Some(segment) if workspace_crates.contains(segment) => Self::Workspace(segment.to_owned()),
            _ => Self::Other,
        }
    }
}

/// Returns the first path segment of a demangled name. For a method of a trait this is a segment of the type.
fn first_segment(name: &str) -> Option<&str> {
    let path = name.trim_start_matches('<');
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    path.split_once("::").map(|(segment, _)| segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace_crates() -> BTreeSet<String> {
        ["windlass", "windlass_env"].map(str::to_owned).into()
    }

    #[test]
    fn symbol_is_attributed_to_crate_of_first_segment() {
        let env = || Owner::Workspace("windlass_env".to_owned());
        for (symbol, owner) in [
            ("_ZN12windlass_env5tasks5spawn17h0123456789abcdefE", env()),
            (
                "_ZN56_$LT$windlass_env..Env$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
                env(),
            ),
            ("_RNvNtCsgEmfK2I1SDS_12windlass_env5tasks5spawn", env()),
            ("_ZN8windlass4main17h0123456789abcdefE", Owner::Workspace("windlass".to_owned())),
            ("_ZN17windlass_envelope4open17h0123456789abcdefE", Owner::Other),
            ("_ZN5tokio7runtime5spawn17h0123456789abcdefE", Owner::Other),
            ("main", Owner::Other),
            ("ring_core_0_17_14__bn_mul_mont", Owner::Other),
        ] {
            assert_eq!(Owner::from_symbol(symbol, &workspace_crates()), owner, "{symbol}");
        }
    }

    #[test]
    fn generic_of_other_crate_is_attributed_to_other() {
        let symbol = "_ZN5alloc3vec28Vec$LT$windlass_env..Env$GT$4push17h0123456789abcdefE";
        assert_eq!(Owner::from_symbol(symbol, &workspace_crates()), Owner::Other);
    }

    #[test]
    fn drop_glue_is_attributed_to_its_own_line() {
        for symbol in [
            "_ZN4core3ptr38drop_in_place$LT$windlass_env..Env$GT$17h0123456789abcdefE",
            "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeNtCsgEmfK2I1SDT_12windlass_env3EnvEB4_",
        ] {
            assert_eq!(Owner::from_symbol(symbol, &workspace_crates()), Owner::DropGlue, "{symbol}");
        }
    }

    #[test]
    fn parts_of_machine_code_add_up_to_total() {
        let symbols = [
            ("_ZN12windlass_env5tasks5spawn17h0123456789abcdefE", 10),
            ("_ZN12windlass_env5tasks4stop17h0123456789abcdefE", 5),
            ("_ZN8windlass4main17h0123456789abcdefE", 20),
            ("_ZN4core3ptr38drop_in_place$LT$windlass_env..Env$GT$17h0123456789abcdefE", 3),
            ("main", 2),
        ];
        let code = MachineCode::from_symbols(symbols, &workspace_crates());
        assert_eq!(code.total, 40);
        assert_eq!(code.parts(), [("windlass", 20), ("windlass_env", 15), ("drop glue", 3), ("other", 2)]);
    }

    #[test]
    fn own_program_has_machine_code() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let (code, loadable) = read(&program, &["xtask".to_owned()].into()).unwrap();
        assert!(code.parts()[0].0 == "xtask" && code.parts()[0].1 > 0, "{code:?}");
        assert!(code.total < loadable && loadable < program.len() as u64, "{code:?} {loadable}");
        assert!(read(b"not a binary", &BTreeSet::new()).is_err());
    }
}
