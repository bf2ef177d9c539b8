//! Webhooks: admission and conversion as typed functions, their server and its certificates.
//!
//! [`Webhooks`] contains the webhooks of a process. It is registered like a controller. The server runs on every
//! replica. It starts before the caches, which can need a conversion, and stops after them.
//!
//! Guarantees:
//! - An object that cannot be decoded is denied with the field and the reason. The deletion of such an object is
//!   admitted.
//! - A mutation keeps the fields that the Rust type does not know, and changes nothing that the function did not
//!   change.
//! - A panic, an error and an exceeded time limit are failures (status 500 and 504), before the API server's own time
//!   limit. The failure policy decides about the request.
//! - In a dry run, all requests of the review's client are dry runs. A webhook without declared side effects declares
//!   no write, or its setup fails.
//! - A list is converted completely or not at all. Metadata except labels and annotations does not change.
//! - Bodies are limited to 7 MiB each and to 64 MiB together.
//! - Certificates rotate without a request that fails: an authority is in every `caBundle` for five minutes before a
//!   certificate that it signed replaces another one. Certificates in files are reloaded.
//! - On shutdown, readiness fails, and the server still accepts requests for [`WebhookConfig::linger`]. Requests in
//!   progress finish. One gap remains: a client that sends a request on an idle connection in the instant in which the
//!   server closes it.
//!
//! Not supported: HTTP/2 (API servers use HTTP/1.1 for webhooks), and reviews of `v1beta1`.
//!
//! A lister of a validator can be behind the API server: two concurrent requests can each be admitted although they
//! contradict each other. Uniqueness therefore needs a controller too.

mod admission;
mod certificates;
mod conversion;
mod difference;
mod error;
mod field_path;
mod hook;
mod review;
mod router;
mod server;
#[cfg(test)]
mod tests;

#[doc(inline)]
pub use windlass_controller::{WebhookCertificates, WebhookConfig};

pub use crate::admission::{Mutator, Validator};
pub use crate::conversion::{Conversion, ConversionBuilder, check_round_trip};
pub use crate::error::{AdmissionError, deny};
pub use crate::hook::{FailurePolicy, Hook, Operation, SideEffects};
pub use crate::review::Review;
pub use crate::server::Webhooks;
