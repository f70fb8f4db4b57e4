//! What clients ask for and what they get.

use serde::{Deserialize, Serialize};

/// Which side of the book an order is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Buys the base asset for the quote asset.
    Bid,
    /// Sells the base asset for the quote asset.
    Ask,
}

impl Side {
    /// The other side.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Bid => Self::Ask,
            Self::Ask => Self::Bid,
        }
    }

    /// The word in files and queries: `bid` or `ask`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Bid => "bid",
            Self::Ask => "ask",
        }
    }
}

/// An operation of a client. Numbers are signed so that a wrong one can be said and is refused by
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Buys or sells at a price or better; what does not trade at once rests in the book.
    Limit {
        /// The market.
        symbol: u16,
        /// The client's name for the order, free among the symbol's resting orders.
        id: u64,
        /// Buy or sell.
        side: Side,
        /// The worst acceptable price, in ticks; positive.
        price: i64,
        /// How much, in lots; positive.
        quantity: i64,
    },
    /// Takes a resting order out of the book.
    Cancel {
        /// The market.
        symbol: u16,
        /// The order.
        id: u64,
    },
    /// Lowers what is left of a resting order; it keeps its place in the queue. An amount not below
    /// what is left changes nothing; zero or less cancels.
    Reduce {
        /// The market.
        symbol: u16,
        /// The order.
        id: u64,
        /// What is to be left at most, in lots.
        quantity: i64,
    },
    /// Buys or sells at a price or better; what does not trade at once is given up.
    ImmediateOrCancel {
        /// The market.
        symbol: u16,
        /// The client's name for the order, free among the symbol's resting orders.
        id: u64,
        /// Buy or sell.
        side: Side,
        /// The worst acceptable price, in ticks; positive.
        price: i64,
        /// How much, in lots; positive.
        quantity: i64,
    },
    /// Buys or sells the whole quantity at once at a price or better, or is refused.
    FillOrKill {
        /// The market.
        symbol: u16,
        /// The client's name for the order, free among the symbol's resting orders.
        id: u64,
        /// Buy or sell.
        side: Side,
        /// The worst acceptable price, in ticks; positive.
        price: i64,
        /// How much, in lots; positive.
        quantity: i64,
    },
    /// Buys or sells at whatever prices the book has; what it does not have is given up.
    Market {
        /// The market.
        symbol: u16,
        /// The client's name for the order, free among the symbol's resting orders.
        id: u64,
        /// Buy or sell.
        side: Side,
        /// How much, in lots; positive.
        quantity: i64,
    },
    /// Gives a resting order another price and another rest. With the same price and no more left
    /// than before it keeps its place in the queue; otherwise it comes in anew under its id.
    Replace {
        /// The market.
        symbol: u16,
        /// The order.
        id: u64,
        /// Its new price, in ticks; positive.
        price: i64,
        /// What is to be left of it, in lots; positive.
        quantity: i64,
    },
    /// Brings an amount of an asset into the exchange. Only the operator of the settings may.
    Deposit {
        /// The client whose account receives it.
        account: u64,
        /// The asset.
        asset: u16,
        /// How much, in the asset's smallest unit; positive.
        amount: i128,
    },
}

/// A trade, as the taker's outcome tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The number of the trade in its market; the first is 1.
    pub trade: u64,
    /// The resting order that it traded with.
    pub maker: u64,
    /// The price, which is the resting order's, in ticks.
    pub price: u64,
    /// How much, in lots.
    pub quantity: u64,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Refused; nothing was changed.
    Rejected(Reject),
    /// An order was accepted, or one that was replaced came in anew.
    Placed {
        /// What rests in the book, in lots; zero when nothing does.
        remaining: u64,
        /// What was given up, in lots: because the order met its limit of trades, or does not
        /// rest and found no more to trade with.
        dropped: u64,
        /// The trades it made at once, in order.
        fills: Vec<Fill>,
    },
    /// An order was reduced, or replaced in its place, and still rests.
    Reduced {
        /// What is left of it, in lots.
        remaining: u64,
    },
    /// An order is out of the book.
    Cancelled {
        /// What was left of it, in lots.
        quantity: u64,
    },
    /// A deposit was booked.
    Deposited {
        /// The account's free balance of the asset afterwards.
        free: u128,
    },
}

tercio_execution::reasons! {
    /// Why a command was refused.
    pub enum Reject {
        /// The first byte names no operation.
        UnknownOperation = 1, "unknown operation type";
        /// The bytes end inside the command.
        Truncated = 2, "the bytes end inside the command";
        /// Bytes are left after the command.
        TrailingBytes = 3, "bytes are left after the command";
        /// The side is neither bid nor ask.
        UnknownSide = 4, "the side is neither bid (0) nor ask (1)";
        /// There is no such market.
        UnknownSymbol = 5, "unknown symbol";
        /// There is no such asset.
        UnknownAsset = 6, "unknown asset";
        /// The price is zero or negative.
        InvalidPrice = 7, "the price must be positive";
        /// The quantity is zero or negative.
        InvalidQuantity = 8, "the quantity must be positive";
        /// Price times quantity is 2^63 or more.
        ValueOverflow = 9, "price times quantity overflows";
        /// An order of this id rests in the market.
        DuplicateOrder = 10, "an order with this id is resting";
        /// No order of this id rests in the market.
        UnknownOrder = 11, "no order with this id is resting";
        /// The order belongs to another account.
        NotOwner = 12, "the order belongs to another account";
        /// The account's free balance does not cover the order.
        InsufficientBalance = 13, "insufficient free balance";
        /// The account has as many resting orders as it may.
        TooManyOpenOrders = 14, "the account has too many open orders";
        /// The market has as many resting orders as it may.
        BookFull = 15, "the book is full";
        /// The exchange has as many accounts as it may.
        TooManyAccounts = 16, "the exchange has no room for another account";
        /// Only the operator may deposit.
        NotOperator = 17, "only the operator may deposit";
        /// The amount is zero or negative.
        InvalidAmount = 18, "the amount must be positive";
        /// The deposits of the asset would exceed 2^120.
        BalanceOverflow = 19, "the balance overflows";
        /// A fill-or-kill order would not trade wholly at once.
        NotFilled = 20, "the order cannot be filled at once";
    }
}
