// The part of a network card that verifies votes and files them (Yang et al., 3.2 and 3.3): the
// verification module (Fig. 7) and the message store module (Fig. 10) behind it.
//
//             +--> verify_module --> store_module --> writes into the table in host memory
//   packets --+                           | verdicts
//             +--> packet_hold <----------+
//                       +--> up: packets that the host must see, as they came
//
// Interface. Packets: beats of 64 bytes with valid and ready, all full but a packet's last; what
// comes before (the MAC) has checked the frame check sequence and the IP header's checksum. Writes:
// 64 bytes each, to be carried out in order. Up: as packets, with the reason. `verdict_valid` and
// `verdict` tell of each packet, once, in order. `config_*`: see config_regs.
//
// Back-pressure from either output reaches the input; nothing is lost inside.
//
// Latency of a vote: 149 cycles from its last beat to its verdict. Throughput: a beat a cycle,
// and a vote each 8 cycles or less, with 17 lanes (decision 0060).
module tercio_nic #(
    parameter int LANES   = 17,
    parameter int SENDERS = 128,
    parameter int BUCKETS = 4096,
    parameter int LATENCY = 2,
    parameter int BEATS   = 256
) (
    input  logic                          clock,
    input  logic                          reset,
    input  logic                          config_valid,
    output logic                          config_ready,
    input  logic [5:0]                    config_address,
    input  logic [31:0]                   config_data,
    input  logic [3:0]                    counter_which,
    output logic [31:0]                   counter_value,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [nic_pkg::BEAT_BITS-1:0] in_data,
    input  logic [6:0]                    in_bytes,
    input  logic                          in_last,
    output logic                          write_valid,
    input  logic                          write_ready,
    output logic [63:0]                   write_address,
    output logic [nic_pkg::BEAT_BITS-1:0] write_data,
    output logic                          up_valid,
    input  logic                          up_ready,
    output logic [nic_pkg::BEAT_BITS-1:0] up_data,
    output logic [6:0]                    up_bytes,
    output logic                          up_last,
    output logic [3:0]                    up_verdict,
    output logic                          verdict_valid,
    output logic [3:0]                    verdict
);
    nic_pkg::settings_t settings;
    nic_pkg::without_t without;
    wire key_write, key_valid, free, free_granted;
    wire [15:0] key_sender;
    wire [511:0] key_midstates;
    wire [31:0] free_bucket;
    wire [nic_pkg::SLOTS-1:0] free_slots;

    config_regs registers (
        .clock(clock),
        .reset(reset),
        .valid(config_valid),
        .ready(config_ready),
        .address(config_address),
        .data(config_data),
        .settings(settings),
        .without(without),
        .key_write(key_write),
        .key_sender(key_sender),
        .key_valid(key_valid),
        .key_midstates(key_midstates),
        .free(free),
        .free_granted(free_granted),
        .free_bucket(free_bucket),
        .free_slots(free_slots)
    );

    wire verify_ready, hold_ready;
    assign in_ready = verify_ready && hold_ready;

    wire voted_valid, voted_ready;
    nic_pkg::vote_t voted;
    verify_module #(.LANES(LANES), .SENDERS(SENDERS)) verify (
        .clock(clock),
        .reset(reset),
        .settings(settings),
        .without(without),
        .key_write(key_write),
        .key_write_sender(key_sender),
        .key_write_valid(key_valid),
        .key_write_midstates(key_midstates),
        .in_valid(in_valid && hold_ready),
        .in_ready(verify_ready),
        .in_data(in_data),
        .in_bytes(in_bytes),
        .in_last(in_last),
        .out_valid(voted_valid),
        .out_ready(voted_ready),
        .out(voted)
    );

    wire given_valid, given_ready;
    nic_pkg::verdict_t given;
    store_module #(.BUCKETS(BUCKETS), .SENDERS(SENDERS), .LATENCY(LATENCY)) store (
        .clock(clock),
        .reset(reset),
        .table_base(settings.table_base),
        .seed(settings.seed),
        .direct(settings.direct),
        .no_replay(without.replay),
        .no_double_up(without.double_up),
        .no_overflow(without.overflow),
        .free(free),
        .free_granted(free_granted),
        .free_bucket(free_bucket),
        .free_slots(free_slots),
        .in_valid(voted_valid),
        .in_ready(voted_ready),
        .in(voted),
        .write_valid(write_valid),
        .write_ready(write_ready),
        .write_address(write_address),
        .write_data(write_data),
        .verdict_valid(given_valid),
        .verdict_ready(given_ready),
        .verdict(given)
    );

    // A short queue, so that the hold lets go of one packet while the next ones are decided.
    wire kept_valid, kept_ready;
    nic_pkg::verdict_t kept;
    fifo #(.WIDTH(4), .DEPTH(8)) verdicts (
        .clock(clock),
        .reset(reset),
        .in_valid(given_valid),
        .in_ready(given_ready),
        .in(given),
        .out_valid(kept_valid),
        .out_ready(kept_ready),
        .out(kept)
    );

    nic_pkg::verdict_t up_reason;
    assign up_verdict = up_reason;
    packet_hold #(.BEATS(BEATS)) hold (
        .clock(clock),
        .reset(reset),
        .in_valid(in_valid && verify_ready),
        .in_ready(hold_ready),
        .in_data(in_data),
        .in_bytes(in_bytes),
        .in_last(in_last),
        .verdict_valid(kept_valid),
        .verdict_ready(kept_ready),
        .verdict(kept),
        .up_valid(up_valid),
        .up_ready(up_ready),
        .up_data(up_data),
        .up_bytes(up_bytes),
        .up_last(up_last),
        .up_verdict(up_reason)
    );

    assign verdict_valid = given_valid && given_ready;
    assign verdict = given;

    counters counted (
        .clock(clock),
        .reset(reset),
        .count(verdict_valid),
        .verdict(given),
        .which(counter_which),
        .value(counter_value)
    );
endmodule
