//! The state as labelled chunks: what the digest is over and what a snapshot holds.
//!
//! ```text
//! label    kind: u8 | symbol: u16 big-endian | page: u32 big-endian
//! kind 0   version, settings, deposits of each asset
//! kind 1   a page of eight accounts, in the order in which they were opened
//! kind 2   a market: next arrival, revision, trades, the last of them
//! kind 3   a page of 32 order slots of a market; none when all are free
//! ```
//! What follows from the orders (levels, queues, held balances, open counts) is not written.

use crate::accounts::{ACCOUNTS_PER_PAGE, Accounts};
use crate::book::{Book, RECENT_TRADES};
use crate::query::Trade;
use crate::settings::MAX_SUPPLY;
use crate::slots::{NIL, ORDERS_PER_PAGE, Order};
use crate::{Exchange, Side};
use bytes::Bytes;
use std::collections::VecDeque;
use tercio_crypto::hash;
use tercio_execution::{MerkleMap, TreeTop};
use tercio_types::{ClientId, Digest, Suite};
use tercio_wire::{DecodeError, Reader};
use thiserror::Error;

/// The version of the chunks' format.
const VERSION: u16 = 1;

const GENERAL: u8 = 0;
const ACCOUNTS: u8 = 1;
const MARKET: u8 = 2;
const ORDERS: u8 = 3;

fn label(kind: u8, symbol: u16, page: u32) -> [u8; 7] {
    let ([a, b], [c, d, e, f]) = (symbol.to_be_bytes(), page.to_be_bytes());
    [kind, a, b, c, d, e, f]
}

