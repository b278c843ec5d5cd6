//! Little-endian fields read off bytes, every bound checked: what all decoders here and in `fib` stand on.

/// Bytes that were not read yet.
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
    /// Bytes follow the end.
    #[error("{extra} bytes follow the end")]
    TrailingBytes {
        /// How many.
        extra: usize,
    },
}

#[allow(missing_docs, reason = "each reads what it is called")]
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

    /// A count (`u32`) of items of at least `least_bytes` bytes each, all of which must be there: so nothing is
    /// allocated for items that never come.
    pub fn count(&mut self, least_bytes: usize) -> Result<usize, BytesError> {
        let count = self.u32()? as usize;
        let needed = count.saturating_mul(least_bytes);
        if needed > self.0.len() { Err(BytesError::Truncated { needed, left: self.0.len() }) } else { Ok(count) }
    }

    /// Nothing is left: [`BytesError::TrailingBytes`] otherwise.
    pub fn end(&self) -> Result<(), BytesError> {
        if self.0.is_empty() { Ok(()) } else { Err(BytesError::TrailingBytes { extra: self.0.len() }) }
    }
}
