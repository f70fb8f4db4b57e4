// The message store module (Yang et al., Fig. 10): verified votes in, writes into the table in host
// memory and one verdict a packet out, in order.
//
//   votes -> hash_index -> collision_manager -> queue -> upload -> writes, verdicts
//
// Latency: 18 cycles with LATENCY 2. Throughput: a vote each 7 cycles.
module store_module #(
    parameter int BUCKETS = 4096,
    parameter int SENDERS = 128,
    parameter int LATENCY = 2
) (
    input  logic                          clock,
    input  logic                          reset,
    input  logic [63:0]                   table_base,
    input  logic [31:0]                   seed,
    input  logic                          direct,
    input  logic                          no_replay,    // defences taken out
    input  logic                          no_double_up,
    input  logic                          no_overflow,
    input  logic                          free,
    output logic                          free_granted,
    input  logic [31:0]                   free_bucket,
    input  logic [nic_pkg::SLOTS-1:0]     free_slots,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  nic_pkg::vote_t                in,
    output logic                          write_valid,
    input  logic                          write_ready,
    output logic [63:0]                   write_address,
    output logic [nic_pkg::BEAT_BITS-1:0] write_data,
    output logic                          verdict_valid,
    input  logic                          verdict_ready,
    output nic_pkg::verdict_t             verdict
);
    wire placed_valid, placed_ready, filed_valid, filed_ready;
    nic_pkg::placed_t placed;
    nic_pkg::filed_t filed;
    wire leaving_valid, leaving_ready;
    nic_pkg::filed_t leaving;

    hash_index #(.BUCKETS(BUCKETS), .SENDERS(SENDERS)) index (
        .clock(clock),
        .reset(reset),
        .seed(seed),
        .direct(direct),
        .in_valid(in_valid),
        .in_ready(in_ready),
        .in(in),
        .out_valid(placed_valid),
        .out_ready(placed_ready),
        .out(placed)
    );

    collision_manager #(.BUCKETS(BUCKETS), .LATENCY(LATENCY)) collisions (
        .clock(clock),
        .reset(reset),
        .no_replay(no_replay),
        .no_double_up(no_double_up),
        .no_overflow(no_overflow),
        .free(free),
        .free_granted(free_granted),
        .free_bucket(free_bucket),
        .free_slots(free_slots),
        .in_valid(placed_valid),
        .in_ready(placed_ready),
        .in(placed),
        .out_valid(filed_valid),
        .out_ready(filed_ready),
        .out(filed)
    );

    // While host memory is slow to take one vote, buckets are found for the next ones.
    fifo #(.WIDTH(nic_pkg::FILED_BITS), .DEPTH(4)) queue (
        .clock(clock),
        .reset(reset),
        .in_valid(filed_valid),
        .in_ready(filed_ready),
        .in(filed),
        .out_valid(leaving_valid),
        .out_ready(leaving_ready),
        .out(leaving)
    );

    upload uploader (
        .clock(clock),
        .reset(reset),
        .table_base(table_base),
        .in_valid(leaving_valid),
        .in_ready(leaving_ready),
        .in(leaving),
        .write_valid(write_valid),
        .write_ready(write_ready),
        .write_address(write_address),
        .write_data(write_data),
        .verdict_valid(verdict_valid),
        .verdict_ready(verdict_ready),
        .verdict(verdict)
    );
endmodule
