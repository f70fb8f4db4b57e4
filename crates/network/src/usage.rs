//! What a process has used, as the kernel counts it.

use std::fs;
use std::io;
use std::time::Duration;

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time, of all threads, in user and kernel mode.
    pub cpu: Duration,
    /// That of a replica's loop alone; zero where there is none.
    pub loop_cpu: Duration,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}

impl Usage {
    /// Resident memory in MiB.
    #[must_use]
    pub fn rss_mb(&self) -> f64 {
        self.rss_bytes as f64 / f64::from(1 << 20)
    }
}

/// What process `pid` has used until now.
///
/// # Errors
/// When the process is gone, or the system keeps no `/proc`.
pub fn of_process(pid: u32) -> io::Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss_kib = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok()
        })
        .ok_or_else(|| unreadable("VmRSS"))?;
    let rss_kib: u64 = rss_kib;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let loop_cpu = of_threads(pid, |name| name.ends_with(LOOP))?;
    Ok(Usage { cpu: cpu_of_stat(&stat)?, loop_cpu, rss_bytes: rss_kib << 10 })
}

/// How the name of a replica's loop ends.
const LOOP: &str = "-loop";

/// Processor time of the threads of process `pid` with such names.
fn of_threads(pid: u32, is_one: impl Fn(&str) -> bool) -> io::Result<Duration> {
    let mut cpu = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // A thread may end while we look.
        let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
        if is_one(read("comm").trim_end()) {
            cpu += cpu_of_stat(&read("stat")).unwrap_or_default();
        }
    }
    Ok(cpu)
}

/// What the threads of this process whose names begin with `prefix` have used until now; the memory
/// is that of the whole process.
///
/// # Errors
/// When the system keeps no `/proc`.
pub fn of_own_threads(prefix: &str) -> io::Result<Usage> {
    let pid = std::process::id();
    let cpu = of_threads(pid, |name| name.starts_with(prefix))?;
    let loop_cpu = of_threads(pid, |name| name.starts_with(prefix) && name.ends_with(LOOP))?;
    Ok(Usage { cpu, loop_cpu, ..of_process(pid)? })
}

/// User and kernel time out of a line of `/proc/PID/stat`. The second field, the program's name,
/// may hold anything, so fields are counted from its closing parenthesis.
fn cpu_of_stat(stat: &str) -> io::Result<Duration> {
    let (_, fields) = stat.rsplit_once(')').ok_or_else(|| unreadable("stat"))?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
    let (Some(user), Some(system)) = (ticks(11), ticks(12)) else {
        return Err(unreadable("stat"));
    };
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64((user + system) as f64 / per_second as f64))
}

fn unreadable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} of a process is not as expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_use_grows() {
        let pid = std::process::id();
        let before = of_process(pid).unwrap();
        assert!(before.rss_bytes > 1 << 20, "{before:?}");
        let start = crate::thread_cpu();
        let mut x = 0u64;
        while crate::thread_cpu() - start < Duration::from_millis(50) {
            x = std::hint::black_box(x + 1);
        }
        let after = of_process(pid).unwrap();
        assert!(after.cpu - before.cpu >= Duration::from_millis(30), "{before:?} {after:?}");
    }

    #[test]
    fn a_loop_is_told_from_other_threads() {
        use std::sync::mpsc::channel;
        let (burnt, ends) = channel();
        let threads: Vec<_> = [("used-7-loop", 80), ("used-7-verify-0", 40)]
            .into_iter()
            .map(|(name, ms)| {
                let ((release, released), burnt) = (channel::<()>(), burnt.clone());
                let run = move || {
                    let start = crate::thread_cpu();
                    while crate::thread_cpu() - start < Duration::from_millis(ms) {
                        std::hint::spin_loop();
                    }
                    burnt.send(()).unwrap();
                    // It counts as long as it is there.
                    let _ = released.recv();
                };
                let thread = std::thread::Builder::new().name(name.into()).spawn(run).unwrap();
                (thread, release)
            })
            .collect();
        (0..2).for_each(|_| ends.recv().unwrap());
        let used = of_own_threads("used-7-").unwrap();
        // The kernel counts in ticks.
        let ms = Duration::from_millis;
        assert!(used.loop_cpu >= ms(50), "{used:?}");
        assert!(used.cpu - used.loop_cpu >= ms(20) && used.loop_cpu < used.cpu, "{used:?}");
        assert_eq!(of_own_threads("used-8-").unwrap().loop_cpu, Duration::ZERO);
        for (thread, release) in threads {
            drop(release);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let line = "7 (a ) b) S 1 1 1 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 5 1 1";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_of_stat(line).unwrap().as_secs_f64(), 200.0 / ticks);
        assert!(cpu_of_stat("7 (x) S 1").is_err());
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(of_process(u32::MAX >> 1).is_err());
    }
}
