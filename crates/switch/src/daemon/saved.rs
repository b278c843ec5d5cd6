//! The saved image: what a switch starts from when no controller answers.
//!
//! Written to another name, synced, then renamed: a crash leaves the old image or the new one. One writer at a time, and
//! one switch a directory. Readable by its owner only, since it holds the hash key.
//!
//! A [`Saver`] writes it after changes settle. While it is made, messages wait for the replica: a million names take a tenth of a
//! second, and much longer where many switches share a processor. So a save gives way to a message, and is made when changes
//! have settled again, but not beyond the time at which it is due in any case. A save that fails is tried again until it succeeds, after 1 s at first, then
//! after twice the time, up to 60 s, whether anything changes or not.

use super::agent::Shared;
use api::clock;
use api::crash::step;
use api::seam::{Mistake, mistaken};
use fib::replica::{Checksum, Tables};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// How long a switch that was just killed may take to let go of its directory.
const PATIENCE: Duration = Duration::from_secs(1);

/// The image is saved when nothing changed for this long.
const SETTLED: Duration = Duration::from_secs(1);
/// The image is saved when the first unsaved change is this old.
const UNSAVED_AT_MOST: Duration = Duration::from_secs(10);

/// How long after a failed save the next is tried: at first, and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

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

    /// The image last written, to be read; none if there is none.
    /// # Errors
    /// When the file is there and cannot be opened.
    pub fn open(&self) -> io::Result<Option<File>> {
        match File::open(self.path()) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the image. Cost: two fsyncs.
    /// # Errors
    /// When the disk is full or not writable; the old image is as it was.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.open_partial()?;
        file.write_all(bytes)?;
        self.put_in_place(&file)
    }

    /// As [`SavedImage::write`], with pieces that `make` hands over once no other write is under way, and their
    /// [`Checksum`] after them. Nothing is written if there is no piece, or if `make` says that these are not all.
    ///
    /// A piece is written while the next ones are made, so that few of them are in memory. `make` never waits for the
    /// disk: if that is slow, pieces wait in memory.
    /// # Errors
    /// As there.
    pub fn write_pieces(&self, make: impl FnOnce(&mut dyn FnMut(Vec<u8>)) -> bool) -> io::Result<Written> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, pieces) = mpsc::channel();
        let is_whole = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = std::thread::Builder::new().name("save".to_owned());
            let whole = &is_whole;
            let writer = writer.spawn_scoped(scope, move || self.write_received(pieces, whole))?;
            // If the writer has ended, its error is the result.
            is_whole.store(make(&mut |piece| _ = made.send(piece)), Release);
            drop(made);
            writer.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes the image panicked")))
        })
    }

    fn write_received(&self, pieces: mpsc::Receiver<Vec<u8>>, is_whole: &AtomicBool) -> io::Result<Written> {
        let Ok(first) = pieces.recv() else { return Ok(Written::Nothing) };
        let mut file = self.open_partial()?;
        let mut n_bytes = 0;
        for piece in std::iter::once(first).chain(pieces) {
            step("image.write", || file.write_all(&piece))?;
            n_bytes += piece.len() as u64;
        }
        if !is_whole.load(Acquire) {
            return Ok(Written::GaveWay);
        }
        file.rewind()?;
        let (mut checksum, mut buffer) = (Checksum::new(n_bytes), vec![0; 64 << 10]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => checksum.push(&buffer[..n]),
            }
        }
        step("image.checksum.write", || file.write_all(&checksum.finish()))?;
        self.put_in_place(&file)?;
        Ok(Written::Bytes(n_bytes + 8))
    }

    fn partial(&self) -> PathBuf {
        if mistaken(Mistake::ImageInPlace) { self.path() } else { self.directory.join("image.partial") }
    }

    fn open_partial(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).truncate(true).mode(0o600);
        step("image.create", || options.open(self.partial()))
    }

    fn put_in_place(&self, written: &File) -> io::Result<()> {
        step("image.sync", || written.sync_all())?;
        if mistaken(Mistake::ImageNotReplaced) && self.path().exists() {
            return Ok(());
        }
        step("image.rename", || std::fs::rename(self.partial(), self.path()))?;
        step("image.directory.sync", || File::open(&self.directory)?.sync_all())
    }

    /// Puts a damaged image aside as `image.bad`, for anyone who wants to know why.
    /// # Errors
    /// When it cannot be renamed.
    pub fn set_aside(&self) -> io::Result<()> {
        step("image.set-aside", || std::fs::rename(self.path(), self.directory.join("image.bad")))
    }
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// Nothing: there was no piece.
    Nothing,
    /// Nothing that counts: the pieces were not all.
    GaveWay,
    /// So many bytes.
    Bytes(u64),
}

