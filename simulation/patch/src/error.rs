//! Why a patch was refused, told apart by what a server answers.

/// Why a patch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is not a patch. Servers answer 400 `BadRequest` with this text.
    #[error("{0}")]
    Malformed(String),
    /// It is a patch, but it does not fit this document. Servers answer 422 `Invalid` with a fixed text; this one is
    /// for logs.
    #[error("{0}")]
    Inapplicable(String),
    /// It has too many operations. Servers answer 413 `RequestEntityTooLarge` with this text.
    #[error("The allowed maximum operations in a JSON patch is {allowed}, got {got}")]
    TooManyOperations {
        /// How many there may be.
        allowed: usize,
        /// How many there are.
        got: usize,
    },
    /// Merging failed in a way upstream has no answer for. Servers answer 500 without a reason and with this text.
    #[error("{0}")]
    Failed(String),
}
