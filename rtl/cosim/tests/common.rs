//! A network of four, of which the card's replica is the third.

use tercio_rtl_cosim::{ADDRESS, Backend, Model, Network, PORT, Settings, Size};

pub(crate) const ME: u8 = 2;

pub(crate) fn settings(direct: bool) -> Settings {
    Settings {
        address: ADDRESS,
        port: PORT,
        kinds: 0b110,
        members: 4,
        place: ME,
        low: 1_000_000_000_000,
        high: 1_000_000_000_400,
        seed: 0x7e5c_1017,
        direct,
        base: 0x1_2345_6780,
    }
}

/// Gives a backend its settings and the keys of all.
pub(crate) fn prepare(backend: &mut impl Backend, network: &Network, settings: &Settings) {
    backend.set(settings);
    for sender in 0..network.n() {
        backend.set_key(sender.into(), Some(&network.card_key(sender, ME)));
    }
}

pub(crate) fn model(network: &Network, settings: &Settings) -> Model {
    let mut model = Model::new(Size::BENCH, *settings, network.ring(ME).clone());
    prepare(&mut model, network, settings);
    model
}
