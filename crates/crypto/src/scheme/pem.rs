//! Keys as PEM, the way OpenSSL and GmSSL write them: private ones as PKCS#8 (RFC 5958, RFC 5915 and
//! RFC 8410 inside) or SEC 1 'EC PRIVATE KEY', public ones as SubjectPublicKeyInfo (RFC 5280), in and
//! out.

use super::{SchemeError, Secret, SigningSecret, p256, rsa, secp256k1};
use crate::SecretKey;
use pkcs8::der::asn1::{AnyRef, BitStringRef, OctetStringRef};
use pkcs8::der::{Decode, Document, Encode, SecretDocument};
use pkcs8::spki::{AlgorithmIdentifier, SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};
use pkcs8::{LineEnding, ObjectIdentifier, PrivateKeyInfo, PrivateKeyInfoRef};
use sec1::{EcParameters, EcPrivateKey};
use tercio_types::{Scheme, SigningKey, Suite};
use zeroize::Zeroizing;

const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The schemes on named curves, with the curve.
const CURVES: [(Scheme, ObjectIdentifier); 3] = [
    (Scheme::Sm2, ObjectIdentifier::new_unwrap("1.2.156.10197.1.301")),
    (Scheme::EcdsaP256, ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7")),
    (Scheme::Secp256k1, ObjectIdentifier::new_unwrap("1.3.132.0.10")),
];

const PKCS8_LABEL: &str = "PRIVATE KEY";
const SEC1_LABEL: &str = "EC PRIVATE KEY";
/// What OpenSSL 3.0 calls an EC PRIVATE KEY on the curve of SM2.
const SM2_LABEL: &str = "SM2 PRIVATE KEY";
const PUBLIC_LABEL: &str = "PUBLIC KEY";

fn curve(scheme: Scheme) -> Option<ObjectIdentifier> {
    CURVES.iter().find(|(of, _)| *of == scheme).map(|(_, curve)| *curve)
}

/// A key on a named curve from its ECPrivateKey (RFC 5915); `named` is the curve that stands
/// outside, if one does.
fn from_sec1(der: &[u8], named: Option<ObjectIdentifier>) -> Result<SigningSecret, SchemeError> {
    let key = EcPrivateKey::from_der(der).map_err(|_| SchemeError::BadPem)?;
    let inside = key.parameters.map(|EcParameters::NamedCurve(curve)| curve);
    let found = match (named, inside) {
        (Some(a), Some(b)) if a != b => None,
        (a, b) => a.or(b),
    };
    let scheme = CURVES.iter().find(|(_, curve)| Some(*curve) == found).map(|(scheme, _)| *scheme);
    let scheme = scheme.ok_or(SchemeError::BadPem)?;
    let bad = SchemeError::BadPrivateKey(scheme);
    let secret = match scheme {
        Scheme::EcdsaP256 => Secret::EcdsaP256(p256::Secret::from_scalar(key.private_key)?),
        Scheme::Secp256k1 => Secret::Secp256k1(secp256k1::Secret::from_scalar(key.private_key)?),
        _ => {
            let scalar = Zeroizing::new(key.private_key.try_into().map_err(|_| bad)?);
            let identity = SecretKey::from_bytes(Suite::Sm3Sm2, &scalar).map_err(|_| bad)?;
            Secret::Identity(Box::new(identity))
        }
    };
    let secret = SigningSecret(secret);
    // A public key that stands beside must be this key's.
    let public = secret.point();
    match key.public_key {
        Some(beside) if Some(beside) != public.as_deref() => Err(bad),
        _ => Ok(secret),
    }
}

fn from_pkcs8(der: &[u8]) -> Result<SigningSecret, SchemeError> {
    let info = PrivateKeyInfoRef::from_der(der).map_err(|_| SchemeError::BadPem)?;
    let private = info.private_key.as_bytes();
    let secret = match info.algorithm.oid {
        EC => {
            let named = info.algorithm.parameters.and_then(|any| any.decode_as().ok());
            return from_sec1(private, named);
        }
        RSA => Secret::Rsa2048(Box::new(rsa::Secret::from_pkcs8(der)?)),
        ED25519 => {
            let bad = SchemeError::BadPrivateKey(Scheme::Ed25519);
            let seed = <&OctetStringRef>::from_der(private).map_err(|_| bad)?;
            let seed = Zeroizing::new(seed.as_bytes().try_into().map_err(|_| bad)?);
            let key = SecretKey::from_bytes(Suite::Sha256Ed25519, &seed).map_err(|_| bad)?;
            Secret::Identity(Box::new(key))
        }
        _ => return Err(SchemeError::BadPem),
    };
    Ok(SigningSecret(secret))
}

impl SigningSecret {
    /// Reads a private key in PEM: PKCS#8 of any scheme, or SEC 1 of one on a named curve (an 'EC
    /// PARAMETERS' block before it, as OpenSSL writes one, is passed over).
    ///
    /// # Errors
    /// When it is anything else, or belongs to no scheme of ours.
    pub fn from_pem(text: &str) -> Result<Self, SchemeError> {
        let begin = text.match_indices("-----BEGIN ").map(|(at, _)| at);
        let begin = begin.filter(|at| !text[*at..].starts_with("-----BEGIN EC PARAMETERS"));
        let [at] = begin.collect::<Vec<_>>()[..] else { return Err(SchemeError::BadPem) };
        let (label, document) =
            SecretDocument::from_pem(&text[at..]).map_err(|_| SchemeError::BadPem)?;
        match label {
            PKCS8_LABEL => from_pkcs8(document.as_bytes()),
            SEC1_LABEL | SM2_LABEL => from_sec1(document.as_bytes(), None),
            _ => Err(SchemeError::BadPem),
        }
    }

    /// The key as PKCS#8 in PEM, to be kept in a file of mode 0600.
    ///
    /// # Errors
    /// When the library cannot write it.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, SchemeError> {
        let scheme = self.scheme();
        let failed = SchemeError::BadPrivateKey(scheme);
        let der = match &self.0 {
            Secret::Rsa2048(key) => SecretDocument::try_from(&*key.to_pkcs8()?),
            Secret::Identity(key) if scheme == Scheme::Ed25519 => {
                let seed = key.to_bytes();
                let seed = OctetStringRef::new(&*seed).map_err(|_| failed)?;
                let seed = Zeroizing::new(seed.to_der().map_err(|_| failed)?);
                info(AlgorithmIdentifier { oid: ED25519, parameters: None }, &seed)
            }
            _ => {
                let named = curve(scheme).zip(self.ec_private_key(None)?);
                let (curve, key) = named.expect("the other schemes are on named curves");
                let parameters = Some(AnyRef::from(&curve));
                info(AlgorithmIdentifier { oid: EC, parameters }, key.as_bytes())
            }
        };
        let pem = der.and_then(|der| der.to_pem(PKCS8_LABEL, LineEnding::LF));
        pem.map_err(|_| failed)
    }

    /// The key as SEC 1 in PEM; `None` for a scheme that is on no named curve.
    ///
    /// # Errors
    /// When the library cannot write it.
    pub fn to_sec1_pem(&self) -> Result<Option<Zeroizing<String>>, SchemeError> {
        let failed = SchemeError::BadPrivateKey(self.scheme());
        let named = curve(self.scheme()).map(EcParameters::NamedCurve);
        let key = self.ec_private_key(named)?;
        let pem = key.map(|key| key.to_pem(SEC1_LABEL, LineEnding::LF));
        pem.transpose().map_err(|_| failed)
    }

    /// The ECPrivateKey of a key on a named curve, with the curve inside or not.
    fn ec_private_key(
        &self,
        parameters: Option<EcParameters>,
    ) -> Result<Option<SecretDocument>, SchemeError> {
        let scalar = match &self.0 {
            Secret::Identity(key) if self.scheme() == Scheme::Sm2 => key.to_bytes(),
            Secret::EcdsaP256(key) => key.scalar()?,
            Secret::Secp256k1(key) => key.scalar(),
            _ => return Ok(None),
        };
        let point = self.point();
        let key = EcPrivateKey { private_key: &*scalar, parameters, public_key: point.as_deref() };
        let failed = SchemeError::BadPrivateKey(self.scheme());
        SecretDocument::encode_msg(&key).map(Some).map_err(|_| failed)
    }

    /// The public key as SEC 1 writes an uncompressed point; `None` for what is not on a named
    /// curve.
    fn point(&self) -> Option<Vec<u8>> {
        let key = self.public();
        match key.scheme {
            Scheme::Ed25519 | Scheme::Rsa2048 => None,
            _ => Some(key.key.as_slice().to_vec()),
        }
    }
}

