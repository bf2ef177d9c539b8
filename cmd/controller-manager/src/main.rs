//! The windlass binary. The implementation is in the library next to it, where tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_controller_manager::main(std::env::args_os())
}