/// What becomes of a save.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Save {
    /// Nothing is left to save.
    Done,
    /// It gave way to a message.
    GaveWay,
    /// It failed.
    Failed,
}

/// What became of the saves.
#[derive(Clone, Debug, Default)]
pub struct SaveStatus {
    /// Saves that succeeded.
    pub saves: u64,
    /// Saves that failed.
    pub failures: u64,
    /// Saves that failed since the last one that succeeded: the file is that much behind what is served.
    pub failures_in_a_row: u32,
    /// Why the last one failed; empty after one that succeeded.
    pub last_error: String,
    /// When the image was last saved by this process.
    pub saved_at: Option<SystemTime>,
}

/// Saves what a switch serves. Its clones are the same saver.
#[derive(Clone, Debug)]
pub struct Saver {
    image: SavedImage,
    status: Arc<Mutex<SaveStatus>>,
}

impl Saver {
    /// A saver of this image.
    pub fn new(image: SavedImage) -> Self {
        Self { image, status: Arc::default() }
    }

    /// What became of the saves so far.
    pub fn status(&self) -> SaveStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, SaveStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves if something changed since the last save that succeeded; gives way to messages if it `may`.
    pub fn save<T: Tables>(&self, shared: &Shared<T>, may_give_way: bool) -> Save {
        let gives_way = || may_give_way && shared.is_awaited();
        let written = self
            .image
            .write_pieces(|put| shared.take_unsaved(|replica| replica.save_pieces(put, &gives_way)).unwrap_or(true));
        let mut status = self.lock();
        match written {
            Ok(Written::Nothing) => Save::Done,
            Ok(Written::GaveWay) => {
                shared.keep_unsaved();
                Save::GaveWay
            }
            Ok(Written::Bytes(bytes)) => {
                status.saves += 1;
                status.saved_at = Some(clock::now());
                if std::mem::take(&mut status.failures_in_a_row) > 0 {
                    tracing::info!(path = %self.image.path().display(), bytes, "the image is saved again");
                }
                status.last_error.clear();
                Save::Done
            }
            Err(error) => {
                shared.keep_unsaved();
                status.failures += 1;
                status.failures_in_a_row += 1;
                status.last_error = error.to_string();
                let retry_in = retry_after(status.failures_in_a_row);
                tracing::error!(path = %self.image.path().display(), %error, ?retry_in, "the image cannot be saved; the old file is kept, and the save is tried again; make room, or make sure that the directory is writable");
                Save::Failed
            }
        }
    }

