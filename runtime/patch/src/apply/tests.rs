//! What server-side apply promises, by upstream's cases and by our own.

mod upstream;
