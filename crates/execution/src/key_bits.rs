//! Labels as strings of bits: what makes the shape of a tree a function of its labels alone.
//!
//! A byte becomes nine bits: a one that says 'there is a byte', then the byte from its highest bit
//! on. The end of a label reads as zeros, so the order of the bits is the order of the bytes and
//! no label is a prefix of another.

/// The bit of `label` at `position`.
pub(crate) fn bit(label: &[u8], position: u32) -> bool {
    let (index, bit) = (position as usize / 9, position % 9);
    label.get(index).is_some_and(|byte| bit == 0 || byte >> (8 - bit) & 1 == 1)
}

/// The first position at which two labels differ; `None` when they are the same.
pub(crate) fn first_difference(a: &[u8], b: &[u8]) -> Option<u32> {
    let index = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let start = u32::try_from(9 * index).expect("labels are far below 400 MiB");
    match (a.get(index), b.get(index)) {
        (None, None) => None,
        (Some(x), Some(y)) => Some(start + 1 + (x ^ y).leading_zeros()),
        _ => Some(start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_keep_the_order_of_labels() {
        let labels: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\x01", b"a", b"ab", b"b"];
        for (i, a) in labels.iter().enumerate() {
            assert_eq!(first_difference(a, a), None);
            for b in &labels[i + 1..] {
                let position = first_difference(a, b).unwrap();
                assert!(!bit(a, position) && bit(b, position), "{a:?} before {b:?}");
                assert!((0..position).all(|p| bit(a, p) == bit(b, p)));
            }
        }
    }
}
