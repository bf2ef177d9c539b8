//! The windlass binary. The implementation is in the library next to it, where tests can reach it.

use std::process::ExitCode;

/// The allocator of static binaries: that of musl has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    windlass_controller_manager::main(std::env::args_os())
}
