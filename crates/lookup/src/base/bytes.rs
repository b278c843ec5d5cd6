//! Reads little-endian fields from bytes, and checks every bound. All decoders of this crate and of `fib` use it.

/// The bytes not read yet.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

/// Why a field cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BytesError {
    /// The bytes end early.
    #[error("truncated: {needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the next field needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// There are bytes after the end.
    #[error("{extra} bytes follow the end")]
    TrailingBytes {
        /// How many.
        extra: usize,
    },
}

#[allow(missing_docs, reason = "each reads what its name says")]
#[allow(clippy::missing_errors_doc, reason = "BytesError::Truncated, and nothing is read")]
impl<'a> Bytes<'a> {
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], BytesError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(BytesError::Truncated { needed: n, left: self.0.len() })?;
        self.0 = tail;
        Ok(head)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BytesError> {
        let left = self.0.len();
        let (head, tail) = self.0.split_first_chunk().ok_or(BytesError::Truncated { needed: N, left })?;
        self.0 = tail;
        Ok(*head)
    }

    pub fn u8(&mut self) -> Result<u8, BytesError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, BytesError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, BytesError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, BytesError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count (`u32`) of items that have at least `least_bytes` bytes each. All these bytes must be there, so
    /// that nothing is allocated for items that never come.
    pub fn count(&mut self, least_bytes: usize) -> Result<usize, BytesError> {
        let count = self.u32()? as usize;
        let needed = count.saturating_mul(least_bytes);
        if needed > self.0.len() { Err(BytesError::Truncated { needed, left: self.0.len() }) } else { Ok(count) }
    }

    /// Checks that nothing is left: [`BytesError::TrailingBytes`] otherwise.
    pub fn end(&self) -> Result<(), BytesError> {
        if self.0.is_empty() { Ok(()) } else { Err(BytesError::TrailingBytes { extra: self.0.len() }) }
    }
}

/// Why bytes cannot be decoded as an update, an image or a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end too early or too late.
    #[error(transparent)]
    Bytes(#[from] BytesError),
    /// A field has a value outside its range.
    #[error("{field} is {value}, at most {max} allowed")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The bound.
        max: u64,
    },
    /// The bytes are not those that were sent.
    #[error("the bytes have digest {got:#018x}, {expected:#018x} expected: ask for them again")]
    WrongDigest {
        /// Digest of the bytes.
        got: u64,
        /// The digest that they name.
        expected: u64,
    },
    /// Fields contradict each other.
    #[error("{reason}: ask for an image")]
    Malformed {
        /// What is wrong.
        reason: &'static str,
    },
}

/// Refuses a value above its bound.
pub(crate) fn at_most(field: &'static str, value: u64, max: u64) -> Result<u64, DecodeError> {
    if value > max { Err(DecodeError::OutOfRange { field, value, max }) } else { Ok(value) }
}
