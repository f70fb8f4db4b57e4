//! PEM (RFC 7468): base64 between two lines. Strict inside the one block that is looked for; text
//! before and after it, and other blocks, are skipped, as tools write them.

use crate::der::Malformed;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The block of a label.
pub(crate) fn encode(label: &str, bytes: &[u8]) -> String {
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in bytes.chunks(48) {
        for chunk in line.chunks(3) {
            let mut group = [0; 3];
            group[..chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
            for i in 0..4 {
                let sextet = (bits >> (18 - 6 * i)) & 63;
                let digit = char::from(ALPHABET[sextet as usize]);
                out.push(if i <= chunk.len() { digit } else { '=' });
            }
        }
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The content of the first block of a label.
pub(crate) fn decode(label: &str, text: &str) -> Result<Vec<u8>, Malformed> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let mut lines = text.lines().map(str::trim_end);
    lines.find(|line| *line == begin).ok_or(Malformed)?;
    let mut digits = Vec::new();
    loop {
        match lines.next() {
            Some(line) if line == end => break,
            Some(line) => digits.extend_from_slice(line.as_bytes()),
            None => return Err(Malformed),
        }
    }
    let (groups, []) = digits.as_chunks::<4>() else { return Err(Malformed) };
    let mut out = Vec::with_capacity(3 * groups.len());
    for (i, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|digit| **digit == b'=').count();
        if padding > 2 || (padding > 0 && i + 1 < groups.len()) {
            return Err(Malformed);
        }
        let mut bits = 0;
        for digit in &group[..4 - padding] {
            let sextet = ALPHABET.iter().position(|known| known == digit).ok_or(Malformed)?;
            bits = bits << 6 | sextet as u32;
        }
        bits <<= 6 * padding;
        let bytes = &bits.to_be_bytes()[1..];
        // Bits that no byte takes must be zero, or one content had several texts.
        if bytes[3 - padding..].iter().any(|byte| *byte != 0) {
            return Err(Malformed);
        }
        out.extend_from_slice(&bytes[..3 - padding]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = format!("before\n{}after\n", encode("A KEY", &bytes));
            prop_assert_eq!(decode("A KEY", &text), Ok(bytes));
            prop_assert!(decode("B KEY", &text).is_err());
        }

        #[test]
        fn any_text_is_refused_or_taken(text in "(-----BEGIN K-----\n)?[A-Za-z+/=\n]{0,40}(-----END K-----)?") {
            if let Ok(bytes) = decode("K", &text) {
                prop_assert_eq!(decode("K", &encode("K", &bytes)), Ok(bytes));
            }
        }
    }
}
