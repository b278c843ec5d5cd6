//! The table of a running switch in a file, for other programs to map: `share = "PATH"`.
//!
//! The workers look names up in the same memory; there is one copy. A table that the switch makes anew is another file,
//! which takes the place of the one before when it is complete. The file stays when the switch ends: readers have its
//! last table until another switch shows one there. The bytes: `docs/formats/table-in-memory.md`.

use fib::action::Action;
use fib::designs::{Spec, Table};
use lookup::base::arena::Arena;
use lookup::traits::ShareError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Who may read it: it has the hash key, by which names can be chosen that a table holds badly.
const MODE: u32 = 0o640;

/// Where a switch shows its table, and how that went.
#[derive(Debug)]
pub struct Share {
    path: PathBuf,
    error: Option<String>,
    /// Whether a table of this switch is there.
    is_shown: bool,
}

impl Share {
    /// A switch that will show its table at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self { path, error: None, is_shown: false }
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the present table can be read there.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Why it cannot.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Shows a table that has no reader yet, instead of the one before. Forwarding does not depend on it: what goes wrong
    /// is logged, and said by the status.
    pub fn show(&mut self, spec: &Spec, actions: &[Action], fib: &mut dyn Table) {
        let shown = self.move_table(spec, actions, fib);
        self.note(shown.map_err(|error| format!("design {}: {error}", spec.design.name)));
    }

    /// Tells other programs that values mean something else now, if they can read the table.
    pub fn show_actions(&mut self, actions: &[Action], fib: &mut dyn Table) {
        if self.is_shown {
            self.note(fib.tell_actions(actions).map_err(|error| error.to_string()));
        }
    }

    fn note(&mut self, shown: Result<(), String>) {
        self.is_shown = shown.is_ok();
        self.error = shown.err();
        if let Some(error) = &self.error {
            tracing::error!(path = %self.path.display(), "other programs cannot read the table: {error}; forwarding goes on");
            // Rather none than one that is old.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn move_table(&self, spec: &Spec, actions: &[Action], fib: &mut dyn Table) -> Result<(), ShareError> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let shared = fib
            .share(spec, this_process()?, &mut |bytes| Arena::on_file(create(&new)?, bytes))
            .and_then(|()| Ok(fib.tell_actions(actions)?))
            .and_then(|()| Ok(fs::rename(&new, &self.path)?));
        if shared.is_err() {
            let _ = fs::remove_file(&new);
        }
        shared
    }
}

fn create(path: &Path) -> io::Result<File> {
    // What a switch that was killed left there.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path)
}

/// This process, and when it started, in clock ticks since the machine did.
fn this_process() -> io::Result<[u64; 2]> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may have spaces; the start is the 22nd field.
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
    let start = start.ok_or_else(|| io::Error::other("/proc/self/stat has no start time"))?;
    Ok([std::process::id().into(), start])
}
