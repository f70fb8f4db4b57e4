// One block of SHA-256, a round a cycle (Yang et al., Fig. 9, equations 1 to 10).
//
// Interface: `start` is taken when `start_ready`; the chaining value and the block are read then.
// `done` and `digest` stand until `take`. A new start may come in the cycle of the take.
//
// Latency: `done` 65 cycles after the start, a block each 65 cycles.
//
// Words are big-endian, as FIPS 180-4 has them: `block[511:480]` is W0, `chain[255:224]` is A.
module sha256_core (
    input  logic         clock,
    input  logic         reset,
    input  logic         start,
    output logic         start_ready,
    input  logic [255:0] chain,
    input  logic [511:0] block,
    output logic         done,
    input  logic         take,
    output logic [255:0] digest
);
    function automatic logic [31:0] rotr(input logic [31:0] x, input integer n);
        rotr = (x >> n) | (x << (32 - n));
    endfunction

    // Chaining value, working variables and the window of sixteen words, W_t in front.
    logic [255:0] chained;
    logic [31:0] a, b, c, d, e, f, g, h;
    logic [511:0] window;
    logic [6:0] left;  // rounds to go
    logic busy;

    wire [31:0] k;
    sha256_constants constants (.round(6'd0 - left[5:0]), .k(k));

    wire [31:0] w0  = window[511:480];
    wire [31:0] w1  = window[479:448];
    wire [31:0] w9  = window[223:192];
    wire [31:0] w14 = window[63:32];
    wire [31:0] w16 = (rotr(w14, 17) ^ rotr(w14, 19) ^ (w14 >> 10)) + w9
                    + (rotr(w1, 7) ^ rotr(w1, 18) ^ (w1 >> 3)) + w0;

    wire [31:0] t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + k + w0;
    wire [31:0] t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));

    assign done = busy && left == 0;
    assign start_ready = !busy || (done && take);
    assign digest = {
        chained[255:224] + a, chained[223:192] + b, chained[191:160] + c, chained[159:128] + d,
        chained[127:96] + e, chained[95:64] + f, chained[63:32] + g, chained[31:0] + h
    };

    always_ff @(posedge clock) begin
        if (start && start_ready) begin
            chained <= chain;
            {a, b, c, d, e, f, g, h} <= chain;
            window <= block;
            left <= 7'd64;
        end else if (left != 0) begin
            {a, b, c, d, e, f, g, h} <= {t1 + t2, a, b, c, d + t1, e, f, g};
            window <= {window[479:0], w16};
            left <= left - 7'd1;
        end
        if (reset) begin
            busy <= 1'b0;
            left <= 7'd0;
        end else if (start_ready) begin
            busy <= start;
        end
    end
endmodule
