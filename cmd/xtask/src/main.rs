//! Every chore of this workspace as one command: one variant and one module per chore.

// A chore's result is what it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod build_times;
mod ci;
mod control_plane;
mod dependencies;
mod fuzz;
mod generate_schema;
mod lint;
mod measure;
mod miri;
mod mutants;
mod soak;
mod steps;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every chore of this workspace, the same for people and for CI.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// A real Kubernetes control plane on this machine.
    ControlPlane(control_plane::Arguments),
    /// Every test, on a real control plane where one is needed; builds what is missing first.
    Test(test::Arguments),
    /// Windlass and kube-controller-manager side by side: time, CPU and memory of scaling to 1,000 pods and back.
    Measure(measure::Arguments),
    /// One process under churn and faults on a real control plane, and whether what it holds grows.
    Soak(soak::Arguments),
    /// Crates and machine code in the production binary, its build time, and a check for growth.
    BuildTimes(build_times::Arguments),
    /// Everything that can be checked without running it: formatting, tidy, dependencies, clippy, documentation, build size.
    Lint,
    /// The tables of built-in kinds in `simulation/schema`, made again from upstream's material.
    Describe(generate_schema::Arguments),
    /// What reads bytes from outside, under libFuzzer; needs a nightly toolchain and a C++ compiler.
    Fuzz(fuzz::Arguments),
    /// What threads share, under an interpreter that objects to undefined behavior; needs a nightly toolchain.
    Miri(miri::Arguments),
    /// Defects in a copy of the workspace, and the tests that must find each of them.
    Mutants(mutants::Arguments),
    /// The rules that clippy cannot express: module cycles, determinism, links, language.
    Tidy(tidy::Arguments),
    /// What a change must pass: `lint`, then `test`.
    Ci,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Task::ControlPlane(arguments) => control_plane::run(arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Measure(arguments) => measure::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::BuildTimes(arguments) => build_times::run(&arguments),
        Task::Describe(arguments) => generate_schema::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Miri(arguments) => miri::run(&arguments),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Lint => lint::run(),
        Task::Tidy(arguments) => tidy::run_with(&arguments, &workspace::root()),
        Task::Ci => ci::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
