//! The saved image: what a switch starts from when no controller answers.
//!
//! Written to another name, synced, then renamed: a crash leaves the old image or the new one. One writer at a time, and
//! one switch a directory. Readable by its owner only, since it holds the hash key.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a switch that was just killed may take to let go of its directory.
const PATIENCE: Duration = Duration::from_secs(1);

/// The image in a state directory. Its clones are the same image.
#[derive(Clone, Debug)]
pub struct SavedImage {
    directory: PathBuf,
    /// Held while the image is written, and locked against other processes for as long as a clone lives.
    writing: Arc<Mutex<File>>,
}

impl SavedImage {
    /// The image in `directory`, which is created if it is missing.
    /// # Errors
    /// When it cannot be; [`ErrorKind::ResourceBusy`] when another switch uses it, and goes on to for `PATIENCE`.
    pub fn new(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(directory.join("lock"))?;
        let began = Instant::now();
        let mut locked = lock.try_lock();
        while matches!(locked, Err(TryLockError::WouldBlock)) && began.elapsed() < PATIENCE {
            #[expect(clippy::disallowed_methods, reason = "a lock of the file system has no wait with a timeout")]
            std::thread::sleep(PATIENCE / 20);
            locked = lock.try_lock();
        }
        match locked {
            Ok(()) => Ok(Self { directory: directory.to_owned(), writing: Arc::new(Mutex::new(lock)) }),
            Err(TryLockError::WouldBlock) => {
                let reason = "another switch uses it; give each its own state_dir, or stop that one first";
                Err(io::Error::new(ErrorKind::ResourceBusy, reason))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Where the image lies.
    pub fn path(&self) -> PathBuf {
        self.directory.join("image")
    }

    /// The bytes last written; none if there are none.
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the image. Cost: two fsyncs.
    /// # Errors
    /// When the disk is full or not writable; the old image is as it was.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_with(|| Some(bytes)).map(drop)
    }

    /// As [`SavedImage::write`], with bytes that are made once no other write is under way; nothing is written without
    /// any. Returns how many were.
    /// # Errors
    /// As there.
    pub fn write_with<B: AsRef<[u8]>>(&self, make: impl FnOnce() -> Option<B>) -> io::Result<Option<usize>> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = make() else { return Ok(None) };
        let bytes = bytes.as_ref();
        let partial = self.directory.join("image.partial");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, self.path())?;
        File::open(&self.directory)?.sync_all()?;
        Ok(Some(bytes.len()))
    }

    /// Puts a damaged image aside as `image.bad`, for whoever wants to know why.
    /// # Errors
    /// When it cannot be renamed.
    pub fn set_aside(&self) -> io::Result<()> {
        std::fs::rename(self.path(), self.directory.join("image.bad"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_the_last_one_written_whole() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(&directory.path().join("a/b")).unwrap();
        assert_eq!(saved.read().unwrap(), None);
        saved.write(&[1; 1000]).unwrap();
        saved.write(b"second").unwrap();
        assert_eq!(saved.read().unwrap().unwrap(), b"second");
        // What a crash in the middle of a write leaves behind is not read.
        std::fs::write(saved.path().with_extension("partial"), b"thi").unwrap();
        assert_eq!(saved.read().unwrap().unwrap(), b"second");
        saved.write(b"third").unwrap();
        assert_eq!(saved.read().unwrap().unwrap(), b"third");
    }
    #[test]
    fn writes_at_the_same_time_leave_one_of_them_whole() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(directory.path()).unwrap();
        let images: Vec<Vec<u8>> = (1..=4).map(|i| vec![i as u8; i * 50_000]).collect();
        std::thread::scope(|scope| {
            for image in &images {
                let saved = saved.clone();
                scope.spawn(move || (0..20).for_each(|_| saved.write(image).unwrap()));
            }
        });
        assert!(images.contains(&saved.read().unwrap().unwrap()));
        assert_eq!(saved.write_with(|| None::<Vec<u8>>).unwrap(), None);
    }

    #[test]
    fn one_switch_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let first = SavedImage::new(directory.path()).unwrap();
        let second = SavedImage::new(directory.path()).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::ResourceBusy, "{second}");
        drop(first);
        SavedImage::new(directory.path()).unwrap();
    }
}
