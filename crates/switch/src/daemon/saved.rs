//! The saved image: what a switch starts from when no controller answers.
//!
//! Written to another name, synced, then renamed: a crash leaves the old image or the new one. One writer at a time, and
//! one switch a directory. Readable by its owner only, since it holds the hash key.

use fib::replica::Checksum;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
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
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.open_partial()?;
        file.write_all(bytes)?;
        self.put_in_place(&file)
    }

    /// As [`SavedImage::write`], with pieces that `make` hands over once no other write is under way, and their
    /// [`Checksum`] after them. Nothing is written if there is no piece. Returns the number of bytes.
    ///
    /// A piece is written while the next ones are made, so that few of them are in memory. `make` never waits for the
    /// disk: if that is slow, pieces wait in memory.
    /// # Errors
    /// As there.
    pub fn write_pieces(&self, make: impl FnOnce(&mut dyn FnMut(Vec<u8>))) -> io::Result<Option<u64>> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, pieces) = mpsc::channel();
        std::thread::scope(|scope| {
            let writer = std::thread::Builder::new().name("save".to_owned());
            let writer = writer.spawn_scoped(scope, move || self.write_received(pieces))?;
            // If the writer has ended, its error is the result.
            make(&mut |piece| _ = made.send(piece));
            drop(made);
            writer.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes the image panicked")))
        })
    }

    fn write_received(&self, pieces: mpsc::Receiver<Vec<u8>>) -> io::Result<Option<u64>> {
        let Ok(first) = pieces.recv() else { return Ok(None) };
        let mut file = self.open_partial()?;
        let mut n_bytes = 0;
        for piece in std::iter::once(first).chain(pieces) {
            file.write_all(&piece)?;
            n_bytes += piece.len() as u64;
        }
        file.rewind()?;
        let (mut checksum, mut buffer) = (Checksum::new(n_bytes), vec![0; 64 << 10]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => checksum.push(&buffer[..n]),
            }
        }
        file.write_all(&checksum.finish())?;
        self.put_in_place(&file)?;
        Ok(Some(n_bytes + 8))
    }

    fn partial(&self) -> PathBuf {
        self.directory.join("image.partial")
    }

    fn open_partial(&self) -> io::Result<File> {
        OpenOptions::new().create(true).read(true).write(true).truncate(true).mode(0o600).open(self.partial())
    }

    fn put_in_place(&self, written: &File) -> io::Result<()> {
        written.sync_all()?;
        std::fs::rename(self.partial(), self.path())?;
        File::open(&self.directory)?.sync_all()
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
    fn pieces_are_written_in_order_with_their_checksum() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(directory.path()).unwrap();
        let pieces: Vec<Vec<u8>> = (0..300usize).map(|i| vec![i as u8; i * i % 5000]).collect();
        let n_bytes = saved.write_pieces(|put| pieces.iter().cloned().for_each(put)).unwrap().unwrap();
        let image = saved.read().unwrap().unwrap();
        let (content, end) = image.split_at(image.len() - 8);
        let mut checksum = Checksum::new(content.len() as u64);
        checksum.push(content);
        assert_eq!((content, end, image.len() as u64), (&pieces.concat()[..], &checksum.finish()[..], n_bytes));
        assert_eq!(saved.write_pieces(|_| ()).unwrap(), None);
        assert_eq!(saved.read().unwrap().unwrap(), image, "without a piece nothing is written");
    }

    #[test]
    fn an_image_that_cannot_be_written_leaves_the_old_one_and_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let saved = SavedImage::new(directory.path()).unwrap();
        saved.write(b"old").unwrap();
        std::fs::create_dir(saved.partial()).unwrap();
        let error = saved.write_pieces(|put| (0..1000).for_each(|_| put(vec![1; 10_000]))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory, "{error}");
        assert_eq!(saved.read().unwrap().unwrap(), b"old");
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
