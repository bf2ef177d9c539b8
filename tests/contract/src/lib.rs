//! One suite of API behaviours, run unchanged against the server in the process and against kube-apiserver.
//!
//! Guarantees: every behaviour has a name; where the two servers differ on purpose, the difference is listed with its
//! reason, and the list is exact.
