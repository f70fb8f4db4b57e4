// Yang et al., Fig. 12, 'bitmap management': decides what becomes of a verified vote by the row of
// its bucket, and marks the slot that it gives.
//
//   the row holds the same 52 bytes          REPLAY, dropped: it must not fill the bucket
//   the row holds the same key               UP_DOUBLE
//   no slot is free                          UP_OVERFLOW
//   otherwise                                STORED in the lowest free slot
//
// Latency: one cycle, and the time until the scheduler grants the write.
module bitmap_update (
    input  logic                          clock,
    input  logic                          reset,
    input  logic                          no_replay,    // defences taken out
    input  logic                          no_double_up,
    input  logic                          no_overflow,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  nic_pkg::placed_t              in,
    input  nic_pkg::row_t                 row,
    output logic                          request,
    input  logic                          granted,
    output logic [31:0]                   bucket,
    output logic [nic_pkg::SLOTS-1:0]     slots,
    output logic [nic_pkg::SAID_BITS-1:0] said,
    output logic                          busy,
    output logic                          out_valid,
    input  logic                          out_ready,
    output nic_pkg::filed_t               out
);
    logic held, written;

    // The row's slots beside the vote.
    logic [nic_pkg::SLOTS-1:0] same, same_key;
    always_comb
        for (int s = 0; s < nic_pkg::SLOTS; s++) begin
            same_key[s] = row.occupied[s]
                && row.said[nic_pkg::SAID_BITS*s +: nic_pkg::KEY_BITS]
                    == in.vote.said[nic_pkg::KEY_BITS-1:0];
            same[s] = same_key[s]
                && row.said[nic_pkg::SAID_BITS*s + nic_pkg::KEY_BITS +: 256]
                    == in.vote.said[nic_pkg::SAID_BITS-1:nic_pkg::KEY_BITS];
        end

    nic_pkg::verdict_t verdict;
    logic [1:0] slot;
    always_comb begin
        slot = !row.occupied[0] ? 2'd0 : !row.occupied[1] ? 2'd1 : !row.occupied[2] ? 2'd2
            : !row.occupied[3] ? 2'd3 : 2'd0;
        if (in.vote.verdict != nic_pkg::OPEN) verdict = in.vote.verdict;
        else if (|same && !no_replay) verdict = nic_pkg::REPLAY;
        else if (|(same_key & ~same) && !no_double_up) verdict = nic_pkg::UP_DOUBLE;
        else if (&row.occupied && !no_overflow) verdict = nic_pkg::UP_OVERFLOW;
        else verdict = nic_pkg::STORED;
    end

    wire to_write = out.vote.verdict == nic_pkg::STORED && !written;
    assign in_ready = !held;
    assign busy = held;
    assign request = held && to_write;
    assign bucket = out.bucket;
    assign slots = 4'd1 << out.slot;
    assign said = out.vote.said;
    assign out_valid = held && !to_write;

    always_ff @(posedge clock) begin
        if (in_valid && in_ready) begin
            out.slot <= slot;
            out.bucket <= in.bucket;
            out.vote <= in.vote;
            out.vote.verdict <= verdict;
        end
        if (in_valid && in_ready) written <= 1'b0;
        else if (granted) written <= 1'b1;
        if (reset) held <= 1'b0;
        else if (in_valid && in_ready) held <= 1'b1;
        else if (out_valid && out_ready) held <= 1'b0;
    end
endmodule
