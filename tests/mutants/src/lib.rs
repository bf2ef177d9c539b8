//! Defects that the checks of the tests must report, as mutations of the source.
//!
//! `cargo xtask mutants` copies the workspace, applies all mutations to the copy, and runs the tests in
//! `tests/mutants/tests/hunts/` there. Each defect is behind [`has_defect`], so that one build contains all of them and
//! a hunt activates one.
//!
//! Guarantees:
//! - The workspace itself contains neither a defect nor a switch.
//! - A mutation replaces a text that occurs exactly once; otherwise it is an error that names the mutation and the
//!   file.
//! - A defect is active only on the thread of [`with_defects`], and only until it returns.

mod mutations;
#[cfg(test)]
mod tests;

use std::cell::Cell;

pub use crate::mutations::{defects, mutations};

thread_local! {
    static ACTIVE: Cell<&'static [&'static str]> = const { Cell::new(&[]) };
}

/// A replacement of text in one file.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Name of the defect, or of the preparation that all defects need.
    pub name: &'static str,
    /// Path relative to the root of the workspace.
    pub file: &'static str,
    /// Text that occurs exactly once in the file.
    pub before: &'static str,
    /// Replacement of `before`.
    pub after: &'static str,
}

/// A mutation that does not match its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot apply mutation {name:?} to {file}: its `before` text occurs {times} times and must occur once; adapt it in \
     tests/mutants/src/mutations/"
)]
pub struct NotOnce {
    /// Name of the mutation.
    pub name: &'static str,
    /// File of the mutation.
    pub file: &'static str,
    /// Number of occurrences.
    pub times: usize,
}

impl Mutation {
    /// Returns the text of the file with the mutation applied.
    ///
    /// # Errors
    /// If `before` does not occur exactly once.
    pub fn apply(&self, text: &str) -> Result<String, NotOnce> {
        let Mutation { name, file, before, after } = *self;
        match text.matches(before).count() {
            1 => Ok(text.replacen(before, after, 1)),
            times => Err(NotOnce { name, file, times }),
        }
    }
}

/// Returns whether this defect is active on this thread. Mutated code calls it.
pub fn has_defect(name: &str) -> bool {
    ACTIVE.get().contains(&name)
}

/// Runs `run` with these defects.
///
/// # Panics
/// Panics if a defect is not listed.
pub fn with_defects<T>(names: &'static [&'static str], run: impl FnOnce() -> T) -> T {
    struct Restore(&'static [&'static str]);
    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }
    for name in names {
        assert!(defects().contains(name), "no mutation is named {name:?}");
    }
    let _restore = Restore(ACTIVE.replace(names));
    run()
}
