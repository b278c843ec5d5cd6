//! Common parts of the commands of `fibula` and `fibula-lab`.
//!
//! A command is a clap `Args` or `Subcommand` type that has `run(self, &Output) -> anyhow::Result<()>`. Results go to
//! standard output through [`output::Output`] (a table, or one JSON object per row with `-j`); logs, progress and errors go
//! to standard error. The exit code says what kind of failure it was: see [`output::Exit`].

pub mod log;
pub mod order;
pub mod output;
pub mod program;
pub mod tree;
pub mod units;
pub use lookup::base::visible;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use output::{Exit, Failure};

/// Opens a file to read.
/// # Errors
/// [`Exit::NotFound`], [`Exit::Refused`] for one that may not be read, [`Exit::BadInput`] for a directory.
pub fn open(path: &Path) -> anyhow::Result<File> {
    let cannot = |error: io::Error| {
        let exit = if error.kind() == ErrorKind::PermissionDenied { Exit::Refused } else { Exit::NotFound };
        Failure::new(exit, format!("{} cannot be read: {error}", path.display()))
    };
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Failure::new(Exit::BadInput, format!("{} is a directory; name a file", path.display())));
    }
    Ok(file)
}

/// Opens a file to read; `-` is standard input.
/// # Errors
/// Those of [`open`].
pub fn input(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" { Ok(Box::new(io::stdin())) } else { Ok(Box::new(open(path)?)) }
}

/// Maximum bytes of an image to read: no table is that large.
const MAX_IMAGE_BYTES: u64 = 1 << 33;

/// Reads a file that begins with `magic`; `-` is standard input. If a file begins otherwise, only its first bytes are
/// read: the decoder reports what is wrong, and a device or a huge file of another kind is not read to its end.
/// # Errors
/// Those of [`open`], and [`Exit::Internal`] when reading fails.
pub fn read_image(path: &Path, magic: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut file = input(path)?;
    let cannot = |error: io::Error| Failure::new(Exit::Internal, format!("{} cannot be read: {error}", path.display()));
    let mut bytes = Vec::new();
    file.by_ref().take(magic.len() as u64).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes == magic {
        file.take(MAX_IMAGE_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    }
    Ok(bytes)
}

/// Parses a number with an optional suffix K, M or G, for 2^10, 2^20 or 2^30.
/// # Errors
/// A text for the user.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size: write 1000, 64K or 16M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_of_another_kind_is_not_read_to_its_end() {
        let zero = Path::new("/dev/zero");
        assert_eq!(read_image(zero, b"magic").unwrap(), [0; 5]);
    }

    #[test]
    fn sizes_take_suffixes_for_powers_of_two() {
        assert_eq!(parse_size("64K"), Ok(65_536));
        assert_eq!(parse_size("16m"), Ok(16 << 20));
        assert_eq!(parse_size("1000"), Ok(1000));
        for wrong in ["", "K", "1.5M", "-1", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
