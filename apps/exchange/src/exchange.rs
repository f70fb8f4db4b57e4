//! The rules: what each command does to books and accounts.

use crate::accounts::Accounts;
use crate::book::Book;
use crate::settings::MAX_SUPPLY;
use crate::state::StateTree;
use crate::{Command, Fill, Outcome, Reject, Settings, SettingsError, Side};
use bytes::Bytes;
use tercio_types::{ClientId, Suite};

/// The exchange: every market's book and every account. See `docs/exchange.md` for the rules.
#[derive(Clone)]
pub struct Exchange {
    pub(crate) settings: Settings,
    pub(crate) accounts: Accounts,
    pub(crate) books: Vec<Book>,
    /// What was deposited of each asset.
    pub(crate) deposits: Vec<u128>,
    pub(crate) tree: StateTree,
}

/// What an order does with what does not trade at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It rests in the book.
    Limit,
    /// It is given up.
    ImmediateOrCancel,
    /// Nothing trades then.
    FillOrKill,
    /// It is given up; the order takes any price, and has none of its own.
    Market,
}

/// An order as a client gives it.
#[derive(Clone, Copy)]
struct NewOrder {
    kind: Kind,
    symbol: u16,
    id: u64,
    side: Side,
    /// Anything for [`Kind::Market`].
    price: i64,
    quantity: i64,
}

/// An order on its way in, its numbers checked.
struct Taker {
    account: u32,
    id: u64,
    side: Side,
    price: u64,
    quantity: u64,
    /// Whether what is left of it rests.
    rests: bool,
}

/// Looks whether an order's numbers make sense together.
fn check_numbers(price: i64, quantity: i64) -> Result<(u64, u64), Reject> {
    if price <= 0 {
        return Err(Reject::InvalidPrice);
    }
    if quantity <= 0 {
        return Err(Reject::InvalidQuantity);
    }
    price.checked_mul(quantity).ok_or(Reject::ValueOverflow)?;
    Ok((price as u64, quantity as u64))
}

impl Exchange {
    /// An exchange without orders or accounts, whose state is hashed as `suite` says: the network's.
    ///
    /// # Errors
    /// When the settings make no exchange.
    pub fn new(settings: Settings, suite: Suite) -> Result<Self, SettingsError> {
        settings.validate()?;
        let assets = settings.assets();
        Ok(Self {
            accounts: Accounts::new(assets, settings.credit),
            books: settings.symbols.iter().map(Book::new).collect(),
            deposits: vec![0; assets],
            tree: StateTree::new(suite),
            settings,
        })
    }

    /// The rules that it runs under.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Executes a command from its bytes.
    pub fn apply_bytes(&mut self, client: ClientId, bytes: &Bytes) -> Outcome {
        match Command::parse(bytes) {
            Ok(command) => self.apply(client, &command),
            Err(reason) => Outcome::Rejected(reason),
        }
    }

    /// Executes a command of `client`. A rejected one changes nothing.
    pub fn apply(&mut self, client: ClientId, command: &Command) -> Outcome {
        let outcome = match *command {
            Command::Limit { symbol, id, side, price, quantity } => {
                let kind = Kind::Limit;
                self.enter(client, &NewOrder { kind, symbol, id, side, price, quantity })
            }
            Command::ImmediateOrCancel { symbol, id, side, price, quantity } => {
                let kind = Kind::ImmediateOrCancel;
                self.enter(client, &NewOrder { kind, symbol, id, side, price, quantity })
            }
            Command::FillOrKill { symbol, id, side, price, quantity } => {
                let kind = Kind::FillOrKill;
                self.enter(client, &NewOrder { kind, symbol, id, side, price, quantity })
            }
            Command::Market { symbol, id, side, quantity } => {
                let kind = Kind::Market;
                self.enter(client, &NewOrder { kind, symbol, id, side, price: 1, quantity })
            }
            Command::Replace { symbol, id, price, quantity } => {
                self.replace(client, symbol, id, price, quantity)
            }
            Command::Cancel { symbol, id } => self.reduce(client, symbol, id, 0),
            Command::Reduce { symbol, id, quantity } => self.reduce(client, symbol, id, quantity),
            Command::Deposit { account, asset, amount } => {
                self.deposit(client, ClientId(account), asset, amount)
            }
        };
        outcome.unwrap_or_else(Outcome::Rejected)
    }

