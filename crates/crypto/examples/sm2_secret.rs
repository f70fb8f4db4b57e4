//! Uses the SM2 secret on standard input (32 bytes) once, in the way that the argument names, and
//! writes what came of it. `tools/check-consttime.py` runs it on many secrets and compares what the
//! processor did.
//!
//! ```text
//! sign     signs a message, with the key made from its bytes
//! agree    agrees on a link secret
//! branch   does not do either: a branch depends on the secret
//! index    the same, an address depends on it
//! ```
//!
//! The last two are there to show that the comparison finds such things.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use tercio_crypto::sm2::{PublicKey, SecretKey, UserId};

/// Twice the generator, for `agree`: any point will do.
const PEER: [u8; 32] = {
    let mut two = [0; 32];
    two[31] = 2;
    two
};

fn main() -> Result<(), Box<dyn Error>> {
    let what = std::env::args().nth(1).unwrap_or_default();
    let mut secret = [0; 32];
    std::io::stdin().read_exact(&mut secret)?;
    let out = match what.as_str() {
        "sign" => {
            let key = SecretKey::from_bytes(&secret)?;
            key.sign(&UserId::default(), b"a message").to_bytes().to_vec()
        }
        "agree" => {
            let peer = PublicKey::from_bytes(SecretKey::from_bytes(&PEER)?.public().as_bytes())?;
            SecretKey::from_bytes(&secret)?.agree(&peer).to_vec()
        }
        "branch" => {
            let mut ones = 0u8;
            for bit in 0..256 {
                if black_box(secret[bit / 8] >> (bit % 8) & 1) == 1 {
                    ones = black_box(ones.wrapping_add(1));
                }
            }
            vec![ones]
        }
        "index" => {
            let table = black_box([7u8; 256]);
            secret.iter().map(|byte| black_box(&table)[usize::from(*byte)]).collect()
        }
        _ => return Err("name one of sign, agree, branch, index".into()),
    };
    // Not through the buffer, which looks for a line's end in what is written.
    File::from(std::io::stdout().as_fd().try_clone_to_owned()?).write_all(&out)?;
    Ok(())
}
