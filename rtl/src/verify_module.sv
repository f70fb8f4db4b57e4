// The message verification module (Yang et al., Fig. 7): packets in, one vote_t a packet out, in
// order, with its verdict or OPEN when the MAC holds.
//
//   beats -> preprocess -+-> queue of votes ------------+-> tag_compare -> out
//              |         +-> hmac_pool -> tags in order-+
//              +-> tag_extract
//
// Latency of a vote: 131 cycles behind its last beat. Throughput: a beat a cycle, and a vote each
// 130 / LANES cycles.
module verify_module #(
    parameter int LANES   = 17,
    parameter int SENDERS = 128
) (
    input  logic                          clock,
    input  logic                          reset,
    input  nic_pkg::settings_t            settings,
    input  nic_pkg::without_t             without,
    input  logic                          key_write,
    input  logic [15:0]                   key_write_sender,
    input  logic                          key_write_valid,
    input  logic [511:0]                  key_write_midstates,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [nic_pkg::BEAT_BITS-1:0] in_data,
    input  logic [6:0]                    in_bytes,
    input  logic                          in_last,
    output logic                          out_valid,
    input  logic                          out_ready,
    output nic_pkg::vote_t                out
);
    // Enough for one vote in every lane, and some that were decided among them.
    localparam int QUEUE = 2 * (1 << $clog2(LANES));

    wire key_read, key_valid;
    wire [15:0] key_sender;
    wire [255:0] inner, outer;
    key_table #(.SENDERS(SENDERS)) keys (
        .clock(clock),
        .reset(reset),
        .write(key_write),
        .write_sender(key_write_sender),
        .write_valid(key_write_valid),
        .write_midstates(key_write_midstates),
        .read(key_read),
        .read_sender(key_sender),
        .valid(key_valid),
        .inner(inner),
        .outer(outer)
    );

    wire parsed_valid, queue_ready, job_ready;
    nic_pkg::vote_t parsed;
    wire needs_mac = parsed.verdict == nic_pkg::OPEN;
    wire parsed_ready = queue_ready && (job_ready || !needs_mac);
    preprocess pre (
        .clock(clock),
        .reset(reset),
        .settings(settings),
        .without(without),
        .in_valid(in_valid),
        .in_ready(in_ready),
        .in_data(in_data),
        .in_bytes(in_bytes),
        .in_last(in_last),
        .key_read(key_read),
        .key_sender(key_sender),
        .key_valid(key_valid),
        .out_valid(parsed_valid),
        .out_ready(parsed_ready),
        .out(parsed)
    );

    wire tag_valid, tag_ready;
    wire [nic_pkg::TAG_BITS-1:0] tag;
    hmac_pool #(.LANES(LANES)) pool (
        .clock(clock),
        .reset(reset),
        .job_valid(parsed_valid && queue_ready && needs_mac),
        .job_ready(job_ready),
        .said(parsed.said),
        .inner(inner),
        .outer(outer),
        .tag_valid(tag_valid),
        .tag_ready(tag_ready),
        .tag(tag)
    );

    wire waiting_valid, waiting_ready;
    nic_pkg::vote_t waiting;
    fifo #(.WIDTH(nic_pkg::VOTE_BITS), .DEPTH(QUEUE)) queue (
        .clock(clock),
        .reset(reset),
        .in_valid(parsed_valid && parsed_ready),
        .in_ready(queue_ready),
        .in(parsed),
        .out_valid(waiting_valid),
        .out_ready(waiting_ready),
        .out(waiting)
    );

    tag_compare compare (
        .no_mac(without.mac),
        .in_valid(waiting_valid),
        .in_ready(waiting_ready),
        .in(waiting),
        .tag_valid(tag_valid),
        .tag_ready(tag_ready),
        .tag(tag),
        .out_valid(out_valid),
        .out_ready(out_ready),
        .out(out)
    );
endmodule