    /// Saves after changes, as long as `changes` has a sender.
    pub async fn run<T: Tables + 'static>(self, shared: Arc<Shared<T>>, mut changes: watch::Receiver<u64>)
    where
        Shared<T>: Send + Sync,
    {
        while changes.changed().await.is_ok() {
            let first = Instant::now();
            let mut waits = true;
            loop {
                while waits
                    && first.elapsed() < UNSAVED_AT_MOST
                    && tokio::time::timeout(SETTLED, changes.changed()).await.is_ok()
                {}
                match self.save_aside(&shared, first.elapsed() < UNSAVED_AT_MOST).await {
                    Save::Done => break,
                    Save::GaveWay => waits = true,
                    Save::Failed => {
                        waits = false;
                        let pause = retry_after(self.lock().failures_in_a_row);
                        #[expect(clippy::disallowed_methods, reason = "the pause before the next attempt to save")]
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        }
    }

    /// Saves where it does not hold up other tasks.
    async fn save_aside<T: Tables + 'static>(&self, shared: &Arc<Shared<T>>, may_give_way: bool) -> Save
    where
        Shared<T>: Send + Sync,
    {
        let (saver, shared) = (self.clone(), Arc::clone(shared));
        tokio::task::spawn_blocking(move || saver.save(&shared, may_give_way)).await.unwrap_or(Save::Done)
    }
}

fn retry_after(failures_in_a_row: u32) -> Duration {
    (FIRST_RETRY * 2_u32.saturating_pow(failures_in_a_row.saturating_sub(1))).min(LAST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::replica::{Limits, MemoryTables, Replica};

    fn bytes_of(saved: &SavedImage) -> Vec<u8> {
        let mut bytes = Vec::new();
        saved.open().unwrap().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn pauses_between_attempts_double_up_to_a_minute() {
        let pauses = [1, 2, 3, 6, 7, 8, 64, u32::MAX].map(|n| retry_after(n).as_secs());
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_save_is_tried_again_without_another_change() {
        let directory = tempfile::tempdir().unwrap();
        let image = SavedImage::new(directory.path()).unwrap();
        // Not even root can write a file where a directory is.
        let obstacle = directory.path().join("image.partial");
        std::fs::create_dir(&obstacle).unwrap();
        let shared = Shared::new(Replica::new(Limits::default(), MemoryTables::default()));
        let saver = Saver::new(image.clone());
        let running = tokio::spawn(saver.clone().run(Arc::clone(&shared), shared.changes()));
        tokio::task::yield_now().await;
        shared.changed();
        let until = async |reached: &dyn Fn(&SaveStatus) -> bool| {
            while !reached(&saver.status()) {
                tokio::time::advance(Duration::from_millis(500)).await;
            }
        };
        until(&|status| status.failures_in_a_row >= 3).await;
        assert!(image.open().unwrap().is_none() && !saver.status().last_error.is_empty());
        std::fs::remove_dir(&obstacle).unwrap();
        until(&|status| status.saves == 1).await;
        let SaveStatus { failures, failures_in_a_row, last_error, saved_at, .. } = saver.status();
        assert!(failures >= 3 && failures_in_a_row == 0 && last_error.is_empty() && saved_at.is_some());
        let mut file = image.open().unwrap().unwrap();
        Replica::read(Limits::default(), MemoryTables::default(), &mut file).unwrap();
        running.abort();
    }

    #[test]
    fn image_is_the_last_one_written_whole() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(&directory.path().join("a/b")).unwrap();
        assert!(saved.open().unwrap().is_none());
        saved.write(&[1; 1000]).unwrap();
        saved.write(b"second").unwrap();
        assert_eq!(bytes_of(&saved), b"second");
        // What a crash in the middle of a write leaves behind is not read.
        std::fs::write(saved.path().with_extension("partial"), b"thi").unwrap();
        assert_eq!(bytes_of(&saved), b"second");
        saved.write(b"third").unwrap();
        assert_eq!(bytes_of(&saved), b"third");
    }

    #[test]
    fn pieces_are_written_in_order_with_their_checksum() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(directory.path()).unwrap();
        let pieces: Vec<Vec<u8>> = (0..300usize).map(|i| vec![i as u8; i * i % 5000]).collect();
        let put_all = |is_whole| {
            let written = saved.write_pieces(|put| {
                pieces.iter().cloned().for_each(put);
                is_whole
            });
            written.unwrap()
        };
        let Written::Bytes(n_bytes) = put_all(true) else { panic!("all are written") };
        let image = bytes_of(&saved);
        let (content, end) = image.split_at(image.len() - 8);
        let mut checksum = Checksum::new(content.len() as u64);
        checksum.push(content);
        assert_eq!((content, end, image.len() as u64), (&pieces.concat()[..], &checksum.finish()[..], n_bytes));
        assert_eq!(saved.write_pieces(|_| true).unwrap(), Written::Nothing);
        assert_eq!(put_all(false), Written::GaveWay);
        assert_eq!(bytes_of(&saved), image, "without a piece nothing is written");
    }

    #[test]
    fn an_image_that_cannot_be_written_leaves_the_old_one_and_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(directory.path()).unwrap();
        saved.write(b"old").unwrap();
        std::fs::create_dir(saved.partial()).unwrap();
        let error = saved.write_pieces(|put| {
            (0..1000).for_each(|_| put(vec![1; 10_000]));
            true
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory, "{error}");
        assert_eq!(bytes_of(&saved), b"old");
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
        assert!(images.contains(&bytes_of(&saved)));
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