fn info(
    algorithm: AlgorithmIdentifier<AnyRef<'_>>,
    key: &[u8],
) -> pkcs8::der::Result<SecretDocument> {
    let private_key = OctetStringRef::new(key)?;
    let info: PrivateKeyInfo<_, _, BitStringRef<'_>> = PrivateKeyInfo::new(algorithm, private_key);
    SecretDocument::encode_msg(&info)
}

/// A public key as SubjectPublicKeyInfo in DER.
///
/// # Errors
/// When it is too long to be one.
pub fn public_to_der(key: &SigningKey) -> Result<Vec<u8>, SchemeError> {
    let curve = curve(key.scheme);
    let algorithm = match (key.scheme, &curve) {
        (Scheme::Ed25519, _) => AlgorithmIdentifier { oid: ED25519, parameters: None },
        (_, Some(curve)) => AlgorithmIdentifier { oid: EC, parameters: Some(AnyRef::from(curve)) },
        _ => AlgorithmIdentifier { oid: RSA, parameters: Some(AnyRef::NULL) },
    };
    let bad = SchemeError::BadPublicKey(key.scheme);
    let bits = BitStringRef::from_bytes(key.key.as_slice()).map_err(|_| bad)?;
    let info: SubjectPublicKeyInfoRef<'_> =
        SubjectPublicKeyInfo { algorithm, subject_public_key: bits };
    info.to_der().map_err(|_| bad)
}

