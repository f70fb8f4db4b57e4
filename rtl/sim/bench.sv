// What the simulation sees (unsafe/rtl): the card, smaller than its defaults, and beside it, for
// published vectors, one SHA-256 core, one HMAC engine and one Murmur3.
module bench #(
    parameter int LANES   = 17,
    parameter int SENDERS = 16,
    parameter int BUCKETS = 1024
) (
    input  logic         clock,
    input  logic         reset,
    input  logic         config_valid,
    output logic         config_ready,
    input  logic [5:0]   config_address,
    input  logic [31:0]  config_data,
    input  logic [3:0]   counter_which,
    output logic [31:0]  counter_value,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [511:0] in_data,
    input  logic [6:0]   in_bytes,
    input  logic         in_last,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [63:0]  write_address,
    output logic [511:0] write_data,
    output logic         up_valid,
    input  logic         up_ready,
    output logic [511:0] up_data,
    output logic [6:0]   up_bytes,
    output logic         up_last,
    output logic [3:0]   up_verdict,
    output logic         verdict_valid,
    output logic [3:0]   verdict,

    input  logic         sha_valid,
    output logic         sha_ready,
    input  logic [255:0] sha_chain,
    input  logic [511:0] sha_block,
    output logic         sha_done,
    output logic [255:0] sha_digest,

    input  logic         mac_valid,
    output logic         mac_ready,
    input  logic [415:0] mac_said,
    input  logic [255:0] mac_inner,
    input  logic [255:0] mac_outer,
    output logic         mac_done,
    output logic [127:0] mac_tag,

    input  logic         hash_valid,
    output logic         hash_ready,
    input  logic [31:0]  hash_seed,
    input  logic [159:0] hash_key,
    output logic         hash_done,
    output logic [31:0]  hash_value
);
    tercio_nic #(.LANES(LANES), .SENDERS(SENDERS), .BUCKETS(BUCKETS)) nic (.*);

    sha256_core sha (
        .clock(clock),
        .reset(reset),
        .start(sha_valid),
        .start_ready(sha_ready),
        .chain(sha_chain),
        .block(sha_block),
        .done(sha_done),
        .take(sha_done),
        .digest(sha_digest)
    );

    hmac_engine mac (
        .clock(clock),
        .reset(reset),
        .job_valid(mac_valid),
        .job_ready(mac_ready),
        .said(mac_said),
        .inner(mac_inner),
        .outer(mac_outer),
        .tag_valid(mac_done),
        .tag_ready(1'b1),
        .tag(mac_tag)
    );

    murmur3 murmur (
        .clock(clock),
        .reset(reset),
        .seed(hash_seed),
        .in_valid(hash_valid),
        .in_ready(hash_ready),
        .key(hash_key),
        .out_valid(hash_done),
        .out_ready(1'b1),
        .hash(hash_value)
    );
endmodule