    fn enter(&mut self, client: ClientId, order: &NewOrder) -> Result<Outcome, Reject> {
        let NewOrder { kind, symbol, id, side, price, quantity } = *order;
        let book = self.books.get(usize::from(symbol)).ok_or(Reject::UnknownSymbol)?;
        let (price, quantity) = check_numbers(price, quantity)?;
        let rests = kind == Kind::Limit;
        let price = match (kind, side) {
            (Kind::Market, Side::Bid) => u64::MAX,
            (Kind::Market, Side::Ask) => 0,
            _ => price,
        };
        if book.find(id).is_some() {
            return Err(Reject::DuplicateOrder);
        }
        if rests && book.slots.len() >= self.settings.max_book_orders {
            return Err(Reject::BookFull);
        }
        let found = self.accounts.find(client);
        let open = found.map_or(0, |account| self.accounts.get(account).open);
        if rests && open >= self.settings.max_open_orders {
            return Err(Reject::TooManyOpenOrders);
        }
        let max_fills = self.settings.max_fills;
        let (asset, cost) = match (kind, side) {
            (Kind::Market, Side::Bid) => {
                (book.quote, book.reach(side, price, quantity, max_fills).1)
            }
            _ => book.cost(side, price, quantity),
        };
        let free = found.map_or(self.settings.credit, |a| self.accounts.balance(a, asset).free);
        if free < cost {
            return Err(Reject::InsufficientBalance);
        }
        if kind == Kind::FillOrKill && book.reach(side, price, quantity, max_fills).0 < quantity {
            return Err(Reject::NotFilled);
        }
        let account = self.account(client)?;
        let book = &mut self.books[usize::from(symbol)];
        let taker = Taker { account, id, side, price, quantity, rests };
        Ok(place(&mut self.accounts, book, &taker, max_fills as usize))
    }

    /// The slot of an order that is the client's.
    fn own(&self, client: ClientId, symbol: u16, id: u64) -> Result<u32, Reject> {
        let book = self.books.get(usize::from(symbol)).ok_or(Reject::UnknownSymbol)?;
        let slot = book.find(id).ok_or(Reject::UnknownOrder)?;
        let owner = book.slots.get(slot).account;
        let owns = self.accounts.get(owner).client == client;
        owns.then_some(slot).ok_or(Reject::NotOwner)
    }

    fn replace(
        &mut self,
        client: ClientId,
        symbol: u16,
        id: u64,
        price: i64,
        quantity: i64,
    ) -> Result<Outcome, Reject> {
        let slot = self.own(client, symbol, id)?;
        let book = &mut self.books[usize::from(symbol)];
        let old = *book.slots.get(slot);
        let (price, left) = check_numbers(price, quantity)?;
        if price == old.price && left <= old.remaining {
            return self.reduce(client, symbol, id, quantity);
        }
        let (asset, released) = book.cost(old.side, old.price, old.remaining);
        let (_, cost) = book.cost(old.side, price, left);
        if self.accounts.balance(old.account, asset).free + released < cost {
            return Err(Reject::InsufficientBalance);
        }
        self.accounts.release(old.account, asset, released);
        book.remove(slot);
        self.accounts.order_gone(old.account);
        let (account, side, rests) = (old.account, old.side, true);
        let taker = Taker { account, id, side, price, quantity: left, rests };
        Ok(place(&mut self.accounts, book, &taker, self.settings.max_fills as usize))
    }

    /// The client's account, opened when there is none.
    fn account(&mut self, client: ClientId) -> Result<u32, Reject> {
        if let Some(account) = self.accounts.find(client) {
            return Ok(account);
        }
        if self.accounts.len() >= self.settings.max_accounts as usize {
            return Err(Reject::TooManyAccounts);
        }
        Ok(self.accounts.open(client).expect("the client had no account"))
    }