/// A public key as SubjectPublicKeyInfo in PEM ('PUBLIC KEY').
///
/// # Errors
/// When it is too long to be one.
pub fn public_to_pem(key: &SigningKey) -> Result<String, SchemeError> {
    let bad = |_| SchemeError::BadPublicKey(key.scheme);
    let document = Document::try_from(public_to_der(key)?).map_err(bad)?;
    document.to_pem(PUBLIC_LABEL, LineEnding::LF).map_err(bad)
}

/// The public key of a SubjectPublicKeyInfo in PEM ('PUBLIC KEY'), as OpenSSL and GmSSL write it.
///
/// # Errors
/// When it is anything else, or belongs to no scheme of ours.
pub fn public_from_pem(text: &str) -> Result<SigningKey, SchemeError> {
    let (label, document) = Document::from_pem(text.trim()).map_err(|_| SchemeError::BadPem)?;
    if label != PUBLIC_LABEL {
        return Err(SchemeError::BadPem);
    }
    let info = SubjectPublicKeyInfoRef::try_from(document.as_bytes());
    let info = info.map_err(|_| SchemeError::BadPem)?;
    let bits = info.subject_public_key.as_bytes().ok_or(SchemeError::BadPem)?;
    let (scheme, bytes) = match info.algorithm.oid {
        ED25519 => (Scheme::Ed25519, bits),
        RSA => (Scheme::Rsa2048, bits),
        EC => {
            let named = info.algorithm.parameters.and_then(|any| any.decode_as().ok());
            let found = CURVES.iter().find(|(_, curve)| Some(*curve) == named);
            (found.ok_or(SchemeError::BadPem)?.0, bits)
        }
        _ => return Err(SchemeError::BadPem),
    };
    super::public_key(scheme, bytes)
}
