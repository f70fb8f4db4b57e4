//! The processor time of each primitive.

use crate::calibrate::stream;
use crate::figures::median;
use bytes::Bytes;
use serde::Serialize;
use std::hint::black_box;
use std::io;
use std::time::Duration;
use tercio_crypto::MacKey;
use tercio_network::thread_cpu;
use tercio_types::{Authenticator, ClientId, Digest, OpKind, ReplicaId, RequestSeq, Suite, Tag};
use tercio_wire::{Frame, Key, Kind, encode_authenticator, encode_package_content};

/// The bytes of a request's operation and of its result.
pub(super) const PAYLOAD: usize = 100;
/// How many times each term is measured; the median counts.
const ROUNDS: usize = 7;
/// How much processor time one measurement takes at least.
const ROUND: Duration = Duration::from_millis(10);

/// Every term of the ceiling. Times are nanoseconds of processor time, of all threads that take
/// part, in user and kernel mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Terms {
    /// A tag over 52 bytes (HMAC-SHA-256 from midstates), made or checked.
    pub tag_ns: f64,
    /// SHA-256 of 64 bytes inside a long message.
    pub sha256_block_ns: f64,
    /// The digest of a package with one operation of 100 bytes.
    pub hash_request_ns: f64,
    /// The digest of a result of 100 bytes.
    pub hash_reply_ns: f64,
    /// Allocating, filling and freeing a buffer of a request's size.
    pub alloc_copy_ns: f64,
    /// Sending a request's frame over TCP when 128 leave in one write.
    pub write_request_ns: f64,
    /// Receiving it.
    pub read_request_ns: f64,
    /// Sending a reply's frame over TCP when 128 leave in one write.
    pub write_reply_ns: f64,
    /// Receiving it.
    pub read_reply_ns: f64,
    /// Sending and receiving one vote over TCP alone, between threads that are awake.
    pub lone_message_ns: f64,
    /// How many hash blocks a request takes up in a batch.
    pub batch_blocks: f64,
    /// The length of a request's frame.
    pub request_frame_bytes: usize,
    /// The length of a reply's frame, averaged over one with the result and three without.
    pub reply_frame_bytes: usize,
}

impl Terms {
    /// Measures all of them.
    ///
    /// # Errors
    /// When the loopback network cannot be used.
    pub fn measure() -> io::Result<Self> {
        let suite = Suite::default();
        let sizes = Sizes::of_one_request();
        let key = MacKey::new(suite, &[7; 32]);
        let said = [5u8; 52];
        let content = vec![3u8; sizes.content];
        let result = [1u8; PAYLOAD];
        let long = vec![9u8; 64 << 10];
        let source = vec![8u8; sizes.request_frame];
        let long_ns = nanos_each(|| {
            black_box(tercio_crypto::hash(suite, &[black_box(&long)]));
        });
        let request = stream::batched(sizes.request_frame, 128)?;
        let reply = stream::batched(sizes.reply_frame, 128)?;
        Ok(Self {
            tag_ns: nanos_each(|| {
                black_box(key.tag(black_box(&said)));
            }),
            sha256_block_ns: long_ns / (long.len() / 64) as f64,
            hash_request_ns: nanos_each(|| {
                black_box(tercio_crypto::hash(suite, &[black_box(&content)]));
            }),
            hash_reply_ns: nanos_each(|| {
                black_box(tercio_crypto::hash(suite, &[black_box(&result)]));
            }),
            alloc_copy_ns: nanos_each(|| {
                black_box(black_box(&source).clone());
            }),
            write_request_ns: request.write_ns,
            read_request_ns: request.read_ns,
            write_reply_ns: reply.write_ns,
            read_reply_ns: reply.read_ns,
            lone_message_ns: stream::lone(sizes.vote_frame)?,
            batch_blocks: sizes.in_batch as f64 / 64.0,
            request_frame_bytes: sizes.request_frame,
            reply_frame_bytes: sizes.reply_frame,
        })
    }
}

/// How long the messages of one request are, from the real encodings.
struct Sizes {
    content: usize,
    request_frame: usize,
    in_batch: usize,
    reply_frame: usize,
    vote_frame: usize,
}

impl Sizes {
    fn of_one_request() -> Self {
        let suite = Suite::default();
        let mut content = Vec::new();
        let ops = [Bytes::from(vec![0; PAYLOAD])];
        let (client, first, replier) = (ClientId(1), RequestSeq(1), ReplicaId(0));
        encode_package_content(client, first, OpKind::User, replier, &ops, &mut content);
        let digest = tercio_crypto::hash(suite, &[&content]);
        let key = Key::of_replica(Kind::REPLY, ReplicaId(0), 0, 1, digest);
        let vector = Authenticator::from(vec![Tag::default(); super::REPLICAS]);
        let mut in_batch = Vec::new();
        encode_authenticator(&vector, &mut in_batch);
        let frame = |key: Key, auth: &Authenticator, body: Vec<u8>| {
            Frame { key, auth: auth.clone(), body: body.into() }.to_bytes().len()
        };
        let one = Authenticator::Mac(Tag::default());
        let full = frame(key, &one, vec![0; PAYLOAD]);
        let bare = frame(key, &one, vec![]);
        let vote = Key { digest: Digest::NULL, ..key };
        Self {
            content: content.len(),
            request_frame: frame(key, &vector, content.clone()),
            // Beside its bytes, each item of a list has the 4 bytes of its end.
            in_batch: in_batch.len() + content.len() + 4,
            reply_frame: (full + (super::REPLICAS - 1) * bare) / super::REPLICAS,
            vote_frame: frame(vote, &vector, vec![]),
        }
    }
}

/// The processor time of one call of `op`, in nanoseconds.
fn nanos_each(mut op: impl FnMut()) -> f64 {
    let mut calls = 16u32;
    let mut time = |calls: u32| {
        let start = thread_cpu();
        (0..calls).for_each(|_| op());
        thread_cpu() - start
    };
    // Grow until one measurement is long enough to hide the clock's own cost.
    while time(calls) < ROUND {
        calls *= 2;
    }
    let each = |_| time(calls).as_secs_f64() * 1e9 / f64::from(calls);
    median(&(0..ROUNDS).map(each).collect::<Vec<_>>())
}