/// Why chunks are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum RestoreError {
    #[error("the snapshot is of another version, or of an exchange with other settings")]
    Settings,
    #[error("a chunk has an unknown or misplaced label")]
    Label,
    #[error("a chunk is malformed: {0}")]
    Chunk(#[from] DecodeError),
    #[error("the snapshot contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// The digests of all chunks as a Merkle map, brought up to date when asked for.
#[derive(Clone, Debug)]
pub(crate) struct StateTree {
    suite: Suite,
    map: MerkleMap,
    general_dirty: bool,
}

impl StateTree {
    /// Of an exchange that hashes as the network's `suite` says.
    pub(crate) fn new(suite: Suite) -> Self {
        Self { suite, map: MerkleMap::new(suite), general_dirty: true }
    }

    pub(crate) fn general_changed(&mut self) {
        self.general_dirty = true;
    }

    /// Chunks without bytes are none.
    fn set(&mut self, label: [u8; 7], chunk: &[u8]) {
        let digest = (!chunk.is_empty()).then(|| hash(self.suite, &[chunk]));
        self.map.set(&label, digest);
    }
}

impl Exchange {
    /// Encodes and hashes the chunks that changed, and the tree above them.
    pub(crate) fn digest(&mut self) -> Digest {
        let mut chunk = Vec::new();
        if std::mem::take(&mut self.tree.general_dirty) {
            self.encode_general(&mut chunk);
            self.tree.set(label(GENERAL, 0, 0), &chunk);
        }
        for page in self.accounts.dirty.take() {
            chunk.clear();
            encode_accounts(&self.accounts, page, &mut chunk);
            self.tree.set(label(ACCOUNTS, 0, page), &chunk);
        }
        for (symbol, book) in (0u16..).zip(&mut self.books) {
            if std::mem::take(&mut book.meta_dirty) {
                chunk.clear();
                encode_market(book, &mut chunk);
                self.tree.set(label(MARKET, symbol, 0), &chunk);
            }
            for page in book.slots.dirty.take() {
                chunk.clear();
                encode_orders(book, page, &mut chunk);
                self.tree.set(label(ORDERS, symbol, page), &chunk);
            }
        }
        self.tree.map.root()
    }

    /// The upper part of the tree of chunks.
    pub(crate) fn top(&mut self) -> TreeTop {
        self.digest();
        self.tree.map.top()
    }

    /// All chunks in ascending order of label.
    pub(crate) fn chunks(&self) -> Vec<(Bytes, Bytes)> {
        let mut chunks = Vec::new();
        let mut push = |label: [u8; 7], write: &dyn Fn(&mut Vec<u8>)| {
            let mut chunk = Vec::new();
            write(&mut chunk);
            if !chunk.is_empty() {
                chunks.push((Bytes::copy_from_slice(&label), Bytes::from(chunk)));
            }
        };
        push(label(GENERAL, 0, 0), &|out| self.encode_general(out));
        for page in 0..self.accounts.pages() {
            push(label(ACCOUNTS, 0, page), &|out| encode_accounts(&self.accounts, page, out));
        }
        for (symbol, book) in (0u16..).zip(&self.books) {
            push(label(MARKET, symbol, 0), &|out| encode_market(book, out));
        }
        for (symbol, book) in (0u16..).zip(&self.books) {
            for page in 0..book.slots.pages() {
                push(label(ORDERS, symbol, page), &|out| encode_orders(book, page, out));
            }
        }
        chunks
    }

    fn encode_general(&self, out: &mut Vec<u8>) {
        self.encode_fixed(out);
        for sum in &self.deposits {
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }

    /// What all snapshots of this exchange begin with.
    fn encode_fixed(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_le_bytes());
        self.settings.encode(out);
    }

    /// An exchange of the same settings from chunks. They are accepted only if they are exactly
    /// what the exchange that they make would write.
    pub(crate) fn restored(&self, chunks: &[(Bytes, Bytes)]) -> Result<Self, RestoreError> {
        let suite = self.tree.suite;
        let mut new =
            Self::new(self.settings.clone(), suite).expect("these settings stand already");
        for (label, chunk) in chunks {
            let mut label = Reader::new(label.clone(), suite);
            let kind = label.u8("label")?;
            let symbol = label.array("label").map(u16::from_be_bytes)?;
            let page = label.array("label").map(u32::from_be_bytes)?;
            label.finish()?;
            let mut input = Reader::new(chunk.clone(), suite);
            match kind {
                GENERAL => new.decode_general(&mut input)?,
                ACCOUNTS => new.decode_accounts(page, &mut input)?,
                MARKET | ORDERS => {
                    let book = new.books.get_mut(usize::from(symbol)).ok_or(RestoreError::Label)?;
                    match kind {
                        MARKET => decode_market(book, &mut input)?,
                        _ => {
                            let slots = self.settings.max_book_orders;
                            decode_orders(book, page, slots, &mut new.accounts, &mut input)?;
                        }
                    }
                }
                _ => return Err(RestoreError::Label),
            }
            input.finish()?;
        }
        new.check_whole()?;
        if new.chunks() != chunks {
            return Err(RestoreError::Contradiction("not in canonical form"));
        }
        Ok(new)
    }

    fn decode_general(&mut self, input: &mut Reader) -> Result<(), RestoreError> {
        let mut fixed = Vec::new();
        self.encode_fixed(&mut fixed);
        if input.take(fixed.len(), "settings")? != fixed {
            return Err(RestoreError::Settings);
        }
        for sum in &mut self.deposits {
            *sum = u128::from_le_bytes(input.array("deposits")?);
        }
        Ok(())
    }

    fn decode_accounts(&mut self, page: u32, input: &mut Reader) -> Result<(), RestoreError> {
        if u64::from(page) * u64::from(ACCOUNTS_PER_PAGE) != self.accounts.len() as u64 {
            return Err(RestoreError::Label);
        }
        for _ in 0..ACCOUNTS_PER_PAGE {
            if input.remaining() == 0 {
                break;
            }
            let client = ClientId(input.u64("account")?);
            let account = self
                .accounts
                .open(client)
                .ok_or(RestoreError::Contradiction("two accounts of one client"))?;
            for asset in 0..self.deposits.len() {
                let free = u128::from_le_bytes(input.array("balance")?);
                self.accounts.set_free(account, asset as u16, free);
            }
        }
        Ok(())
    }

    /// Builds what follows from the orders and checks what no chunk shows alone.
    fn check_whole(&mut self) -> Result<(), RestoreError> {
        if self.accounts.len() > self.settings.max_accounts as usize {
            return Err(RestoreError::Contradiction("too many accounts"));
        }
        for account in 0..self.accounts.len() as u32 {
            if self.accounts.get(account).open > self.settings.max_open_orders {
                return Err(RestoreError::Contradiction("too many open orders"));
            }
        }
        if !self.books.iter_mut().all(Book::rebuild) {
            return Err(RestoreError::Contradiction("a book that no orders could make"));
        }
        let credit = self.settings.credit * self.accounts.len() as u128;
        for (asset, deposited) in self.deposits.iter().enumerate() {
            let total = self.accounts.total(asset as u16);
            if *deposited > MAX_SUPPLY || total != Some(credit + deposited) {
                return Err(RestoreError::Contradiction("an asset's sum"));
            }
        }
        Ok(())
    }
}

fn encode_accounts(accounts: &Accounts, page: u32, out: &mut Vec<u8>) {
    let first = page * ACCOUNTS_PER_PAGE;
    for account in first..(first + ACCOUNTS_PER_PAGE).min(accounts.len() as u32) {
        out.extend_from_slice(&accounts.get(account).client.0.to_le_bytes());
        for balance in accounts.row(account) {
            out.extend_from_slice(&balance.free.to_le_bytes());
        }
    }
}

fn encode_market(book: &Book, out: &mut Vec<u8>) {
    for word in [book.next_seq, book.revision, book.trades] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for trade in &book.recent {
        for word in [trade.taker, trade.maker, trade.price, trade.quantity] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.push(trade.taker_side.number());
    }
}

fn decode_market(book: &mut Book, input: &mut Reader) -> Result<(), RestoreError> {
    book.next_seq = input.u64("market")?;
    book.revision = input.u64("market")?;
    book.trades = input.u64("market")?;
    let kept = book.trades.min(RECENT_TRADES as u64);
    let first = book.trades - kept + 1;
    book.recent = (first..first + kept)
        .map(|sequence| {
            Ok(Trade {
                sequence,
                taker: input.u64("trade")?,
                maker: input.u64("trade")?,
                price: input.u64("trade")?,
                quantity: input.u64("trade")?,
                taker_side: Side::from_number(input.u8("trade")?)?,
            })
        })
        .collect::<Result<VecDeque<_>, DecodeError>>()?;
    Ok(())
}

fn encode_orders(book: &Book, page: u32, out: &mut Vec<u8>) {
    for (slot, order) in book.slots.page(page) {
        out.push((slot % ORDERS_PER_PAGE) as u8);
        out.extend_from_slice(&order.account.to_le_bytes());
        out.push(order.side.number());
        for word in [order.id, order.price, order.remaining, order.seq] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

fn decode_orders(
    book: &mut Book,
    page: u32,
    max_slots: u32,
    accounts: &mut Accounts,
    input: &mut Reader,
) -> Result<(), RestoreError> {
    while input.remaining() > 0 {
        let offset = u32::from(input.u8("order")?);
        let account = input.u32("order")?;
        let side = Side::from_number(input.u8("order")?)?;
        let (id, price) = (input.u64("order")?, input.u64("order")?);
        let (remaining, seq) = (input.u64("order")?, input.u64("order")?);
        // Orders take the lowest free slot, so no slot beyond the most orders is ever used.
        let slot = page.checked_mul(ORDERS_PER_PAGE).and_then(|first| first.checked_add(offset));
        let Some(slot) = slot.filter(|&s| offset < ORDERS_PER_PAGE && s < max_slots) else {
            return Err(RestoreError::Contradiction("an order in no slot"));
        };
        if book.slots.is_taken(slot) || account as usize >= accounts.len() {
            return Err(RestoreError::Contradiction("an order's slot or account"));
        }
        let value = i64::try_from(price).ok().zip(i64::try_from(remaining).ok());
        if price == 0 || remaining == 0 || value.is_none_or(|(p, q)| p.checked_mul(q).is_none()) {
            return Err(RestoreError::Contradiction("an order's price or quantity"));
        }
        let (prev, next) = (NIL, NIL);
        book.slots.put(slot, Order { id, account, side, price, remaining, seq, prev, next });
        let (asset, cost) = book.cost(side, price, remaining);
        accounts.hold_again(account, asset, cost);
        accounts.order_rests(account);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;
    use crate::{Command, Settings};

    /// However large the state, one command costs one path a changed chunk.
    #[test]
    fn a_digest_costs_what_changed() {
        let mut cost = Vec::new();
        for orders in [1_000u64, 100_000] {
            let mut exchange = Exchange::new(Settings::markets(1), Suite::default()).unwrap();
            let client = ClientId(1);
            for id in 0..orders {
                let (side, price) = (Side::Bid, 1 + (id % 50) as i64);
                exchange.apply(client, &Command::Limit { symbol: 0, id, side, price, quantity: 9 });
            }
            exchange.digest();
            let before = exchange.tree.map.hashes();
            exchange.apply(client, &Command::Reduce { symbol: 0, id: 500, quantity: 3 });
            exchange.digest();
            cost.push(exchange.tree.map.hashes() - before);
        }
        // A hundred times the orders is seven levels more.
        assert!(cost[0] >= 3 && cost[1] <= cost[0] + 10, "{cost:?}");
    }

    /// A bit flipped anywhere in an order chunk of a busy market never panics the restore.
    #[test]
    fn no_flipped_bit_of_an_order_chunk_panics() {
        let mut exchange = Exchange::new(Settings::markets(1), Suite::default()).unwrap();
        for (i, command) in Flow::new(3, 1, 1).take(120).enumerate() {
            exchange.apply(ClientId(i as u64 % 3), &command);
        }
        let chunks = exchange.chunks();
        let at = chunks.iter().position(|(label, _)| label[0] == ORDERS).expect("orders rest");
        for bit in 0..chunks[at].1.len() * 8 {
            let mut chunk = chunks[at].1.to_vec();
            chunk[bit / 8] ^= 1 << (bit % 8);
            let mut damaged = chunks.clone();
            damaged[at].1 = chunk.into();
            if let Ok(other) = exchange.restored(&damaged) {
                assert_eq!(other.chunks(), damaged);
            }
        }
    }
}
