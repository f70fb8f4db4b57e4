// The midstates of each sender's link key (HMAC's states behind the padded key), as the host wrote
// them; no secret key ever comes to the card. A write replaces both midstates at once, so a key
// that changes under way is the old one or the new one.
//
// Latency: what `read` asks for stands from the next cycle until the next read.
module key_table #(
    parameter int SENDERS = 128
) (
    input  logic         clock,
    input  logic         reset,
    input  logic         write,
    input  logic [15:0]  write_sender,
    input  logic         write_valid,   // 0 forgets the sender
    input  logic [511:0] write_midstates,
    input  logic         read,
    input  logic [15:0]  read_sender,
    output logic         valid,
    output logic [255:0] inner,
    output logic [255:0] outer
);
    localparam int BITS = $clog2(SENDERS);

    logic [511:0] midstates[SENDERS];
    logic [SENDERS-1:0] known;

    wire write_here = write && write_sender < 16'(SENDERS);

    always_ff @(posedge clock) begin
        if (write_here) midstates[write_sender[BITS-1:0]] <= write_midstates;
        if (read) {inner, outer} <= midstates[read_sender[BITS-1:0]];
        if (reset) begin
            known <= '0;
            valid <= 1'b0;
        end else begin
            if (write_here) known[write_sender[BITS-1:0]] <= write_valid;
            if (read) valid <= read_sender < 16'(SENDERS) && known[read_sender[BITS-1:0]];
        end
    end
endmodule
