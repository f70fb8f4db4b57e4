//! The Noise primitives of a suite: snow's own for SHA-256 and Ed25519, and those of SM3 and SM2
//! for the other.

use getrandom::fill;
use snow::params::{
    BaseChoice, CipherChoice, DHChoice, HandshakeChoice, HandshakeModifierList, HandshakePattern,
    HashChoice, NoiseParams,
};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error};
use tercio_crypto::{Hasher, agreement};
use tercio_types::Suite;
use zeroize::Zeroizing;

/// The handshake's name: it is hashed into it, so that suites never meet half way.
fn name(suite: Suite) -> &'static str {
    match suite {
        Suite::Sm3Sm2 => "Noise_KK_SM2_ChaChaPoly_SM3",
        _ => "Noise_KK_25519_ChaChaPoly_SHA256",
    }
}

/// A Noise message without a payload: an ephemeral key and a tag.
pub(crate) const fn message_len(suite: Suite) -> usize {
    agreement::public_len(suite) + 16
}

/// The KK handshake of `suite`.
pub(crate) fn builder<'a>(suite: Suite) -> Builder<'a> {
    // The choices name what is asked of the resolver; it has one answer to each.
    let handshake = HandshakeChoice {
        pattern: HandshakePattern::KK,
        modifiers: HandshakeModifierList { list: vec![] },
    };
    let params = NoiseParams::new(
        name(suite).into(),
        BaseChoice::Noise,
        handshake,
        DHChoice::Curve25519,
        CipherChoice::ChaChaPoly,
        HashChoice::SHA256,
    );
    let resolver: BoxedCryptoResolver = match suite {
        Suite::Sm3Sm2 => Box::new(Sm),
        _ => Box::new(DefaultResolver),
    };
    Builder::with_resolver(params, resolver)
}

struct Sm;

impl CryptoResolver for Sm {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        DefaultResolver.resolve_rng()
    }

    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        Some(Box::<Agreement>::default())
    }

    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        Some(Box::new(Digest(Hasher::new(Suite::Sm3Sm2))))
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

const SM: Suite = Suite::Sm3Sm2;

#[derive(Default)]
struct Agreement {
    secret: Zeroizing<[u8; 32]>,
    public: Vec<u8>,
}

impl Agreement {
    fn keep(&mut self, secret: Zeroizing<[u8; 32]>) {
        self.public = agreement::public_of(SM, &secret)[..agreement::public_len(SM)].to_vec();
        self.secret = secret;
    }
}

impl Dh for Agreement {
    fn name(&self) -> &'static str {
        "SM2"
    }

    fn pub_len(&self) -> usize {
        agreement::public_len(SM)
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, secret: &[u8]) {
        self.keep(Zeroizing::new(secret.try_into().expect("32 bytes, as priv_len says")));
    }

    fn generate(&mut self, _: &mut dyn Random) -> Result<(), Error> {
        let mut seed = Zeroizing::new([0; 32]);
        fill(&mut *seed).map_err(|_| Error::Rng)?;
        self.keep(agreement::secret_from_seed(SM, &seed));
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.get(..self.pub_len()).ok_or(Error::Dh)?;
        let shared = agreement::agree(SM, &self.secret, public).ok_or(Error::Dh)?;
        out[..32].copy_from_slice(&*shared);
        Ok(())
    }

    fn dh_len(&self) -> usize {
        32
    }
}

struct Digest(Hasher);

impl Hash for Digest {
    fn name(&self) -> &'static str {
        "SM3"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Hasher::new(SM);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.clone().finish().0);
    }
}
