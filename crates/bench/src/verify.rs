//! Signature verification on one core: ours and OpenSSL's, interleaved in one run, and the bound
//! that the processor's multipliers set.
//!
//! The bound counts the multiplications that the chosen formulas need ([`Work`]) and divides the
//! rate at which this processor was just seen to issue independent ones. It leaves out everything
//! else that a verification does, so no program with these formulas can pass it.

use crate::Machine;
use crate::figures::median;
use serde::Serialize;
use std::time::Duration;
use tercio_crypto::sm2::{self, Backend, Item, SecretKey, Unavailable, UserId, Verifier};
use tercio_crypto::{public_to_der, signature_to_der};
use tercio_types::{PublicKey, Scheme, SignatureBytes, SigningKey};
use tercio_unsafe_libcrypto::Libcrypto;
use thiserror::Error;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Where the arithmetic runs.
    pub backend: Backend,
    /// Signatures in a batch.
    pub batch: usize,
    /// Keys that they are spread over.
    pub keys: usize,
    /// Length of a message in bytes.
    pub size: usize,
    /// Rounds of all three measurements.
    pub rounds: usize,
    /// Processor time of one measurement.
    pub time: Duration,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The processor lacks what the backend needs.
    #[error(transparent)]
    Backend(#[from] Unavailable),
    /// A signature was refused that is good: nothing that is measured so would count.
    #[error("a good signature was refused by {0}")]
    Refused(&'static str),
}

/// The work of one verification, counted from the formulas.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Work {
    /// Multiplications and squarings in the field.
    pub field_products: u32,
    /// Multiply instructions, of eight lanes each where there are lanes; a share of one for each
    /// signature of the eight.
    pub multiply_instructions: f64,
}

/// The work with keys that have no table, and with keys that have one.
fn work(backend: Backend, batch: usize) -> [Work; 2] {
    match backend {
        // 255 doublings (4 M + 4 S), 51 + 20 additions (8 M + 3 S), a key's odd multiples and a
        // sixteenth of an inversion; or 74 additions. M takes 70 multiply-adds and S 50, of which
        // 20 each reduce; two of an addition's M are reduced together.
        Backend::Ifma => [
            Work { field_products: 3_039, multiply_instructions: 185_301.0 / 8.0 },
            Work { field_products: 817, multiply_instructions: 51_250.0 / 8.0 },
        ],
        // M takes 16 multiplications and S 10; reduction takes none, but four of each where MULX
        // shifts.
        _ => {
            let [of_m, of_s] = if backend == Backend::Portable { [16, 10] } else { [20, 14] };
            products(batch).map(|[m, s]| Work {
                field_products: (m + s) as u32,
                multiply_instructions: (m * of_m + s * of_s) as f64,
            })
        }
    }
}

/// Multiplications and squarings on 64-bit integers, without and with tables. The additions and
/// doublings are those of the vector code.
fn products(batch: usize) -> [[usize; 2]; 2] {
    if batch < Verifier::MANY {
        // A key's odd multiples share an inversion among 32.
        return [[1_733, 1_291], [592, 222]];
    }
    // Doublings 5 M + 2 S, additions 5 M + 1 S, 16 of either for a key's odd multiples; and for each
    // of these steps one inversion (256 S + 15 M, and 12 M for four interleaved) among all.
    let sharing = batch.min(Verifier::MOST);
    let share = |steps: usize| [steps * 27 / sharing, steps * 256 / sharing];
    let ([m, s], [tabled_m, tabled_s]) = (share(255 + 71 + 16), share(74));
    [[1_710 + m, 598 + s], [370 + tabled_m, 74 + tabled_s]]
}

/// What was measured. Rates are those of one core, by its processor time.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// The signature scheme.
    pub scheme: &'static str,
    /// Where the arithmetic ran.
    pub backend: &'static str,
    /// Keys without tables: median of the rounds.
    pub verifies_per_s: f64,
    /// The slowest and the fastest round.
    pub verifies_per_s_spread: [f64; 2],
    /// Keys with tables: median of the rounds.
    pub verifies_per_s_cached_keys: f64,
    /// OpenSSL through its EVP interface, keys parsed before: median of the rounds.
    pub openssl_verifies_per_s: Option<f64>,
    /// Median over the rounds of ours over OpenSSL's.
    pub ratio: Option<f64>,
    /// OpenSSL's name, or why there is none.
    pub openssl: String,
    /// What the multipliers allow with keys without tables.
    pub bound_per_s: f64,
    /// What they allow with tables.
    pub bound_per_s_cached_keys: f64,
    /// How that follows.
    pub bound: &'static str,
    /// Multiply instructions that the processor was seen to issue, in thousand millions a second.
    pub multiply_issue_gps: f64,
    /// The work of one verification.
    pub work: Work,
    /// The same with tables.
    pub work_cached_keys: Work,
    /// Signatures in a batch.
    pub batch: usize,
    /// Keys they were spread over.
    pub keys: usize,
    /// Bytes of a message.
    pub size: usize,
    /// Rounds.
    pub rounds: usize,
    /// The machine.
    pub machine: Machine,
}

/// Operations a second of processor time.
fn rate(time: Duration, mut operations: impl FnMut() -> usize) -> f64 {
    let (start, mut done) = (tercio_network::thread_cpu(), 0);
    loop {
        done += operations();
        let spent = tercio_network::thread_cpu() - start;
        if spent >= time {
            return done as f64 / spent.as_secs_f64();
        }
    }
}

