// Yang et al., Fig. 7, 'secure hash': LANES engines that take jobs in turn and give tags in the
// same order. All jobs take equally long, so turns lose nothing and need no dispatcher.
//
// Latency: 130 cycles. Throughput: LANES tags in 130 cycles; with 17 lanes that is one each 7.65
// cycles (decision 0060).
module hmac_pool #(
    parameter int LANES = 17
) (
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
    // One bit each: whose turn it is.
    logic [LANES-1:0] give, take;
    wire [LANES-1:0] ready, valid;
    wire [nic_pkg::TAG_BITS-1:0] tags[LANES];

    assign job_ready = |(give & ready);
    assign tag_valid = |(take & valid);

    always_comb begin
        tag = '0;
        for (int i = 0; i < LANES; i++) if (take[i]) tag = tag | tags[i];
    end

    for (genvar i = 0; i < LANES; i++) begin : lane
        hmac_engine engine (
            .clock(clock),
            .reset(reset),
            .job_valid(job_valid && give[i]),
            .job_ready(ready[i]),
            .said(said),
            .inner(inner),
            .outer(outer),
            .tag_valid(valid[i]),
            .tag_ready(tag_ready && take[i]),
            .tag(tags[i])
        );
    end

    always_ff @(posedge clock)
        if (reset) begin
            give <= {{(LANES - 1) {1'b0}}, 1'b1};
            take <= {{(LANES - 1) {1'b0}}, 1'b1};
        end else begin
            if (job_valid && job_ready) give <= {give[LANES-2:0], give[LANES-1]};
            if (tag_valid && tag_ready) take <= {take[LANES-2:0], take[LANES-1]};
        end
endmodule
