//! Messages of netlink(7): each begins with its length, and has attributes, which do so too.

/// Bytes of the headers: of a message, of an attribute.
pub(crate) const MESSAGE_HEADER: usize = 16;
pub(crate) const ATTRIBUTE_HEADER: usize = 4;

/// The messages in what was received. A malformed one, which the kernel does not send, ends it.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (message, rest) = split(bytes, MESSAGE_HEADER, |bytes| u32_at(bytes, 0).map(|len| len as usize))?;
        bytes = rest;
        Some(message)
    })
}

/// The contents of the first attribute of a kind.
pub(crate) fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let Some((attribute, rest)) = split(attributes, ATTRIBUTE_HEADER, |bytes| u16_at(bytes, 0).map(usize::from)) {
        if u16_at(attribute, 2) == Some(kind) {
            return Some(&attribute[ATTRIBUTE_HEADER..]);
        }
        attributes = rest;
    }
    None
}

/// The first record of those that begin with their length, and what follows it, which is at a multiple of 4 bytes.
fn split(bytes: &[u8], least: usize, len: impl Fn(&[u8]) -> Option<usize>) -> Option<(&[u8], &[u8])> {
    let len = len(bytes).filter(|len| *len >= least)?;
    let record = bytes.get(..len)?;
    Some((record, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
