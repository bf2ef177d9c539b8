//! Process metrics from the kernel, read from `/proc` when metrics are gathered.
//!
//! On systems without `/proc` the families have no values instead of zeros.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::families::Families;
use crate::names;

/// The required fields of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: i64,
    start_ticks: u64,
    virtual_bytes: i64,
    resident_pages: i64,
}

/// Reads the values from the kernel. A value that cannot be read is unchanged.
pub(crate) fn refresh(families: &Families) {
    if let Some(stat) = read("/proc/self/stat").as_deref().and_then(Stat::parse) {
        show(families, &stat);
    }
    let set = |family, value: Option<i64>| families.gauge(family, &[]).set(value.unwrap_or(i64::MAX));
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        // Reading the directory itself opens one descriptor.
        set(&names::PROCESS_OPEN_FDS, i64::try_from(descriptors.count().saturating_sub(1)).ok());
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        set(&names::PROCESS_MAX_FDS, i64::try_from(limit).ok());
    }
}

fn show(families: &Families, stat: &Stat) {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let page = i64::try_from(rustix::param::page_size()).unwrap_or(i64::MAX);
    let cpu = families.float_counter(&names::PROCESS_CPU);
    // Concurrent gathers can read in one order and write in the other; the counter must not decrease.
    cpu.inc_by((stat.cpu_ticks as f64 / ticks_per_second - cpu.get()).max(0.0));
    families.gauge(&names::PROCESS_THREADS, &[]).set(stat.threads);
    families.gauge(&names::PROCESS_VIRTUAL, &[]).set(stat.virtual_bytes);
    families.gauge(&names::PROCESS_RESIDENT, &[]).set(stat.resident_pages.saturating_mul(page));
    if let Some(boot) = read("/proc/stat").as_deref().and_then(boot_seconds) {
        let started = boot as f64 + stat.start_ticks as f64 / ticks_per_second;
        families.float_gauge(&names::PROCESS_START, &[]).set(started);
    }
}

impl Stat {
    /// Parses a line as described in proc(5). The second field is the command in parentheses and can contain any
    /// character, including parentheses and spaces, so parsing starts after the last closing parenthesis.
    fn parse(line: &str) -> Option<Stat> {
        let fields: Vec<&str> = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        // proc(5) numbers fields from 1, and the first field after the command is number 3.
        let field = |number: usize| fields.get(number - 3).copied();
        let (user, system): (u64, u64) = (field(14)?.parse().ok()?, field(15)?.parse().ok()?);
        Some(Stat {
            cpu_ticks: user + system,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            virtual_bytes: field(23)?.parse().ok()?,
            resident_pages: field(24)?.parse().ok()?,
        })
    }
}

/// Returns the boot time of the machine in seconds since the Unix epoch, from `/proc/stat`.
fn boot_seconds(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_fields_are_parsed_for_command_with_parentheses() {
        let line = "7 (a ) b) S 1 7 7 0 -1 4194304 9 0 0 0 120 34 0 0 20 0 5 0 9000 123456 789 0 0";
        let stat = Stat {
            cpu_ticks: 154,
            threads: 5,
            start_ticks: 9000,
            virtual_bytes: 123_456,
            resident_pages: 789,
        };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn boot_time_is_parsed_from_proc_stat() {
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000));
        assert_eq!(boot_seconds("cpu 1 2\n"), None);
    }
}
