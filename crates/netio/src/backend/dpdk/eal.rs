//! DPDK's environment, EAL: one in a process, started before the first port is opened.

use super::sys;
use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Default memory in MiB. With small pages, unused memory is not taken from the machine.
const MEMORY_MIB: u64 = 256;

/// Arguments of EAL that say which memory it takes.
const OF_MEMORY: [&str; 9] = [
    "-m",
    "--no-huge",
    "--in-memory",
    "--huge-dir",
    "--huge-unlink",
    "--socket-mem",
    "--legacy-mem",
    "--single-file-segments",
    "--numa-mem",
];

/// Why DPDK cannot be used in this process.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// EAL does not start.
    #[error(
        "DPDK does not start with {arguments} ({said}{because}); correct its arguments, `dpdk-testpmd ARGUMENTS` tries them. \
         Without huge pages it takes --no-huge -m MIB"
    )]
    Refused {
        /// The arguments that it was given.
        arguments: String,
        /// Its output.
        said: String,
        /// The error number, in words.
        because: String,
    },
    /// An argument with a NUL byte, or no memory for a thread.
    #[error("DPDK cannot be started: {reason}")]
    Start {
        /// Why.
        reason: String,
    },
}

/// What EAL is started with.
#[derive(Debug, Clone, Default)]
pub struct EalOptions {
    /// Arguments as of any DPDK program, behind ours. If they say nothing of memory, it is 256 MiB: on huge pages where so
    /// many are free, else on small ones.
    pub arguments: Vec<String>,
    /// The devices that will be opened. The physical ones among them are all that EAL takes from the kernel.
    pub devices: Vec<String>,
}

/// The environment of this process, running.
#[derive(Debug, Clone, Copy)]
pub struct Eal(());

impl Eal {
    /// Starts the environment, or finds it started, with whatever arguments it was the first time.
    ///
    /// It leaves no file and no directory behind, even when the process is killed: it shares nothing with other processes.
    /// # Errors
    /// [`EalError`], the same at every call: EAL cannot be started twice.
    pub fn start(options: &EalOptions) -> Result<Self, EalError> {
        static STARTED: OnceLock<Result<(), EalError>> = OnceLock::new();
        STARTED.get_or_init(|| start(options)).clone().map(|()| Self(()))
    }
}

fn start(options: &EalOptions) -> Result<(), EalError> {
    let free = free_huge_bytes(Path::new("/sys/kernel/mm/hugepages")) >> 20;
    let arguments = arguments(options, &cpus(), free, std::process::id());
    let text = arguments.join(" ");
    let failed = |reason: String| EalError::Start { reason };
    let arguments = arguments.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    // EAL keeps pointers to them.
    let arguments: &'static [CString] = arguments.map_err(|e| failed(e.to_string()))?.leak();
    // EAL makes the thread that starts it its main one and binds it to processors: ours stays as it is.
    let thread = std::thread::Builder::new().name("dpdk".to_owned()).spawn(|| sys::start(arguments));
    let started =
        thread.map_err(|e| failed(e.to_string()))?.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
    let mut said = sys::said();
    started.map_err(|because| {
        said += if said.is_empty() { "" } else { "; " };
        EalError::Refused { arguments: text, said, because: because.to_string() }
    })
}

/// The arguments, the program's name first. `cpus`: the processors of this process, as `0-3,8`.
fn arguments(options: &EalOptions, cpus: &str, free_huge_mib: u64, pid: u32) -> Vec<String> {
    let mut all: Vec<String> =
        ["fibula", "--no-telemetry", "--no-shconf", "--log-level=warning"].map(str::to_owned).into();
    all.push(format!("--file-prefix=fibula-{pid}"));
    // One thread of EAL's, which does nothing: on any processor, so that none is taken from a worker.
    all.push(format!("--lcores=0@({cpus})"));
    let physical: Vec<&str> = options.devices.iter().map(|device| device.as_str()).filter(|d| is_pci(d)).collect();
    let chosen = options.arguments.iter().any(|a| a == "--no-pci" || a.starts_with("-a") || a.starts_with("--allow"));
    if !chosen {
        match physical.is_empty() {
            true => all.push("--no-pci".to_owned()),
            false => all.extend(physical.iter().map(|device| format!("--allow={device}"))),
        }
    }
    let says_memory = |given: &String| OF_MEMORY.iter().any(|&name| given.starts_with(name));
    if !options.arguments.iter().any(says_memory) {
        match free_huge_mib >= MEMORY_MIB {
            // Pages without files.
            true => all.push("--in-memory".to_owned()),
            false => all.extend(["--no-huge".to_owned(), "-m".to_owned(), MEMORY_MIB.to_string()]),
        }
    }
    all.extend(options.arguments.iter().cloned());
    all
}

/// Whether a device is written as a PCI address: `0000:03:00.0` or `03:00.0`, with or without arguments.
fn is_pci(device: &str) -> bool {
    let address = device.split(',').next().unwrap_or_default();
    let address = address.strip_prefix("pci:").unwrap_or(address);
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_hexdigit());
    let Some((rest, function)) = address.rsplit_once('.') else { return false };
    (2..=3).contains(&rest.split(':').count()) && rest.split(':').all(hex) && hex(function)
}

fn free_huge_bytes(sizes: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(sizes) else { return 0 };
    let bytes = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free: u64 = std::fs::read_to_string(entry.path().join("free_hugepages")).ok()?.trim().parse().ok()?;
        Some(kib * 1024 * free)
    });
    bytes.sum()
}

/// The processors that this process may use, as the kernel lists them.
fn cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(|| "0".to_owned(), |list| list.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str], devices: &[&str]) -> EalOptions {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        EalOptions { arguments: owned(arguments), devices: owned(devices) }
    }

    #[test]
    fn memory_is_on_huge_pages_where_there_are_enough_unless_somebody_says_which() {
        let text = |options: &EalOptions, free| arguments(options, "0-1", free, 7).join(" ");
        assert!(text(&given(&[], &[]), 256).ends_with("--no-pci --in-memory"));
        assert!(text(&given(&[], &[]), 255).ends_with("--no-pci --no-huge -m 256"));
        assert!(text(&given(&["--no-huge", "-m", "64"], &[]), 9999).ends_with("--no-pci --no-huge -m 64"));
        assert!(text(&given(&["--socket-mem=64"], &[]), 0).ends_with("--no-pci --socket-mem=64"));
        assert!(text(&given(&[], &[]), 0).contains("--lcores=0@(0-1)"));
    }

    #[test]
    fn only_the_physical_devices_that_are_ports_are_taken() {
        let devices = ["net_null0", "0000:03:00.0,x=1", "net_af_packet0,iface=eth0.7", "04:00.1"];
        let all = arguments(&given(&[], &devices), "0", 0, 7);
        let allowed: Vec<_> = all.iter().filter(|a| a.starts_with("--allow")).collect();
        assert_eq!(allowed, ["--allow=0000:03:00.0,x=1", "--allow=04:00.1"]);
        assert!(!all.contains(&"--no-pci".to_owned()));
        let own = arguments(&given(&["-a", "0000:05:00.0"], &devices), "0", 0, 7);
        assert!(!own.iter().any(|a| a.starts_with("--allow") || a == "--no-pci"));
    }
}