/// Measures.
///
/// # Errors
/// When the backend is not to be had, or anybody refuses a good signature.
pub fn measure(setup: &Setup) -> Result<VerifyReport, VerifyError> {
    let user = UserId::default();
    let mut plain = Verifier::new(setup.backend, user.clone(), 0)?;
    let mut tabled = Verifier::new(setup.backend, user.clone(), 4 * setup.keys)?;
    let secrets: Vec<SecretKey> = (1..=setup.keys as u64)
        .map(|i| {
            let mut bytes = [7; 32];
            bytes[..8].copy_from_slice(&i.to_be_bytes());
            SecretKey::from_bytes(&bytes).expect("a number below the order")
        })
        .collect();
    secrets.iter().for_each(|secret| tabled.learn(secret.public()));
    let messages: Vec<Vec<u8>> = (0..setup.batch).map(|i| vec![i as u8; setup.size]).collect();
    let signer = |i: usize| &secrets[i % secrets.len()];
    let signatures: Vec<_> =
        (messages.iter().enumerate()).map(|(i, message)| signer(i).sign(&user, message)).collect();
    let encoded: Vec<_> = signatures.iter().map(|signature| signature.to_bytes()).collect();
    let items: Vec<Item<'_>> = (messages.iter().zip(&encoded).enumerate())
        .map(|(i, (message, signature))| Item {
            key: signer(i).public().as_bytes(),
            message,
            signature,
        })
        .collect();
    let library = Libcrypto::load();
    let mut their_keys: Vec<_> = match &library {
        Ok(library) => secrets.iter().map_while(|key| library.key(&spki(key.public()))).collect(),
        Err(_) => vec![],
    };
    let der: Vec<Vec<u8>> = encoded.iter().map(der_of).collect();

    let mut refused = None;
    let (mut ours, mut cached, mut theirs) = (vec![], vec![], vec![]);
    for _ in 0..setup.rounds {
        for (verifier, rates) in [(&mut plain, &mut ours), (&mut tabled, &mut cached)] {
            rates.push(rate(setup.time, || {
                if !verifier.verify_batch(&items).iter().all(|good| *good) {
                    refused = Some("us");
                }
                items.len()
            }));
        }
        if their_keys.len() == secrets.len() {
            let mut i = 0;
            theirs.push(rate(setup.time, || {
                let at = i % items.len();
                i += 1;
                let key = &mut their_keys[at % secrets.len()];
                if !key.verify(b"1234567812345678", &messages[at], &der[at]) {
                    refused = Some("OpenSSL");
                }
                1
            }));
        }
    }
    if let Some(who) = refused {
        return Err(VerifyError::Refused(who));
    }
    let issued = multiply_rate(setup.backend, setup.time);
    let [work, work_cached_keys] = work(setup.backend, setup.batch);
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
    Ok(VerifyReport {
        scheme: "sm2",
        backend: setup.backend.name(),
        verifies_per_s: median(&ours),
        verifies_per_s_spread: [
            ours.iter().copied().fold(f64::INFINITY, f64::min),
            ours.iter().copied().fold(0.0, f64::max),
        ],
        verifies_per_s_cached_keys: median(&cached),
        openssl_verifies_per_s: (!theirs.is_empty()).then(|| median(&theirs)),
        ratio: (!ratios.is_empty()).then(|| median(&ratios)),
        openssl: match &library {
            Ok(library) => library.version(),
            Err(missing) => missing.to_string(),
        },
        bound_per_s: issued / work.multiply_instructions,
        bound_per_s_cached_keys: issued / work_cached_keys.multiply_instructions,
        bound: "multiply instructions issued a second / multiply instructions of a verification",
        multiply_issue_gps: issued / 1e9,
        work,
        work_cached_keys,
        batch: setup.batch,
        keys: setup.keys,
        size: setup.size,
        rounds: setup.rounds,
        machine: Machine::here(),
    })
}

/// How many multiply instructions of the backend's kind the processor issues in a second: the best
/// of some measurements, since a bound must not be too low.
fn multiply_rate(backend: Backend, time: Duration) -> f64 {
    let once = || match backend {
        Backend::Ifma => {
            rate(time / 4, || tercio_crypto::sm2::issue_vector_multiplications(1 << 20))
        }
        _ => rate(time / 4, || {
            let mut values = std::hint::black_box([3u64, 5, 7, 9, 11, 13, 15, 17]);
            for _ in 0..32_768 {
                for value in &mut values {
                    let product = u128::from(*value) * 0x9e37_79b9_7f4a_7c15;
                    *value = (product >> 64) as u64 ^ product as u64;
                }
            }
            std::hint::black_box(values);
            8 * 32_768
        }),
    };
    (0..5).map(|_| once()).fold(0.0, f64::max)
}

fn spki(key: &sm2::PublicKey) -> Vec<u8> {
    let key = PublicKey::new(key.as_bytes()).expect("every scheme's keys fit");
    public_to_der(&SigningKey { scheme: Scheme::Sm2, key }).expect("a key that we made")
}

fn der_of(signature: &[u8; 64]) -> Vec<u8> {
    let signature = SignatureBytes::new(signature).expect("every scheme's signatures fit");
    signature_to_der(Scheme::Sm2, &signature).expect("a signature that we made")
}
