// MurmurHash3 (x86, 32 bits) of the 20-byte key: Yang et al., equations 11, 12, 14 and 15, with
// 32-bit words. 20 bytes are five whole words, so that the step for a tail (equation 13) is empty.
//
// Interface: valid and ready at both ends; hashes come in the order of the keys.
//
// Latency: 10 cycles. Throughput: a key each 7 cycles: a key's body goes on while the hash of the
// one before it is mixed. One multiplier for c1, one for c2, one for the final mix.
module murmur3 (
    input  logic                         clock,
    input  logic                         reset,
    input  logic [31:0]                  seed,
    input  logic                         in_valid,
    output logic                         in_ready,
    input  logic [nic_pkg::KEY_BITS-1:0] key,
    output logic                         out_valid,
    input  logic                         out_ready,
    output logic [31:0]                  hash
);
    localparam logic [31:0] C1 = 32'hcc9e2d51, C2 = 32'h1b873593, M = 32'd5, N = 32'he6546b64;
    localparam logic [31:0] C3 = 32'h85ebca6b, C4 = 32'hc2b2ae35;
    localparam logic [31:0] LENGTH = 32'd20;

    function automatic logic [31:0] rotl(input logic [31:0] x, input integer n);
        rotl = (x << n) | (x >> (32 - n));
    endfunction

    // Body: word w is multiplied by c1, in the next cycle rotated and multiplied by c2, in the
    // third mixed in.
    logic busy;
    logic [2:0] step;                       // cycles since the key was taken
    logic [nic_pkg::KEY_BITS-33:0] rest;    // words to come
    logic [31:0] by_c1, by_c2, h;

    // Final mix: one multiplication a cycle.
    logic mixing;
    logic [1:0] mix_step;
    logic [31:0] mix;
    wire [31:0] folded = mix_step == 2'd1 ? mix ^ (mix >> 13) : mix ^ (mix >> 16);

    wire body_done = busy && step == 3'd6;
    wire mix_free = !mixing || (out_valid && out_ready);
    assign in_ready = !busy || (body_done && mix_free);
    wire take = in_valid && in_ready;
    wire pass = body_done && mix_free;

    assign out_valid = mixing && mix_step == 2'd2;
    assign hash = folded;

    always_ff @(posedge clock) begin
        by_c1 <= (take ? key[31:0] : rest[31:0]) * C1;
        rest <= take ? key[nic_pkg::KEY_BITS-1:32] : {32'd0, rest[nic_pkg::KEY_BITS-33:32]};
        by_c2 <= rotl(by_c1, 15) * C2;
        if (take) h <= seed;
        else if (busy && step >= 3'd1 && step <= 3'd5) h <= rotl(h ^ by_c2, 13) * M + N;
        if (take) step <= 3'd0;
        else if (busy && !body_done) step <= step + 3'd1;

        if (pass) mix <= h ^ LENGTH;
        else if (mix_step != 2'd2) mix <= folded * (mix_step == 2'd0 ? C3 : C4);
        if (pass) mix_step <= 2'd0;
        else if (mixing && !out_valid) mix_step <= mix_step + 2'd1;

        if (reset) begin
            busy <= 1'b0;
            mixing <= 1'b0;
        end else begin
            busy <= take || (busy && !pass);
            mixing <= pass || (mixing && !(out_valid && out_ready));
        end
    end
endmodule