    fn reduce(
        &mut self,
        client: ClientId,
        symbol: u16,
        id: u64,
        quantity: i64,
    ) -> Result<Outcome, Reject> {
        let slot = self.own(client, symbol, id)?;
        let book = &mut self.books[usize::from(symbol)];
        let order = *book.slots.get(slot);
        book.revision += 1;
        book.meta_dirty = true;
        let target = order.remaining.min(quantity.max(0) as u64);
        let released = order.remaining - target;
        let (asset, cost) = book.cost(order.side, order.price, released);
        self.accounts.release(order.account, asset, cost);
        if target == 0 {
            book.remove(slot);
            self.accounts.order_gone(order.account);
            return Ok(Outcome::Cancelled { quantity: released });
        }
        if released > 0 {
            book.shrink(slot, released);
        }
        Ok(Outcome::Reduced { remaining: target })
    }

    fn deposit(
        &mut self,
        client: ClientId,
        receiver: ClientId,
        asset: u16,
        amount: i128,
    ) -> Result<Outcome, Reject> {
        if self.settings.operator != Some(client) {
            return Err(Reject::NotOperator);
        }
        let sum = *self.deposits.get(usize::from(asset)).ok_or(Reject::UnknownAsset)?;
        let amount = match u128::try_from(amount) {
            Ok(amount) if amount > 0 => amount,
            _ => return Err(Reject::InvalidAmount),
        };
        let sum = match sum.checked_add(amount) {
            Some(sum) if sum <= MAX_SUPPLY => sum,
            _ => return Err(Reject::BalanceOverflow),
        };
        let account = self.account(receiver)?;
        self.deposits[usize::from(asset)] = sum;
        self.tree.general_changed();
        self.accounts.add(account, asset, amount);
        Ok(Outcome::Deposited { free: self.accounts.balance(account, asset).free })
    }

    /// Every asset's sum over all accounts beside what it must be: credit and deposits.
    #[must_use]
    pub fn supplies(&self) -> Vec<(u128, u128)> {
        let credit = self.settings.credit * self.accounts.len() as u128;
        let total = |asset: usize| self.accounts.total(asset as u16).expect("below 2^121");
        self.deposits.iter().enumerate().map(|(a, &sum)| (total(a), credit + sum)).collect()
    }
}

/// Trades an order against the other side, best price first and oldest order first at a price,
/// each at the resting order's price; lets the rest rest, or gives it up.
fn place(accounts: &mut Accounts, book: &mut Book, taker: &Taker, max_fills: usize) -> Outcome {
    book.revision += 1;
    book.meta_dirty = true;
    let crosses = |best: u64| match taker.side {
        Side::Bid => best <= taker.price,
        Side::Ask => best >= taker.price,
    };
    let mut remaining = taker.quantity;
    let mut dropped = 0;
    let mut fills = Vec::new();
    while remaining > 0 {
        let Some((price, slot)) = book.best(taker.side.opposite()) else { break };
        if !crosses(price) {
            break;
        }
        if fills.len() == max_fills {
            // Resting here would cross the book.
            dropped = std::mem::take(&mut remaining);
            break;
        }
        let maker = *book.slots.get(slot);
        let quantity = remaining.min(maker.remaining);
        remaining -= quantity;
        if quantity == maker.remaining {
            book.remove(slot);
            accounts.order_gone(maker.account);
        } else {
            book.shrink(slot, quantity);
        }
        settle(accounts, book, taker, maker.account, price, quantity);
        let trade = book.record(taker.id, maker.id, price, quantity, taker.side);
        fills.push(Fill { trade, maker: maker.id, price, quantity });
    }
    if !taker.rests {
        dropped += std::mem::take(&mut remaining);
    }
    if remaining > 0 {
        let (asset, cost) = book.cost(taker.side, taker.price, remaining);
        accounts.hold(taker.account, asset, cost);
        accounts.order_rests(taker.account);
        book.rest(taker.account, taker.id, taker.side, taker.price, remaining);
    }
    Outcome::Placed { remaining, dropped, fills }
}

/// Moves the two assets of a trade. The taker pays from what is free (its whole order was checked
/// against that), the maker from what is held. Both may be one account.
fn settle(
    accounts: &mut Accounts,
    book: &Book,
    taker: &Taker,
    maker: u32,
    price: u64,
    quantity: u64,
) {
    let (paid, amount) = book.cost(taker.side, price, quantity);
    accounts.spend(taker.account, paid, amount);
    accounts.add(maker, paid, amount);
    let (received, amount) = book.cost(taker.side.opposite(), price, quantity);
    accounts.spend_held(maker, received, amount);
    accounts.add(taker.account, received, amount);
}
