// HMAC-SHA-256 of the 52 authenticated bytes from the key's midstates, cut to 16 bytes.
//
// The inner message is 64 + 52 bytes and the outer 64 + 32; the first 64 of each, the padded keys,
// are in the midstates that the host computed. So it takes two blocks: 52 bytes and padding behind
// `inner`, then the inner digest and padding behind `outer`, both on one core.
//
// Interface: valid and ready at both ends; `tag` stands until it is taken.
//
// Latency: 130 cycles from a job to its tag, a tag each 130 cycles.
module hmac_engine (
    input  logic                          clock,
    input  logic                          reset,
    input  logic                          job_valid,
    output logic                          job_ready,
    input  logic [nic_pkg::SAID_BITS-1:0] said,
    input  logic [255:0]                  inner,
    input  logic [255:0]                  outer,
    output logic                          tag_valid,
    input  logic                          tag_ready,
    output logic [nic_pkg::TAG_BITS-1:0]  tag
);
    localparam logic [63:0] INNER_BITS = 64'd928;  // 8 * (64 + 52)
    localparam logic [63:0] OUTER_BITS = 64'd768;  // 8 * (64 + 32)

    logic second;               // the core has the outer block
    logic [255:0] outer_kept;

    // Bytes in the order of the wire become big-endian words, W0 in front.
    logic [415:0] words;
    always_comb for (int i = 0; i < 52; i++) words[8*(51-i) +: 8] = said[8*i +: 8];

    wire core_ready, core_done;
    wire [255:0] digest;
    wire turn = core_done && !second;  // the inner digest goes back in
    wire core_take = turn || (core_done && tag_ready);

    assign job_ready = core_ready && !turn;
    assign tag_valid = core_done && second;
    always_comb for (int i = 0; i < 16; i++) tag[8*i +: 8] = digest[255-8*i -: 8];

    sha256_core core (
        .clock(clock),
        .reset(reset),
        .start(turn || job_valid),
        .start_ready(core_ready),
        .chain(turn ? outer_kept : inner),
        .block(turn ? {digest, 8'h80, 184'd0, OUTER_BITS} : {words, 8'h80, 24'd0, INNER_BITS}),
        .done(core_done),
        .take(core_take),
        .digest(digest)
    );

    always_ff @(posedge clock) begin
        if (job_valid && job_ready) outer_kept <= outer;
        if (reset) second <= 1'b0;
        else if (turn) second <= 1'b1;
        else if (core_take) second <= 1'b0;
    end
endmodule
