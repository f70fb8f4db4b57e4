// One cycle of the Verilated bench at a time, for Rust. `BenchIn` and `BenchOut` are the structs of
// `lib.rs`, field by field.

#include "Bench.h"
#include "verilated.h"
#include <cstdint>
#include <cstring>

struct BenchIn {
    uint32_t config_data;
    uint32_t hash_seed;
    uint32_t sha_chain[8];   // A first
    uint32_t sha_block[16];  // W0 first
    uint32_t mac_inner[8];
    uint32_t mac_outer[8];
    uint8_t in_data[64];
    uint8_t mac_said[52];
    uint8_t hash_key[20];
    uint8_t reset, config_valid, config_address, counter_which;
    uint8_t in_valid, in_bytes, in_last, write_ready, up_ready;
    uint8_t sha_valid, mac_valid, hash_valid;
};

struct BenchOut {
    uint64_t write_address;
    uint32_t counter_value;
    uint32_t hash_value;
    uint32_t sha_digest[8];
    uint8_t write_data[64];
    uint8_t up_data[64];
    uint8_t mac_tag[16];
    uint8_t config_ready, in_ready, write_valid;
    uint8_t up_valid, up_bytes, up_last, up_verdict, verdict_valid, verdict;
    uint8_t sha_ready, sha_done, mac_ready, mac_done, hash_ready, hash_done;
};

struct Sim {
    VerilatedContext context;
    Bench bench{&context};
};

// Verilator keeps the least significant word first; A and W0 are the most significant.
template <int N, typename W> static void put_words(W &wide, const uint32_t *words) {
    for (int i = 0; i < N; i++) wide[N - 1 - i] = words[i];
}

extern "C" {

Sim *tercio_bench_new() { return new Sim; }

void tercio_bench_free(Sim *sim) {
    sim->bench.final();
    delete sim;
}

// Sets the inputs, reads the outputs as they stand before the clock's edge, and gives the edge.
void tercio_bench_cycle(Sim *sim, const BenchIn *in, BenchOut *out) {
    Bench &b = sim->bench;
    b.reset = in->reset;
    b.config_valid = in->config_valid;
    b.config_address = in->config_address;
    b.config_data = in->config_data;
    b.counter_which = in->counter_which;
    b.in_valid = in->in_valid;
    b.in_bytes = in->in_bytes;
    b.in_last = in->in_last;
    b.write_ready = in->write_ready;
    b.up_ready = in->up_ready;
    b.sha_valid = in->sha_valid;
    b.mac_valid = in->mac_valid;
    b.hash_valid = in->hash_valid;
    if (in->in_valid) std::memcpy(b.in_data.data(), in->in_data, 64);
    if (in->sha_valid) {
        put_words<8>(b.sha_chain, in->sha_chain);
        put_words<16>(b.sha_block, in->sha_block);
    }
    if (in->mac_valid) {
        std::memcpy(b.mac_said.data(), in->mac_said, 52);
        put_words<8>(b.mac_inner, in->mac_inner);
        put_words<8>(b.mac_outer, in->mac_outer);
    }
    if (in->hash_valid) {
        std::memcpy(b.hash_key.data(), in->hash_key, 20);
        b.hash_seed = in->hash_seed;
    }
    b.clock = 0;
    b.eval();

    out->config_ready = b.config_ready;
    out->counter_value = b.counter_value;
    out->in_ready = b.in_ready;
    out->write_valid = b.write_valid;
    if (b.write_valid) {
        out->write_address = b.write_address;
        std::memcpy(out->write_data, b.write_data.data(), 64);
    }
    out->up_valid = b.up_valid;
    if (b.up_valid) {
        std::memcpy(out->up_data, b.up_data.data(), 64);
        out->up_bytes = b.up_bytes;
        out->up_last = b.up_last;
        out->up_verdict = b.up_verdict;
    }
    out->verdict_valid = b.verdict_valid;
    out->verdict = b.verdict;
    out->sha_ready = b.sha_ready;
    out->sha_done = b.sha_done;
    if (b.sha_done) for (int i = 0; i < 8; i++) out->sha_digest[i] = b.sha_digest[7 - i];
    out->mac_ready = b.mac_ready;
    out->mac_done = b.mac_done;
    if (b.mac_done) std::memcpy(out->mac_tag, b.mac_tag.data(), 16);
    out->hash_ready = b.hash_ready;
    out->hash_done = b.hash_done;
    out->hash_value = b.hash_value;

    b.clock = 1;
    b.eval();
}
}

// Verilator's run time asks for it; the bench does not look at time.
double sc_time_stamp() { return 0; }
