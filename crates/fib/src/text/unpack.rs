//! Inputs that may be packed with gzip or bzip2, which their first bytes tell.

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use std::io::{self, Cursor, Error, ErrorKind, Read};

/// The first bytes of an input, and their meaning.
const MAGICS: [(&[u8], Packed); 7] = [
    (&[0x1f, 0x8b], Packed::Gzip),
    (b"BZh", Packed::Bzip2),
    (&[b'P', b'K', 3, 4], Packed::Refused("this is a zip archive; unpack it first")),
    (&[0x28, 0xb5, 0x2f, 0xfd], Packed::Refused("this is packed with zstd; unpack it first")),
    (&[0xfd, b'7', b'z', b'X', b'Z'], Packed::Refused("this is packed with xz; unpack it first")),
    (&[0xff, 0xfe], Packed::Refused("this is UTF-16; save it as UTF-8")),
    (&[0xfe, 0xff], Packed::Refused("this is UTF-16; save it as UTF-8")),
];

#[derive(Clone, Copy)]
enum Packed {
    Gzip,
    Bzip2,
    Refused(&'static str),
}

/// What is in an input that may be packed with gzip or bzip2. Reads its first bytes, one after the other, and none more than it takes
/// to know.
/// # Errors
/// Those of the input, and [`ErrorKind::InvalidData`] for one that is packed in another way, or is UTF-16.
pub fn unpacked<'a>(mut input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::new();
    let magic = loop {
        let mut possible = MAGICS.iter().filter(|(magic, _)| magic.starts_with(&start));
        match possible.next() {
            None => break None,
            Some((magic, packed)) if *magic == start => break Some(packed),
            Some(_) => {}
        }
        if input.by_ref().take(1).read_to_end(&mut start)? == 0 {
            break None;
        }
    };
    let whole = Cursor::new(start).chain(input);
    match magic {
        None => Ok(Box::new(whole)),
        Some(Packed::Gzip) => Ok(Box::new(Unpacking { inner: MultiGzDecoder::new(whole) })),
        Some(Packed::Bzip2) => Ok(Box::new(Unpacking { inner: MultiBzDecoder::new(whole) })),
        Some(Packed::Refused(why)) => Err(Error::new(ErrorKind::InvalidData, *why)),
    }
}

/// Explains errors in terms of the file.
struct Unpacking<R> {
    inner: R,
}

impl<R: Read> Read for Unpacking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                Error::new(ErrorKind::UnexpectedEof, "the packed file ends too early; was its transfer cut short?")
            }
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                Error::new(ErrorKind::InvalidData, format!("the packed file is damaged ({error})"))
            }
            _ => error,
        })
    }
}

/// An input that ends with an error where it has more than `max` bytes: of a small packed file anything may come.
pub fn bounded(input: impl Read, max: u64) -> impl Read {
    Bounded { inner: input.take(max + 1), max }
}

struct Bounded<R> {
    inner: io::Take<R>,
    max: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        if self.inner.limit() == 0 {
            return Err(Error::new(ErrorKind::InvalidData, format!("this has more than {} bytes", self.max)));
        }
        Ok(n)
    }
}
