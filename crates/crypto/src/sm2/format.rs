//! Keys in the forms that other tools write: SubjectPublicKeyInfo (RFC 5480), PKCS#8 (RFC 5208)
//! and SEC 1 (RFC 5915), in DER and PEM.

use super::{MalformedKey, PublicKey, SecretKey};
use crate::KeyError;
use crate::der::{self, Malformed, Reader};
use crate::pem;
use zeroize::Zeroizing;

/// id-ecPublicKey, 1.2.840.10045.2.1.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// The curve's name, 1.2.156.10197.1.301.
const CURVE: &[u8] = &[0x2a, 0x81, 0x1c, 0xcf, 0x55, 0x01, 0x82, 0x2d];
/// Context tags 0 (the curve) and 1 (the public key) of an ECPrivateKey.
const PARAMETERS: u8 = 0xa0;
const PUBLIC: u8 = 0xa1;

fn algorithm() -> Vec<u8> {
    der::sequence(&[&der::oid(EC_PUBLIC_KEY), &der::oid(CURVE)])
}

fn read_algorithm(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    let mut algorithm = reader.sequence()?;
    if algorithm.oid()? != EC_PUBLIC_KEY || algorithm.oid()? != CURVE {
        return Err(Malformed);
    }
    algorithm.end()
}

impl PublicKey {
    /// The SubjectPublicKeyInfo.
    #[must_use]
    pub fn to_der(&self) -> Vec<u8> {
        der::sequence(&[&algorithm(), &der::bits(self.as_bytes())])
    }

    /// Reads a SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// When it is anything but the one encoding of an SM2 key.
    pub fn from_der(bytes: &[u8]) -> Result<Self, MalformedKey> {
        let read = || {
            let mut outer = Reader::new(bytes);
            let mut inner = outer.sequence()?;
            outer.end()?;
            read_algorithm(&mut inner)?;
            let point = inner.bits()?;
            inner.end()?;
            Ok::<_, Malformed>(point)
        };
        Self::from_bytes(read().map_err(|_| MalformedKey)?)
    }

    /// The PEM block `PUBLIC KEY`.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode("PUBLIC KEY", &self.to_der())
    }

    /// Reads the PEM block `PUBLIC KEY`.
    ///
    /// # Errors
    /// When there is none, or it holds anything else.
    pub fn from_pem(text: &str) -> Result<Self, MalformedKey> {
        Self::from_der(&pem::decode("PUBLIC KEY", text).map_err(|_| MalformedKey)?)
    }
}

impl SecretKey {
    /// An ECPrivateKey; the curve is left out where what is around it names it.
    fn ec_private_key(&self, with_curve: bool) -> Zeroizing<Vec<u8>> {
        let secret = Zeroizing::new(der::octets(&*self.to_bytes()));
        let curve = der::value(PARAMETERS, &[&der::oid(CURVE)]);
        let public = der::value(PUBLIC, &[&der::bits(self.public().as_bytes())]);
        let curve: &[u8] = if with_curve { &curve } else { &[] };
        Zeroizing::new(der::sequence(&[&der::unsigned(&[1]), &secret, curve, &public]))
    }

    fn from_ec_private_key(bytes: &[u8], needs_curve: bool) -> Result<Self, KeyError> {
        let read = || {
            let mut outer = Reader::new(bytes);
            let mut inner = outer.sequence()?;
            outer.end()?;
            if inner.unsigned::<1>()? != [1] {
                return Err(Malformed);
            }
            let secret: &[u8; 32] = inner.octets()?.try_into().map_err(|_| Malformed)?;
            if needs_curve || inner.peek() == Some(PARAMETERS) {
                let mut curve = Reader::new(inner.value(PARAMETERS)?);
                if curve.oid()? != CURVE {
                    return Err(Malformed);
                }
                curve.end()?;
            }
            let mut public = None;
            if inner.peek() == Some(PUBLIC) {
                let mut bits = Reader::new(inner.value(PUBLIC)?);
                public = Some(bits.bits()?);
                bits.end()?;
            }
            inner.end()?;
            Ok((secret, public))
        };
        let (secret, public) = read().map_err(|_| KeyError::Malformed)?;
        let key = Self::from_bytes(secret)?;
        // A public key beside it must be its own, or the file was put together wrongly.
        match public {
            Some(public) if public != key.public().as_bytes() => Err(KeyError::Malformed),
            _ => Ok(key),
        }
    }

    /// The PEM block `PRIVATE KEY` (PKCS#8, not encrypted).
    #[must_use]
    pub fn to_pkcs8_pem(&self) -> Zeroizing<String> {
        let inner = Zeroizing::new(der::octets(&self.ec_private_key(false)));
        let whole = Zeroizing::new(der::sequence(&[&der::unsigned(&[0]), &algorithm(), &inner]));
        Zeroizing::new(pem::encode("PRIVATE KEY", &whole))
    }

    /// The PEM block `EC PRIVATE KEY` (SEC 1).
    #[must_use]
    pub fn to_sec1_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(pem::encode("EC PRIVATE KEY", &self.ec_private_key(true)))
    }

    /// Reads either PEM block.
    ///
    /// # Errors
    /// When there is neither, or it holds no SM2 key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        if let Ok(bytes) = pem::decode("EC PRIVATE KEY", text) {
            return Self::from_ec_private_key(&Zeroizing::new(bytes), true);
        }
        let bytes =
            Zeroizing::new(pem::decode("PRIVATE KEY", text).map_err(|_| KeyError::Malformed)?);
        let read = || {
            let mut outer = Reader::new(&bytes);
            let mut inner = outer.sequence()?;
            outer.end()?;
            if inner.unsigned::<1>()? != [0] {
                return Err(Malformed);
            }
            read_algorithm(&mut inner)?;
            let key = inner.octets()?;
            inner.end()?;
            Ok(key)
        };
        Self::from_ec_private_key(read().map_err(|_| KeyError::Malformed)?, false)
    }
}
