//! A network in this process and in memory, to try applications and clients with.

use crate::{Network, NetworkError, Spec, free_ports, start};
use std::net::TcpListener;
use tercio_client::{Client, ConnectError, CoreSettings};
use tercio_replica::ReplicaHandle;
use tercio_types::RequestSeq;

/// Replicas on threads of this process, on free ports of the loopback network. Everything is in
/// memory and ends with it.
#[derive(Debug)]
pub struct LocalNetwork {
    spec: Spec,
    network: Network,
    replicas: Vec<ReplicaHandle>,
}

impl LocalNetwork {
    /// Starts the replicas of a network that runs the application of `spec`.
    ///
    /// # Errors
    /// When the spec makes no network, or the system gives no ports.
    pub fn start(spec: Spec) -> Result<Self, NetworkError> {
        let sockets = free_ports(spec.replicas).map_err(NetworkError::Port)?;
        let addresses = sockets.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
        let network = Network::found(&spec, &addresses.map_err(NetworkError::Port)?)?;
        let start = |(id, socket)| {
            let config = network.in_memory(id, socket, &spec);
            start(config, network.genesis(), network.protocols())
        };
        let replicas = spec.ids().into_iter().zip(sockets).map(start).collect::<Result<_, _>>()?;
        Ok(Self { spec, network, replicas })
    }

    /// Keys and genesis.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The replicas, in order of their ids.
    #[must_use]
    pub fn replicas(&self) -> &[ReplicaHandle] {
        &self.replicas
    }

    /// The `i`-th client, linked to a quorum of the replicas. It goes on where an earlier one of
    /// that number ended.
    ///
    /// # Errors
    /// When too few of them can be reached.
    pub fn client(&self, i: usize) -> Result<Client, ConnectError> {
        let core = CoreSettings { first: None, ..self.spec.core_settings() };
        let mut client = self.network.client(i, core)?;
        let resumed = client.resume(RequestSeq(1));
        resumed.map_err(|error| ConnectError::Resume(Box::new(error)))?;
        Ok(client)
    }

    /// Stops all replicas in an orderly way.
    ///
    /// # Errors
    /// When one had stopped by itself.
    pub fn stop(self) -> Result<(), NetworkError> {
        self.replicas.into_iter().try_for_each(|replica| {
            let id = replica.id().0;
            replica.stop().map_err(|error| NetworkError::Stopped { id, error })
        })
    }
}
