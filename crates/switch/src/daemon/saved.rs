//! The saved image: what a switch starts from when no controller answers.
//!
//! Written to another name, synced, then renamed: a crash leaves the old image or the new one. Readable by its owner
//! only, since it holds the hash key.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The image in a state directory.
#[derive(Clone, Debug)]
pub struct SavedImage {
    directory: PathBuf,
}

impl SavedImage {
    /// The image in `directory`, which is created if it is missing.
    /// # Errors
    /// When it cannot be.
    pub fn new(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.to_owned() })
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
        let partial = self.directory.join("image.partial");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, self.path())?;
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
}
