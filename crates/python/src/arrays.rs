//! numpy arrays as slices, and the names in them: bytes one after the other, of one width or with the places where each
//! begins.

use ::fib::name::{Name, NameKind};
use lookup::hash::{Digest, Hasher};
use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fmt::Display;

/// A value that does not do, with the reason.
pub(crate) fn value_error(reason: impl Display) -> PyErr {
    PyValueError::new_err(reason.to_string())
}

/// Parses a text of a user.
pub(crate) fn parsed<T>(text: &str) -> PyResult<T>
where
    T: std::str::FromStr<Err: Display>,
{
    text.parse().map_err(value_error)
}

/// Borrows an array to read it.
pub(crate) fn reading<'py, T: Element>(array: &Bound<'py, PyArray1<T>>) -> PyResult<PyReadonlyArray1<'py, T>> {
    array.try_readonly().map_err(|_| value_error("another thread writes to this array"))
}

/// Borrows an array to write to it.
pub(crate) fn writing<'py, T: Element>(array: &Bound<'py, PyArray1<T>>) -> PyResult<PyReadwriteArray1<'py, T>> {
    array.try_readwrite().map_err(|_| value_error("`out` is read-only, or another thread uses it, or it is the names"))
}

/// The elements, which Python has made contiguous.
pub(crate) fn elements<'a, T: Element>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| PyTypeError::new_err("an array whose elements follow one another is needed"))
}

/// As [`elements`], to write to.
pub(crate) fn places<'a, T: Element>(array: &'a mut PyReadwriteArray1<'_, T>) -> PyResult<&'a mut [T]> {
    array.as_slice_mut().map_err(|_| PyTypeError::new_err("an array whose elements follow one another is needed"))
}

/// Names as Python hands them over: bytes, bytes of a name, and the places where names begin if they differ in length.
/// The last place is the end of the last name.
#[derive(FromPyObject)]
pub(crate) struct NamesArg<'py>(Bound<'py, PyArray1<u8>>, usize, Option<Bound<'py, PyArray1<u64>>>);

/// The same, borrowed.
pub(crate) struct Borrowed<'py> {
    bytes: PyReadonlyArray1<'py, u8>,
    width: usize,
    starts: Option<PyReadonlyArray1<'py, u64>>,
}

impl<'py> NamesArg<'py> {
    pub(crate) fn borrow(&self) -> PyResult<Borrowed<'py>> {
        let starts = self.2.as_ref().map(reading).transpose()?;
        Ok(Borrowed { bytes: reading(&self.0)?, width: self.1, starts })
    }
}

impl Borrowed<'_> {
    /// The names, if they are of this kind as far as their lengths say.
    pub(crate) fn packed(&self, kind: NameKind) -> PyResult<Packed<'_>> {
        let bytes = elements(&self.bytes)?;
        let starts = self.starts.as_ref().map(elements).transpose()?;
        let packed = match starts {
            None if self.width == 0 || bytes.len() % self.width != 0 => {
                return Err(value_error(format!("{} bytes are not names of {} bytes", bytes.len(), self.width)));
            }
            None => Packed { bytes, width: self.width, starts: None, n: bytes.len() / self.width },
            Some(starts) => {
                let n = starts.len().checked_sub(1).ok_or_else(|| value_error("no places of names"))?;
                let rises = starts.is_sorted() && starts[n] <= bytes.len() as u64;
                rises.then_some(()).ok_or_else(|| value_error("the places of names do not rise"))?;
                Packed { bytes, width: self.width, starts: Some(starts), n }
            }
        };
        let check = |at: usize, len| kind.check_len(len).map_err(|error| value_error(format!("name {at}: {error}")));
        match starts {
            None if packed.n > 0 => check(0, self.width)?,
            None => {}
            Some(starts) => starts.windows(2).enumerate().try_for_each(|(at, w)| check(at, (w[1] - w[0]) as usize))?,
        }
        Ok(packed)
    }
}

/// Names of one kind, packed.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    bytes: &'a [u8],
    width: usize,
    starts: Option<&'a [u64]>,
    n: usize,
}

impl<'a> Packed<'a> {
    pub(crate) fn len(&self) -> usize {
        self.n
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &'a [u8] {
        match self.starts {
            None => &self.bytes[at * self.width..(at + 1) * self.width],
            Some(starts) => &self.bytes[starts[at] as usize..starts[at + 1] as usize],
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let names = *self;
        (0..names.n).map(move |at| names.get(at))
    }

    /// The digests of the names from `from` on.
    #[inline]
    pub(crate) fn digests(&self, hasher: &Hasher, from: usize, out: &mut [Digest]) {
        if self.starts.is_none() {
            let bytes = &self.bytes[from * self.width..(from + out.len()) * self.width];
            // The usual widths have vector loops.
            match self.width {
                4 => return hasher.digest_arrays::<4>(bytes.as_chunks().0, out),
                6 => return hasher.digest_arrays::<6>(bytes.as_chunks().0, out),
                8 => return hasher.digest_arrays::<8>(bytes.as_chunks().0, out),
                13 => return hasher.digest_arrays::<13>(bytes.as_chunks().0, out),
                16 => return hasher.digest_arrays::<16>(bytes.as_chunks().0, out),
                _ => {}
            }
        }
        for (at, out) in (from..).zip(out) {
            *out = hasher.digest(self.get(at));
        }
    }

    /// The names as such, checked one by one.
    pub(crate) fn names(&self, kind: NameKind) -> PyResult<Vec<Name>> {
        let name =
            |(at, bytes)| Name::from_bytes(kind, bytes).map_err(|error| value_error(format!("name {at}: {error}")));
        self.iter().enumerate().map(name).collect()
    }
}

/// Bytes of each name of a kind; 0 if they differ.
#[pyfunction]
pub(crate) fn name_width(kind: &str) -> PyResult<usize> {
    Ok(parsed::<NameKind>(kind)?.width().unwrap_or(0))
}

/// The bytes of names in their text form, one after the other, and the places where they begin.
#[pyfunction]
pub(crate) fn parse_names<'py>(
    py: Python<'py>,
    kind: &str,
    texts: Vec<String>,
) -> PyResult<(Bound<'py, PyBytes>, Vec<u64>)> {
    let kind = parsed(kind)?;
    let (mut bytes, mut starts) = (Vec::new(), vec![0]);
    for (at, text) in texts.iter().enumerate() {
        let name = Name::parse(kind, text).map_err(|error| value_error(format!("name {at}: {error}")))?;
        bytes.extend_from_slice(name.as_bytes());
        starts.push(bytes.len() as u64);
    }
    Ok((PyBytes::new(py, &bytes), starts))
}

/// The text form of names.
#[pyfunction]
pub(crate) fn format_names(kind: &str, names: NamesArg<'_>) -> PyResult<Vec<String>> {
    let kind = parsed(kind)?;
    let names = names.borrow()?;
    Ok(names.packed(kind)?.names(kind)?.iter().map(Name::to_string).collect())
}
