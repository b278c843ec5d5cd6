//! The machine that figures were measured on, in one line.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// What a reader of a figure needs to know of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor, with its family and model where the kernel tells them.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Sizes of the data caches of the first processor, in the kernel's notation, L1 first.
    pub caches: Vec<String>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: String,
    /// Reserved huge pages.
    pub reserved_huge_pages: u64,
    /// Whether lookups compute digests and positions with AVX2.
    pub avx2: bool,
}

impl Machine {
    /// What tells machines apart whose numbers differ: the processor, without family and model, and its data caches.
    pub fn kind(&self) -> String {
        let cpu = self.cpu.split(" (family").next().unwrap_or_default();
        format!("{cpu}, caches {}", self.caches.join(" / "))
    }

    /// Reads it from the kernel; unknown fields are left empty.
    pub fn read() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let of_cpu = |name: &str| {
            let value = cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
            value.map(|value| value.trim().to_owned())
        };
        let name = of_cpu("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        // Names of virtual processors are often those of a whole series: these numbers tell a Zen 4 from a Zen 5.
        let cpu = match (of_cpu("cpu family"), of_cpu("model\t")) {
            (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
            _ => name,
        };
        let meminfo = read("/proc/meminfo");
        let field = |name: &str| {
            let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            rest.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
        };
        let caches = (0..8)
            .map(|i| format!("/sys/devices/system/cpu/cpu0/cache/index{i}"))
            .filter(|dir| read(&format!("{dir}/type")).trim() != "Instruction")
            .map(|dir| read(&format!("{dir}/size")).trim().to_owned())
            .filter(|size| !size.is_empty())
            .collect();
        let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            cpu,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            caches,
            memory_mib: field("MemTotal").unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            transparent_huge_pages: thp.split(['[', ']']).nth(1).unwrap_or("never").to_owned(),
            reserved_huge_pages: field("HugePages_Total").unwrap_or(0),
            #[cfg(target_arch = "x86_64")]
            avx2: std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            avx2: false,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} core{}, caches {}, {:.1} GiB, Linux {}, transparent huge pages: {}, reserved: {}, AVX2: {}",
            self.cpu,
            self.cores,
            if self.cores == 1 { "" } else { "s" },
            self.caches.join(" / "),
            self.memory_mib as f64 / 1024.0,
            self.kernel,
            self.transparent_huge_pages,
            self.reserved_huge_pages,
            if self.avx2 { "yes" } else { "no" },
        )
    }
}

/// Resident memory of this process: now, and its peak since [`PeakMemory::start`].
#[derive(Debug)]
pub struct PeakMemory {
    before_kib: u64,
}

impl PeakMemory {
    /// Starts the measurement: returns freed memory that the allocator holds to the system, and resets the kernel's
    /// high-water mark.
    pub fn start() -> Self {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        #[expect(unsafe_code, reason = "a call into the C library")]
        // SAFETY: it touches nothing that is allocated.
        unsafe {
            libc::malloc_trim(0);
        }
        // Refused on kernels without CONFIG_PROC_PAGE_MONITOR: then the peak is that of the whole process.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self { before_kib: status_kib("VmRSS:") }
    }

    /// The maximum growth of resident memory since the start, in bytes.
    pub fn grown_bytes(&self) -> u64 {
        status_kib("VmHWM:").saturating_sub(self.before_kib) * 1024
    }
}

fn status_kib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    value.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_names_its_processor_and_memory() {
        let machine = Machine::read();
        assert!(!machine.cpu.is_empty() && machine.memory_mib > 0, "{machine}");
    }
}
