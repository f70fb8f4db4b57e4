// A queue of DEPTH words, DEPTH a power of two. Valid and ready at both ends; a word that was put
// in stands at the output one cycle later.
module fifo #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 16
) (
    input  logic             clock,
    input  logic             reset,
    input  logic             in_valid,
    output logic             in_ready,
    input  logic [WIDTH-1:0] in,
    output logic             out_valid,
    input  logic             out_ready,
    output logic [WIDTH-1:0] out
);
    localparam int BITS = $clog2(DEPTH);

    logic [WIDTH-1:0] words[DEPTH];
    logic [BITS:0] put, got;  // one bit more than an address: full and empty differ in it

    assign out_valid = put != got;
    assign in_ready = put != {~got[BITS], got[BITS-1:0]};
    assign out = words[got[BITS-1:0]];

    always_ff @(posedge clock) begin
        if (in_valid && in_ready) words[put[BITS-1:0]] <= in;
        if (reset) begin
            put <= '0;
            got <= '0;
        end else begin
            if (in_valid && in_ready) put <= put + 1'b1;
            if (out_valid && out_ready) got <= got + 1'b1;
        end
    end
endmodule
