// The collision manager of the message store module (Yang et al., Fig. 12): bitmap read, bitmap
// management and scheduler around the card's memory. Gives each verified vote a slot of its bucket,
// or says why it gets none.
//
// Latency: LATENCY + 3 cycles. Throughput: a vote each LATENCY + 4 cycles, which is no more than 8
// with a LATENCY of at most 4, whichever buckets votes fall into.
module collision_manager #(
    parameter int BUCKETS = 4096,
    parameter int LATENCY = 2
) (
    input  logic                      clock,
    input  logic                      reset,
    input  logic                      no_replay,    // defences taken out
    input  logic                      no_double_up,
    input  logic                      no_overflow,
    input  logic                      free,
    output logic                      free_granted,
    input  logic [31:0]               free_bucket,
    input  logic [nic_pkg::SLOTS-1:0] free_slots,
    input  logic                      in_valid,
    output logic                      in_ready,
    input  nic_pkg::placed_t          in,
    output logic                      out_valid,
    input  logic                      out_ready,
    output nic_pkg::filed_t           out
);
    wire read, read_granted, update, update_granted;
    wire [31:0] read_bucket, update_bucket;
    wire [nic_pkg::SLOTS-1:0] update_slots;
    wire [nic_pkg::SAID_BITS-1:0] update_said;

    wire request, write, write_occupied;
    wire [31:0] bucket;
    wire [nic_pkg::SLOTS-1:0] write_slots;
    wire [nic_pkg::SAID_BITS-1:0] write_said;

    wire row_valid, found_valid, found_ready, busy;
    nic_pkg::row_t row, found_row;
    nic_pkg::placed_t found;

    bitmap_read reader (
        .clock(clock),
        .reset(reset),
        .busy(busy),
        .in_valid(in_valid),
        .in_ready(in_ready),
        .in(in),
        .request(read),
        .granted(read_granted),
        .bucket(read_bucket),
        .row_valid(row_valid),
        .row(row),
        .out_valid(found_valid),
        .out_ready(found_ready),
        .out(found),
        .out_row(found_row)
    );

    bitmap_update updater (
        .clock(clock),
        .reset(reset),
        .no_replay(no_replay),
        .no_double_up(no_double_up),
        .no_overflow(no_overflow),
        .in_valid(found_valid),
        .in_ready(found_ready),
        .in(found),
        .row(found_row),
        .request(update),
        .granted(update_granted),
        .bucket(update_bucket),
        .slots(update_slots),
        .said(update_said),
        .busy(busy),
        .out_valid(out_valid),
        .out_ready(out_ready),
        .out(out)
    );

    bitmap_scheduler scheduler (
        .update(update),
        .update_granted(update_granted),
        .update_bucket(update_bucket),
        .update_slots(update_slots),
        .update_said(update_said),
        .free(free),
        .free_granted(free_granted),
        .free_bucket(free_bucket),
        .free_slots(free_slots),
        .read(read),
        .read_granted(read_granted),
        .read_bucket(read_bucket),
        .request(request),
        .write(write),
        .bucket(bucket),
        .write_slots(write_slots),
        .write_occupied(write_occupied),
        .write_said(write_said)
    );

    slot_directory #(.BUCKETS(BUCKETS), .LATENCY(LATENCY)) directory (
        .clock(clock),
        .reset(reset),
        .request(request),
        .write(write),
        .bucket(bucket),
        .write_slots(write_slots),
        .write_occupied(write_occupied),
        .write_said(write_said),
        .row_valid(row_valid),
        .row(row)
    );
endmodule
