//! Signatures that are a pair of numbers (SM2, ECDSA): as r | s, which is how they travel here, and
//! as DER `SEQUENCE { r INTEGER, s INTEGER }`, which is how OpenSSL and GmSSL write them.

use super::{SchemeError, p256, secp256k1};
use pkcs8::der::asn1::UintRef;
use pkcs8::der::{Encode, Error, Reader, SliceReader};
use tercio_types::{Scheme, SignatureBytes};

fn is_pair(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::Sm2 | Scheme::EcdsaP256 | Scheme::Secp256k1)
}

/// The numbers of a DER `SEQUENCE { INTEGER, INTEGER }`, neither below 0: bytes that begin with no
/// zero. Nothing when it is anything else, or in another encoding than DER's.
pub(super) fn two_numbers(bytes: &[u8]) -> Option<[UintRef<'_>; 2]> {
    let mut reader = SliceReader::new(bytes).ok()?;
    let pair = reader.sequence(|r| Ok::<_, Error>([r.decode()?, r.decode()?])).ok()?;
    reader.finish().ok().map(|()| pair)
}

/// A signature as other tools write it: DER for SM2 and ECDSA, the bytes as they are for the rest.
///
/// # Errors
/// When it does not have the length of a signature of this scheme.
pub fn signature_to_der(
    scheme: Scheme,
    signature: &SignatureBytes,
) -> Result<Vec<u8>, SchemeError> {
    let bytes = signature.as_slice();
    if !is_pair(scheme) {
        return Ok(bytes.to_vec());
    }
    let bad = SchemeError::BadSignature(scheme);
    let (&[r, s], []) = bytes.as_chunks::<32>() else { return Err(bad) };
    let number = |bytes| UintRef::new(bytes).map_err(|_| bad);
    [number(&r)?, number(&s)?].to_der().map_err(|_| bad)
}

/// Reads a signature that another tool wrote, in the form of [`signature_to_der`]; only the one
/// encoding that DER has for it is taken. Of the two ECDSA signatures that other tools take for
/// equal, this gives the one that [`crate::verify`] takes. Nothing is verified here.
///
/// # Errors
/// When it is no such encoding.
pub fn signature_from_der(scheme: Scheme, bytes: &[u8]) -> Result<SignatureBytes, SchemeError> {
    let bad = SchemeError::BadSignature(scheme);
    if !is_pair(scheme) {
        return SignatureBytes::new(bytes).ok_or(bad);
    }
    let pair = two_numbers(bytes).ok_or(bad)?;
    let mut out = [0; 64];
    for (number, half) in pair.iter().zip(out.as_chunks_mut::<32>().0) {
        let digits = number.as_bytes();
        let start = half.len().checked_sub(digits.len()).ok_or(bad)?;
        half[start..].copy_from_slice(digits);
    }
    match scheme {
        Scheme::Secp256k1 => out = secp256k1::with_low_s(&out).ok_or(bad)?,
        Scheme::EcdsaP256 => out = p256::with_low_s(&out).ok_or(bad)?,
        _ => {}
    }
    SignatureBytes::new(&out).ok_or(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pairs_have_one_encoding(r in any::<[u8; 32]>(), s in any::<[u8; 32]>(), zeros in 0..33_usize, at in 0..72_usize, xor in any::<u8>()) {
            let mut bytes = [r, s].concat();
            bytes[..zeros].fill(0);
            let signature = SignatureBytes::new(&bytes).unwrap();
            let der = signature_to_der(Scheme::Sm2, &signature).unwrap();
            prop_assert_eq!(signature_from_der(Scheme::Sm2, &der), Ok(signature));
            // What is taken is what would be written.
            let mut other = der;
            let at = at % other.len();
            other[at] ^= xor;
            if let Ok(read) = signature_from_der(Scheme::Sm2, &other) {
                prop_assert_eq!(signature_to_der(Scheme::Sm2, &read).unwrap(), other);
            }
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let good = [0x30, 6, 2, 1, 5, 2, 1, 7];
        let read = |bytes: &[u8]| signature_from_der(Scheme::Sm2, bytes);
        assert!(read(&good).is_ok());
        for bad in [
            &[][..],
            &good[..7],
            &[&good[..], &[0]].concat(),
            &[0x31, 6, 2, 1, 5, 2, 1, 7],
            &[0x30, 0x81, 6, 2, 1, 5, 2, 1, 7],
            &[0x30, 0x80, 2, 1, 5, 2, 1, 7, 0, 0],
            &[0x30, 7, 2, 2, 0, 5, 2, 1, 7],
            &[0x30, 7, 2, 0x81, 1, 5, 2, 1, 7],
            &[0x30, 6, 2, 1, 0x85, 2, 1, 7],
            &[0x30, 5, 2, 0, 2, 1, 7],
            &[0x30, 6, 4, 1, 5, 2, 1, 7],
            &[0x30, 3, 2, 1, 5],
            &[0x30, 9, 2, 1, 5, 2, 1, 7, 2, 1, 9],
            &[[0x30, 38, 2, 33].as_slice(), &[1; 33], &[2, 1, 7]].concat(),
        ] {
            assert!(read(bad).is_err(), "{bad:02x?}");
        }
        let short = SignatureBytes::new(&[1; 63]).unwrap();
        assert!(signature_to_der(Scheme::Sm2, &short).is_err());
        assert!(signature_from_der(Scheme::Ed25519, &[0; 1000]).is_err());
    }
}
