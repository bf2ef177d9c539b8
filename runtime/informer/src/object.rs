//! Objects without their type.

use std::any::Any;
use std::sync::Arc;

/// An object of any type, or its [compact form](crate::compact); shared.
pub(crate) type Object = Arc<dyn Any + Send + Sync>;
