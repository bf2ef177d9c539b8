//! Patch errors, distinguished by the response of the server.

/// Reason why a patch was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body is not a patch. Servers respond with 400 `BadRequest` and this text.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit this document. Servers respond with 422 `Invalid` and a fixed text; this text is for
    /// logs.
    #[error("{0}")]
    Inapplicable(String),
    /// The patch has too many operations. Servers respond with 413 `RequestEntityTooLarge` and this text.
    #[error("The allowed maximum operations in a JSON patch is {allowed}, got {got}")]
    TooManyOperations {
        /// Maximum number of operations.
        allowed: usize,
        /// Number of operations in the patch.
        got: usize,
    },
    /// Merging failed in a way for which upstream has no status. Servers respond with 500 without a reason and with
    /// this text.
    #[error("{0}")]
    Failed(String),
}
