//! Several inputs in one: each with its length, 2 bytes, little-endian, and a byte that says what it is.

/// The pieces of an input. A length beyond the end means the rest.
pub(crate) fn pieces(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([what, low, high], rest) = data.split_first_chunk::<3>()?;
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (piece, rest) = rest.split_at(length.min(rest.len()));
        data = rest;
        Some((*what, piece))
    })
}

/// Appends a piece.
pub(crate) fn put(out: &mut Vec<u8>, what: u8, piece: &[u8]) {
    let length = u16::try_from(piece.len()).expect("seeds have small pieces");
    out.push(what);
    out.extend(length.to_le_bytes());
    out.extend(piece);
}
