// The hash submodule of the message store module (Yang et al., Fig. 10): gives each verified vote
// its bucket. By Murmur3 of its key, or, as the host chose, by (sequence mod L, type, sender):
// there a sender reaches no bucket but its own, whatever keys it makes up.
//
//   bucket = Murmur3(key) mod BUCKETS
//   bucket = ((seq mod L) * 2 + kind mod 2) * SENDERS + sender     L = BUCKETS / (2 * SENDERS)
//
// Votes wait in a queue beside the hash; packets whose verdict stands go along without one.
//
// Latency: 10 cycles. Throughput: a vote each 7 cycles.
module hash_index #(
    parameter int BUCKETS = 4096,
    parameter int SENDERS = 128
) (
    input  logic               clock,
    input  logic               reset,
    input  logic [31:0]        seed,    // of Murmur3
    input  logic               direct,  // the second of the two
    input  logic               in_valid,
    output logic               in_ready,
    input  nic_pkg::vote_t     in,
    output logic               out_valid,
    input  logic               out_ready,
    output nic_pkg::placed_t   out
);
    localparam int SENDER_BITS = $clog2(SENDERS);
    localparam int NUMBER_BITS = $clog2(BUCKETS) - SENDER_BITS - 1;

    wire queue_ready, hash_ready;
    wire wanted = in.verdict == nic_pkg::OPEN;
    assign in_ready = queue_ready && (hash_ready || !wanted);

    wire waiting_valid, hash_valid;
    nic_pkg::vote_t waiting;
    wire open = waiting.verdict == nic_pkg::OPEN;
    assign out_valid = waiting_valid && (hash_valid || !open);
    wire go = out_valid && out_ready;

    fifo #(.WIDTH(nic_pkg::VOTE_BITS), .DEPTH(4)) queue (
        .clock(clock),
        .reset(reset),
        .in_valid(in_valid && in_ready),
        .in_ready(queue_ready),
        .in(in),
        .out_valid(waiting_valid),
        .out_ready(go),
        .out(waiting)
    );

    wire [31:0] hash;
    murmur3 murmur (
        .clock(clock),
        .reset(reset),
        .seed(seed),
        .in_valid(in_valid && queue_ready && wanted),
        .in_ready(hash_ready),
        .key(in.said[nic_pkg::KEY_BITS-1:0]),
        .out_valid(hash_valid),
        .out_ready(go && open),
        .hash(hash)
    );

    wire [SENDER_BITS-1:0] sender = waiting.said[16 +: SENDER_BITS];
    wire [NUMBER_BITS-1:0] number = waiting.said[12*8 +: NUMBER_BITS];
    wire [31:0] own_bucket = 32'({number, waiting.said[0], sender});

    assign out.vote = waiting;
    assign out.bucket = (direct ? own_bucket : hash) & 32'(BUCKETS - 1);
endmodule
