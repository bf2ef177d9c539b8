//! Work that is divided over replicas.
