//! Boxes errors of controllers so that their types can still be found.

use std::any::Any;

use super::BoxError;

/// Boxes an error. The plain conversion of an `anyhow::Error` hides the type of the error inside; this one does not.
pub(super) fn boxed<E: Into<BoxError> + 'static>(cause: E) -> BoxError {
    let mut cause = Some(cause);
    let any: &mut dyn Any = &mut cause;
    let of_anyhow = any.downcast_mut().and_then(Option::<anyhow::Error>::take);
    let of_anyhow = of_anyhow.map(anyhow::Error::reallocate_into_boxed_dyn_error_without_backtrace);
    of_anyhow.or_else(|| cause.map(Into::into)).unwrap_or_else(|| "no error".into())
}

#[cfg(test)]
mod tests {
    use std::io;

    use crate::error::{ReconcileError, retry};

    fn io() -> anyhow::Error {
        anyhow::Error::from(io::Error::other("the disk is gone"))
    }

    #[test]
    fn causes_are_found_in_errors_of_anyhow() {
        for error in [ReconcileError::from(io()), retry(io()), ReconcileError::from(io().context("reading"))]
        {
            assert!(error.find::<io::Error>().is_some(), "{error:?}");
        }
        assert_eq!(ReconcileError::from(io().context("reading")).to_string(), "reading");
        assert_eq!(ReconcileError::from("text").to_string(), "text");
    }
}
