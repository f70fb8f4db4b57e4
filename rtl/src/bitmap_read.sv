// Yang et al., Fig. 12, 'bitmap read': asks for the row of a vote's bucket, and hands on the vote
// with what the row held. Packets that are decided pass without a request.
//
// It begins with a vote only when none is before it (`busy` is the update's): so a row is never
// read while a write to it is under way, and no pattern of buckets makes it slower (decision 0060).
//
// Latency: the memory's, and one cycle.
module bitmap_read (
    input  logic             clock,
    input  logic             reset,
    input  logic             busy,
    input  logic             in_valid,
    output logic             in_ready,
    input  nic_pkg::placed_t in,
    output logic             request,
    input  logic             granted,
    output logic [31:0]      bucket,
    input  logic             row_valid,
    input  nic_pkg::row_t    row,
    output logic             out_valid,
    input  logic             out_ready,
    output nic_pkg::placed_t out,
    output nic_pkg::row_t    out_row
);
    logic held, waiting;

    wire open = in.vote.verdict == nic_pkg::OPEN;
    wire idle = !held && !busy;
    assign request = in_valid && idle && open;
    assign bucket = in.bucket;
    assign in_ready = idle && (!open || granted);
    assign out_valid = held && !waiting;

    always_ff @(posedge clock) begin
        if (in_valid && in_ready) out <= in;
        if (row_valid) out_row <= row;
        if (reset) begin
            held <= 1'b0;
            waiting <= 1'b0;
        end else if (in_valid && in_ready) begin
            held <= 1'b1;
            waiting <= open;
        end else begin
            if (row_valid) waiting <= 1'b0;
            if (out_valid && out_ready) held <= 1'b0;
        end
    end
endmodule
